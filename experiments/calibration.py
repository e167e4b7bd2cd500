"""How often our intervals and verdicts err: simulated runs, put through the very functions that judge real ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bsrs.rng import stream
from bsrs.stats import Comparison, best_of, iqm_interval, paired_difference
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import FEWEST_SEEDS
from experiments import asymmetric

SEEDS = (5, 6, 10, 20)
CANDIDATES = 6  # etas next to eta = 0
IQM_DRAWS = 300
DRAWS = {"smoke": 10, "laptop": 1_000, "paper": 10_000}
"""Simulated experiments for each row, by scale."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def _bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw runs of which every second one learns."""
    return np.asarray(rng.integers(2, size=shape) + rng.normal(scale=0.1, size=shape))


# name -> (scores of runs, their mean, their interquartile mean, their standard deviation)
DISTRIBUTIONS: dict[str, tuple[Draw, float, float, float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0, 0.0, 1.0),
    "lognormal": (lambda rng, shape: rng.lognormal(size=shape), 1.6487, 1.0729, 2.1612),
    "bimodal": (_bimodal, 0.5, 0.5, 0.5099),
}


@dataclass(frozen=True)
class CalibrationRow:
    """One statistic of so many seeds of one distribution."""

    statistic: str
    distribution: str
    n: int
    coverage: float
    """How often the 95% interval holds the truth."""
    false_holds: float
    """How often the verdict is "holds" (above the truth) although there is no effect."""
    power: float | None
    """How often it is "holds" with an effect of one standard deviation of the scores."""
    draws: int
    """Simulated experiments."""


def calibrate(draws: int, seeds: tuple[int, ...] = SEEDS, *, effect: bool = True) -> list[CalibrationRow]:
    """Make a row for each statistic, distribution and number of seeds, with exchangeable and with asymmetric nulls.

    Pooled claims take a quarter of the draws: each of their experiments has six tasks.
    """
    pooled = [name for name in asymmetric.STATISTICS if "pooled" in name]
    single = [name for name in asymmetric.STATISTICS if name not in pooled]
    rows = [*exchangeable_rows(draws, seeds, effect=effect), *asymmetric_rows(draws, seeds, single)]
    return [*rows, *asymmetric_rows(max(draws // 4, 1), seeds, pooled)]


def exchangeable_rows(draws: int, seeds: tuple[int, ...] = SEEDS, *, effect: bool = True) -> list[CalibrationRow]:
    """Draw both arms from one distribution; the power is from half as many draws, if at all."""
    return [
        CalibrationRow(statistic, name, n, *simulate(stream(n, statistic, name), name, n, draws, effect), draws)
        for statistic, simulate in STATISTICS.items()
        for name in DISTRIBUTIONS
        for n in seeds
    ]


def asymmetric_rows(draws: int, seeds: tuple[int, ...] = SEEDS, statistics: Sequence[str] = ()) -> list[CalibrationRow]:
    """Draw arms of different shape with equal means."""
    return [
        _asymmetric(statistic, name, n, draws)
        for statistic in statistics or asymmetric.STATISTICS
        for name in asymmetric.NULLS
        for n in seeds
        if n >= FEWEST_SEEDS
    ]


def _asymmetric(statistic: str, name: str, n: int, draws: int) -> CalibrationRow:
    """Simulate arms of different shape with equal means."""
    rng, arms = stream(n, statistic, name), asymmetric.NULLS[name]
    found = [asymmetric.STATISTICS[statistic](rng, arms, n) for _ in range(draws)]
    return CalibrationRow(statistic, name, n, *_rates(found, []), draws)


Rates = tuple[float, float, float | None]


def _mean(rng: np.random.Generator, name: str, n: int, draws: int, effect: bool) -> Rates:
    draw, truth, _, spread = DISTRIBUTIONS[name]
    return _pairs(draw(rng, (draws, n)) - truth, spread, effect)


def _paired(rng: np.random.Generator, name: str, n: int, draws: int, effect: bool) -> Rates:
    draw, _, _, spread = DISTRIBUTIONS[name]
    return _pairs(draw(rng, (draws, n)) - draw(rng, (draws, n)), spread, effect)


def _pairs(differences: Array, spread: float, effect: bool) -> Rates:
    """Judge differences, (draws, seeds), whose true mean is 0."""
    found = [paired_difference(each, 0 * each) for each in differences]
    helped = [paired_difference(each + spread, 0 * each) for each in differences[::2]] if effect else []
    return _rates(found, helped)


def _rates(found: Sequence[Comparison], helped: Sequence[Comparison]) -> Rates:
    covered = np.mean([each.low <= 0 <= each.high for each in found])
    false, power = (np.mean([each.verdict == "holds" for each in some]) if some else None for some in (found, helped))
    return float(covered), float(false or 0.0), None if power is None else float(power)


def _iqm(rng: np.random.Generator, name: str, n: int, draws: int, effect: bool) -> Rates:
    draw, _, truth, _ = DISTRIBUTIONS[name]
    found = iqm_interval(draw(rng, (draws, n, 1)), seed=0, draws=IQM_DRAWS)
    covered = (found.low <= truth) & (truth <= found.high)
    return float(covered.mean()), float((found.low > truth).mean()) if n >= FEWEST_SEEDS else 0.0, None


def _best_of(rng: np.random.Generator, name: str, n: int, draws: int, effect: bool) -> Rates:
    """Judge the best of gains that rise to one standard deviation and fall again, or of none."""
    draw, _, _, spread = DISTRIBUTIONS[name]
    shape = spread * np.array([0.4, 0.8, 1.0, 0.8, 0.4, 0.0])[:, None]
    every = draw(rng, (draws, 1 + CANDIDATES, n))
    found = [best_of(scores[1:], scores[0]).gain for scores in every]
    helped = [best_of(scores[1:] + shape, scores[0]).gain for scores in every[::2]] if effect else []
    return _rates(found, helped)


STATISTICS: dict[str, Callable[[np.random.Generator, str, int, int, bool], Rates]] = {
    "mean": _mean,
    "iqm": _iqm,
    "paired difference": _paired,
    "best of 6": _best_of,
}
