"""What a set of runs shows, as numbers: a row for each series, and all games together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats.aggregates import Array, mean
from bsrs.stats.atari import game_name, human_normalised, minatar_game, reference_scores
from bsrs.stats.comparison import improvement, relative_advantage
from bsrs.stats.records import Series, Task
from bsrs.stats.resampling import Interval, bootstrap

SEED = 0


@dataclass(frozen=True)
class Row:
    """One series in the table of statistics. The comparisons are with the baseline, eta = 0; its own has none."""

    series: Series
    final: Interval
    """Mean over runs of the final score."""
    area: Interval
    """Mean over runs of the mean score over training."""
    steps_to_level: float
    """Median over runs of the first step at 90 % of the way from the task's worst score to the baseline's final;
    infinite if it is not reached, NaN without a baseline."""
    improvement: Interval | None
    """Probability that a run ends above the baseline's run with its seed."""
    advantage: Interval | None
    """Of the mean final score, relative to what the baseline gained over random play (or the task's worst score)."""


def summary(series: Sequence[Series]) -> list[Row]:
    """A row for each series."""
    rows = []
    for own in series:
        baseline, floor = baseline_of(own, series), floor_of(own.task, series)
        better = advantage = None
        steps_to_level = np.nan
        if baseline is not None:
            level = floor + 0.9 * (float(baseline.final.mean()) - floor)
            steps_to_level = own.steps_to(level)
        if baseline is not None and baseline is not own and set(own.seeds) & set(baseline.seeds):
            mine, zero = on_shared_seeds(attrgetter("final"), own, baseline)
            better = improvement(mine, zero)
            advantage = bootstrap(partial(mean_advantage, floor=floor), mine[:, None], zero[:, None], seed=SEED)
        final, area = (bootstrap(mean, each[:, None], seed=SEED) for each in (own.final, own.area))
        rows.append(Row(own, final, area, steps_to_level, better, advantage))
    return rows


def on_shared_seeds(value: Callable[[Series], Array], *series: Series) -> list[Array]:
    """The value of each series' runs on the seeds that all have: (seeds,) each, in one order."""
    seeds = sorted(set.intersection(*(set(each.seeds) for each in series)))
    return [of_seeds(each, seeds, value) for each in series]


def of_seeds(series: Series, seeds: Sequence[int], value: Callable[[Series], Array]) -> Array:
    """The value of the runs with these seeds, in their order."""
    return value(series)[[series.seeds.index(seed) for seed in seeds]]


def mean_advantage(x: Array, y: Array, floor: float) -> Array:
    """Relative advantage of the mean scores."""
    return relative_advantage(mean(x), mean(y), floor)


def baseline_of(series: Series, everything: Sequence[Series]) -> Series | None:
    """The eta = 0 series to compare with: of the same variant, or else of the same task."""
    same_task = [each for each in everything if each.task == series.task and each.eta == 0.0]
    return next((each for each in same_task if each.variant == series.variant), next(iter(same_task), None))


def floor_of(task: Task, everything: Sequence[Series]) -> float:
    """What is as good as nothing: random play's score where it is known, else the worst evaluation."""
    game = game_name(task.env)
    if game in reference_scores():
        return reference_scores()[game][0]
    return float(min(each.curves.min() for each in everything if each.task == task))


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
    """All Atari games, or else all MinAtar games; None if fewer than two have been run.

    Only games that every constant eta has are compared, on the seeds that all have; schedules are there if they have
    all of these. Atari's scores are human-normalised. Nobody has measured humans on MinAtar: there 1 is what eta = 0
    scores at the end.
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
    score, plain = "human-normalised score", {}
    if kind == "MinAtar":
        score = "score relative to plain"
        plain = {game: float(chosen[game, 0.0].final.mean()) if 0.0 in etas else 0.0 for game in games}
        if min(plain.values()) <= 0:
            return None  # nothing to compare with

    def normalised(scores: Array, game: str) -> Array:
        return scores / plain[game] if game in plain else human_normalised(scores, game)

    def of_eta(eta: float | str, values: Callable[[Series], Array]) -> Array:
        """(..., seeds, games)"""
        return np.stack([normalised(of_seeds(chosen[g, eta], seeds, values), g) for g in games], axis=-1)

    curves = {eta: of_eta(eta, lambda each: each.curves[:, : len(steps)]) for eta in etas}  # (seeds, steps, games)
    final = {eta: of_eta(eta, attrgetter("final")) for eta in etas}
    swapped = {eta: np.swapaxes(curve, 0, 1) for eta, curve in curves.items()}
    return Games(kind, score, tuple(games), etas, tuple(seeds), steps, swapped, final)


def _by_game(series: Sequence[Series]) -> tuple[str, dict[tuple[str, float | str], Series]]:
    """The kind of games, and each game's series by eta."""
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
