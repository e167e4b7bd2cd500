"""What a set of runs shows, as numbers: a row for each series, and all games together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats.aggregates import Array, mean
from bsrs.stats.comparison import Comparison, improvement, paired_difference, relative_advantage
from bsrs.stats.curves import steps_to_threshold
from bsrs.stats.records import Series, Task
from bsrs.stats.references import Reference, failure_bound, game_name, human_reference, minatar_game, reference_of
from bsrs.stats.resampling import Interval, bootstrap

SEED = 0
OWN_RANGE = "the baseline's own first and last evaluation"


@dataclass(frozen=True)
class Failures:
    """Runs of one setting that diverged or did not learn, and how likely that may be."""

    failed: int
    runs: int

    @property
    def bound(self) -> float:
        """At most this probability, with 95% confidence."""
        return failure_bound(self.failed, self.runs)

    def __str__(self) -> str:
        return f"{self.failed} of {self.runs} failed (at most {self.bound:.0%})"


@dataclass(frozen=True)
class Row:
    """One series in the table of statistics. The comparisons are with the baseline, eta = 0; its own has none."""

    series: Series
    area: Interval
    """Mean over runs of the mean score over training."""
    final: Interval
    """Mean over runs of the final score."""
    gain: Comparison | None
    """Over the baseline in the mean score over training, on shared seeds."""
    final_gain: Comparison | None
    """Over the baseline in the final score, on shared seeds."""
    failures: Failures
    reference: Reference | None
    """What scores and failures are measured by; None if the task has none and the baseline did not improve."""
    steps_to_level: float
    """Median over runs of the first step at 90% of the way from the random policy's score to the baseline's final;
    infinite if it is not reached, NaN without a baseline."""
    improvement: Interval | None
    """Probability that a run ends above the baseline's run with its seed."""
    advantage: Interval | None
    """Gain in the mean final score, relative to the baseline's gain over the random policy."""


def summary(series: Sequence[Series]) -> list[Row]:
    """Make a row for each series."""
    rows = []
    for own in series:
        baseline, reference = baseline_of(own, series), task_reference(own.task, series)
        final, area = (bootstrap(mean, each[:, None], seed=SEED) for each in (own.final, own.area))
        over_training = at_end = better = advantage = None
        steps_to_level = np.nan
        if baseline is not None and reference is not None:
            level = reference.random + 0.9 * (float(baseline.final.mean()) - reference.random)
            steps_to_level = float(np.median(steps_to_threshold(own.steps, own.curves, level)))
        if baseline is not None and baseline is not own and set(own.seeds) & set(baseline.seeds):
            over_training, at_end = (gain(own, baseline, value) for value in (attrgetter("area"), attrgetter("final")))
            mine, zero = on_shared_seeds(attrgetter("final"), own, baseline)
            better = improvement(mine, zero)
            if reference is not None:
                relative = mean_advantage(reference.random)
                advantage = bootstrap(relative, mine[:, None], zero[:, None], seed=SEED)
        comparisons = over_training, at_end, failures_of(own, reference), reference, steps_to_level, better, advantage
        rows.append(Row(own, area, final, *comparisons))
    return rows


def gain(own: Series, baseline: Series, value: Callable[[Series], Array]) -> Comparison | None:
    """Compare two series on the seeds that they share; None if they share none."""
    mine, zero = on_shared_seeds(value, own, baseline)
    return paired_difference(mine, zero, seed=SEED) if len(mine) else None


def on_shared_seeds(value: Callable[[Series], Array], *series: Series) -> list[Array]:
    """Return the value of each series' runs on the seeds that all have: (seeds,) each, in one order."""
    seeds = sorted(set.intersection(*(set(each.seeds) for each in series)))
    return [of_seeds(each, seeds, value) for each in series]


def of_seeds(series: Series, seeds: Sequence[int], value: Callable[[Series], Array]) -> Array:
    """Return the value of the runs with these seeds, in their order."""
    return value(series)[[series.seeds.index(seed) for seed in seeds]]


def mean_advantage(floor: float) -> Callable[[Array, Array], Array]:
    """Make the statistic to resample: the relative advantage of the mean scores."""
    return lambda x, y: relative_advantage(mean(x), mean(y), floor)


def baseline_of(series: Series, everything: Sequence[Series]) -> Series | None:
    """Find the eta = 0 series to compare with: of the same variant, or else of the same task."""
    same_task = [each for each in everything if each.task == series.task and each.eta == 0.0]
    return next((each for each in same_task if each.variant == series.variant), next(iter(same_task), None))


