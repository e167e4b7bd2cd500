"""Figures that every experiment has besides its own: who beats whom, profiles, and what went on inside."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.bars import improvement
from bsrs.figures.curves import Curve, diagnostics, learning_curves, performance_profiles
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.report.plots import series_label
from bsrs.stats import bootstrap, median, performance_profile
from bsrs.stats.aggregates import Array
from bsrs.stats.summary import Games, Row, games_together
from experiments.claims import stacked

DRAWS = 1_000


def games_figure(games: Games) -> Figure:
    """Median score over training, and performance profiles at its end."""
    figure, (left, right) = new_figure(9, 3, 1, 2)
    learning_curves(left, game_curves(games, games.curves, games.steps), score=f"median {games.score}")
    thresholds = np.linspace(0, max(1.0, float(max(np.quantile(s, 0.98) for s in games.final.values()))), 101)
    profiles = game_curves(games, games.final, thresholds, lambda scores: performance_profile(scores, thresholds))
    performance_profiles(right, profiles, score=games.score)
    return figure


def game_curves(
    games: Games, scores: Mapping[float | str, Array], at: Array, statistic: Callable[[Array], Array] = median
) -> list[Curve]:
    """A statistic over games for each eta, by default the median of the mean over seeds, at points `at`."""
    colours = eta_colours(games.etas)
    found = {eta: bootstrap(statistic, scores[eta], seed=0, draws=DRAWS) for eta in games.etas}
    return [Curve(eta_label(eta), colours[eta], at, found[eta]) for eta in games.etas]


def draw_further(name: str, rows: Sequence[Row]) -> dict[str, Figure]:
    """Those that these runs allow: what went on inside, on one env, and each series against its baseline there."""
    first_task = [row for row in rows if row.series.task == rows[0].series.task]
    figure, axes = new_figure(7.5, 4.4, 2, 2)
    diagnostics(list(axes.flat), [row.series.runs[0] for row in first_task])
    figure.suptitle(f"{rows[0].series.env}, one run for each setting", x=0.01, ha="left", fontsize=9)
    figures = {f"{name}-diagnostics": figure}
    labels = {series_label(row.series): row.improvement for row in first_task if row.improvement}
    if labels:
        # Room for the longest label: variants that differ in many settings have long ones.
        figure, ax = new_figure(max(5.5, 3.5 + 0.075 * max(map(len, labels))), 0.8 + 0.32 * len(labels))
        improvement(ax, list(labels), stacked(list(labels.values())))
        figures[f"{name}-improvement"] = figure
    try:
        games = games_together([row.series for row in rows])
    except BadInput:  # several variants: no one median
        games = None
    if games is not None:
        figures[f"{name}-profiles"] = games_figure(games)
    return figures
