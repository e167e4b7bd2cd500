"""Figures that every experiment has besides its own: who beats whom, profiles, and what went on inside."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.bars import improvement
from bsrs.figures.curves import Curve, diagnostics, learning_curves, performance_profiles
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.report.plots import series_label
from bsrs.reproduce.claims import stacked
from bsrs.stats import bootstrap, median, performance_profile
from bsrs.stats.aggregates import Array
from bsrs.stats.records import RunRecord, Series
from bsrs.stats.summary import Games, Row, atari_games, summary

DRAWS = 1_000


def improvement_figure(rows: Sequence[Row]) -> Figure:
    """Each series against its baseline."""
    labels = [series_label(row.series) for row in rows]
    # Room for the longest label: variants that differ in many settings have long ones.
    figure, ax = new_figure(max(5.5, 3.5 + 0.075 * max(map(len, labels))), 0.8 + 0.32 * len(rows))
    improvement(ax, labels, stacked([row.improvement for row in rows if row.improvement]))
    return figure


def games_figure(games: Games) -> Figure:
    """Median human-normalised score over training, and performance profiles at its end."""
    figure, (left, right) = new_figure(9, 3, 1, 2)
    learning_curves(left, game_curves(games, games.curves, games.steps), score="median human-normalised score")
    thresholds = np.linspace(0, max(1.0, float(max(np.quantile(s, 0.98) for s in games.final.values()))), 101)
    profiles = game_curves(games, games.final, thresholds, lambda scores: performance_profile(scores, thresholds))
    performance_profiles(right, profiles, score="human-normalised score")
    return figure


def game_curves(
    games: Games, scores: Mapping[float, Array], at: Array, statistic: Callable[[Array], Array] = median
) -> list[Curve]:
    """A statistic over games for each eta, by default the median of the mean over seeds, at points `at`."""
    colours = eta_colours(games.etas)
    found = {eta: bootstrap(statistic, scores[eta], seed=0, draws=DRAWS) for eta in games.etas}
    return [Curve(eta_label(eta), colours[eta], at, found[eta]) for eta in games.etas]


def draw_further(name: str, series: Sequence[Series]) -> dict[str, Figure]:
    """Those that these runs allow."""
    first_task = [each for each in series if each.task == series[0].task]
    figures = {f"{name}-diagnostics": diagnostics_figure([each.runs[0] for each in first_task])}
    first = [row for row in summary(first_task) if row.improvement is not None]
    if first:
        figures[f"{name}-improvement"] = improvement_figure(first)
    try:
        games = atari_games(series)
    except BadInput:  # several variants: no one median
        games = None
    if games is not None:
        figures[f"{name}-profiles"] = games_figure(games)
    return figures


def diagnostics_figure(runs: Sequence[RunRecord]) -> Figure:
    """Value, action gap, shaping term and loss of a few runs on one env."""
    figure, axes = new_figure(7.5, 4.4, 2, 2)
    diagnostics(list(axes.flat), runs)
    figure.suptitle(f"{runs[0].config.env}, one run for each setting", x=0.01, ha="left", fontsize=9)
    return figure
