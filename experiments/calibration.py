"""How often our verdicts err: simulated runs with equal means, put through the very functions that judge real ones.

A score is 0 for a random policy and 1 for the reference. No test on ten seeds can see a failure that happens once in
twenty runs; these rates say how often a verdict is then wrong, and pooled claims show what more tasks are worth.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bsrs.config.agents import DQNConfig
from bsrs.config.settings import RunSettings
from bsrs.rng import stream
from bsrs.stats import Comparison, best_of, paired_difference, pooled, reference_of
from bsrs.stats.aggregates import Array
from bsrs.stats.recommend import recommend
from bsrs.stats.records import RunRecord, Series, Task

SEEDS = (6, 10, 20)
DRAWS = {"smoke": 10, "laptop": 1_000, "paper": 10_000}
"""Simulated experiments for each row, by scale."""
NOISE = 0.05
RARE = 0.1
TYPICAL = 0.8
ETAS, TASKS = 4, 6
ENV = "CartPole-v1"

Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape], Array]
Arms = Callable[[np.random.Generator, Shape], tuple[Array, Array]]


@dataclass(frozen=True)
class CalibrationRow:
    """One statistic of so many seeds of one distribution."""

    statistic: str
    distribution: str
    n: int
    coverage: float
    """How often the 95% interval holds the truth, which is 0."""
    false_holds: float
    """How often the verdict is "holds" although there is no effect."""
    draws: int
    """Simulated experiments."""


def calibrate(
    draws: int, seeds: Sequence[int] = SEEDS, statistics: Sequence[str] = (), nulls: Sequence[str] = ()
) -> list[CalibrationRow]:
    """Make a row for each statistic (or all), distribution (or all) and number of seeds.

    Pooled claims take a quarter of the draws: each of their experiments has six tasks.
    """
    return [
        _simulate(statistic, null, n, max(draws // 4, 1) if "pooled" in statistic else draws)
        for statistic in statistics or STATISTICS
        for null in nulls or NULLS
        for n in seeds
    ]


def _simulate(statistic: str, null: str, n: int, draws: int) -> CalibrationRow:
    rng = stream(n, statistic, null)
    found = [STATISTICS[statistic](rng, NULLS[null], n) for _ in range(draws)]
    coverage = np.mean([each.low <= 0 <= each.high for each in found])
    false_holds = np.mean([each.verdict == "holds" for each in found])
    return CalibrationRow(statistic, null, n, float(coverage), float(false_holds), draws)


# --------------------------------------------------------------------------------------------------------------
# Scores of a shaped setting and of the baseline, with equal means.


def _both(draw: Draw) -> Arms:
    return lambda rng, shape: (draw(rng, shape), draw(rng, shape))


def _noise(rng: np.random.Generator, shape: Shape) -> Array:
    return rng.normal(scale=NOISE, size=shape)


def _failing(rng: np.random.Generator, shape: Shape) -> Array:
    """Draw scores of which one in ten is the random policy's, and the others higher, so that the mean is `TYPICAL`."""
    typical = TYPICAL / (1 - RARE)
    return np.where(rng.random(shape) < RARE, 0.0, typical) + _noise(rng, shape)


def _bimodal(rng: np.random.Generator, shape: Shape) -> Array:
    return np.where(rng.random(shape) < 0.3, TYPICAL - 0.35, TYPICAL + 0.15) + _noise(rng, shape)


NULLS: Mapping[str, Arms] = {
    "normal": _both(_noise),
    "lognormal": _both(lambda rng, shape: rng.lognormal(size=shape)),
    "bimodal": _both(_bimodal),
    "10% failures, shaped only": lambda rng, shape: (_failing(rng, shape), TYPICAL + _noise(rng, shape)),
    "10% failures in both": _both(_failing),
    "three times the spread": lambda rng, shape: (TYPICAL + 3 * _noise(rng, shape), TYPICAL + _noise(rng, shape)),
    "bimodal, equal means": lambda rng, shape: (_bimodal(rng, shape), TYPICAL + _noise(rng, shape)),
}


# --------------------------------------------------------------------------------------------------------------
# Statistics.


def paired(rng: np.random.Generator, arms: Arms, n: int) -> Comparison:
    """Judge one eta on one task."""
    return paired_difference(*arms(rng, (n,)))


def best(rng: np.random.Generator, arms: Arms, n: int) -> Comparison:
    """Judge the best of four etas on one task."""
    shaped, baseline = arms(rng, (ETAS, n))
    return best_of(shaped, baseline[0]).gain


def recommended(rng: np.random.Generator, arms: Arms, n: int) -> Comparison:
    """Ask `bsrs recommend` about a sweep over four etas: its gain holds where it says "use"."""
    shaped, baseline = arms(rng, (ETAS, n))
    (found,) = recommend(sweep([baseline[0], *shaped]))
    assert found.gain is not None
    assert found.helps == (found.gain.verdict == "holds")
    assert not found.helps or "failed (at most" in found.answer  # the clause that no "use" goes without
    return found.gain


def sweep(scores: Sequence[Array]) -> list[Series]:
    """Make up the series of eta = 0, 1, ... on CartPole with these final scores: (seeds,) each."""
    reference = reference_of(ENV)
    assert reference is not None
    task, found = Task(Path("sweep"), "dqn", ENV), []
    for eta, of_eta in enumerate(scores):
        settings = [RunSettings.of(DQNConfig(env=ENV, eta=float(eta), seed=seed)) for seed in range(len(of_eta))]
        runs = tuple(RunRecord(Path(f"{eta}-{s.seed}"), s, "finished", "", None, ()) for s in settings)
        curves = np.repeat(reference.random + reference.span * of_eta[:, None], 2, axis=1)
        found.append(Series(runs, task, "", np.array([500, 1000]), curves))
    return found


def pooled_over_seeds(rng: np.random.Generator, arms: Arms, n: int) -> Comparison:
    """Judge the best of four etas on six tasks together, for new seeds."""
    return pooled(_differences(rng, arms, n)).over_seeds.gain


def pooled_over_tasks(rng: np.random.Generator, arms: Arms, n: int) -> Comparison:
    """Judge the same for new tasks."""
    found = pooled(_differences(rng, arms, n)).over_tasks
    assert found is not None
    return found.gain


def _differences(rng: np.random.Generator, arms: Arms, n: int) -> Array:
    shaped, baseline = arms(rng, (ETAS, n, TASKS))
    return np.asarray(shaped - baseline[:1])


STATISTICS: Mapping[str, Callable[[np.random.Generator, Arms, int], Comparison]] = {
    "paired difference": paired,
    "best of 4": best,
    "recommend": recommended,
    "6 tasks pooled, over seeds": pooled_over_seeds,
    "6 tasks pooled, over tasks": pooled_over_tasks,
}