def task_reference(task: Task, everything: Sequence[Series]) -> Reference | None:
    """Return the fixed reference of the task's env, else the baseline's own range; no shaped run can change either."""
    if known := reference_of(task.env):
        return known
    zeros = [each for each in everything if each.task == task and each.eta == 0.0]
    if not zeros:
        return None
    first, last = float(zeros[0].curves[:, 0].mean()), float(zeros[0].final.mean())
    return Reference(first, last, OWN_RANGE) if last > first else None


def failures_of(series: Series, reference: Reference | None) -> Failures:
    """Count the runs that diverged or whose final score is near the random policy's."""
    diverged = np.array([run.outcome == "diverged" for run in series.runs])
    failed = diverged if reference is None else diverged | reference.failed(series.final)
    return Failures(int(failed.sum()), len(failed))


@dataclass(frozen=True)
class Games:
    """Scores of the games that every eta in it was run on, with the seeds that all have, in a unit that they share."""

    kind: str
    """Atari or MinAtar."""
    score: str
    """What the numbers are."""
    games: tuple[str, ...]
    etas: tuple[float | str, ...]
    seeds: tuple[int, ...]
    steps: Array  # (steps,)
    curves: dict[float | str, Array]  # eta -> (steps, seeds, games)
    final: dict[float | str, Array]  # eta -> (seeds, games)

    @property
    def constants(self) -> tuple[float, ...]:
        """The etas that are numbers, in their order."""
        return tuple(eta for eta in self.etas if not isinstance(eta, str))


def games_together(series: Sequence[Series]) -> Games | None:
    """Put all Atari games together, or else all MinAtar games; None if fewer than two have been run.

    Only games that every constant eta has are compared, on the seeds that all have; schedules are there if they have
    all of these. Atari's scores are human-normalised, MinAtar's relative to its references.
    """
    kind, chosen = _by_game(series)
    constants = sorted({eta for _, eta in chosen if not isinstance(eta, str)})
    games = sorted({game for game, _ in chosen if all((game, eta) in chosen for eta in constants)})
    if len(games) < 2 or not constants:
        return None
    used = [chosen[game, eta] for game in games for eta in constants]
    seeds = sorted(set.intersection(*(set(each.seeds) for each in used)))
    steps = min((each.steps for each in used), key=len)

    def complete(eta: float | str) -> bool:
        runs = [chosen[game, eta] for game in games if (game, eta) in chosen]
        return len(runs) == len(games) and all(
            set(seeds) <= set(each.seeds) and np.array_equal(each.steps[: len(steps)], steps) for each in runs
        )

    if not seeds or not all(map(complete, constants)):
        return None
    schedules = sorted({eta for _, eta in chosen if isinstance(eta, str) and complete(eta)})
    etas: tuple[float | str, ...] = (*constants, *schedules)
    scale = {game: reference_of(chosen[game, constants[0]].env) for game in games}
    if kind == "MinAtar" and None in scale.values():
        return None

    def of_eta(eta: float | str, values: Callable[[Series], Array]) -> Array:
        """(..., seeds, games)"""
        each = [(scale[g] or human_reference(g)).normalised(of_seeds(chosen[g, eta], seeds, values)) for g in games]
        return np.stack(each, axis=-1)

    curves = {eta: of_eta(eta, lambda each: each.curves[:, : len(steps)]) for eta in etas}  # (seeds, steps, games)
    final = {eta: of_eta(eta, attrgetter("final")) for eta in etas}
    swapped = {eta: np.swapaxes(curve, 0, 1) for eta, curve in curves.items()}
    score = "human-normalised score" if kind == "Atari" else "score relative to the reference"
    return Games(kind, score, tuple(games), etas, tuple(seeds), steps, swapped, final)


def _by_game(series: Sequence[Series]) -> tuple[str, dict[tuple[str, float | str], Series]]:
    """Return the kind of games, and each game's series by eta."""
    kind, name_of = "Atari", game_name
    if not any(name_of(each.env) for each in series):
        kind, name_of = "MinAtar", minatar_game
    found: dict[tuple[str, float | str], Series] = {}
    for each in series:
        game = name_of(each.env)
        if game is None:
            continue
        if (game, each.eta) in found:
            raise BadInput(f"{game} was run at eta {each.eta} in several variants; expected one")
        found[game, each.eta] = each
    return kind, found
