"""Figures that every experiment has besides its own: who beats whom, profiles, and what went on inside."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.bars import improvement
from bsrs.figures.curves import QUANTITIES, Curve, Trace, diagnostics, learning_curves, performance_profiles
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.report.plots import series_label
from bsrs.stats import Interval, bootstrap, median, performance_profile
from bsrs.stats.records import RunRecord, Series
from bsrs.stats.summary import Games, Row, atari_games, summary

DRAWS = 1_000


def improvement_figure(rows: Sequence[Row]) -> Figure:
    """Each series against its baseline."""
    labels = [series_label(row.series) for row in rows]
    # Room for the longest label: variants that differ in many settings have long ones.
    figure, ax = new_figure(max(5.5, 3.5 + 0.075 * max(map(len, labels))), 0.8 + 0.32 * len(rows))
    improvement(ax, labels, stacked([row.improvement for row in rows]))
    return figure


def games_figure(games: Games) -> Figure:
    """Median human-normalised score over training, and performance profiles at its end."""
    figure, (left, right) = new_figure(9, 3, 1, 2)
    learning_curves(left, game_curves(games), score="median human-normalised score")
    colours = eta_colours(games.etas)
    thresholds = np.linspace(0, max(1.0, float(max(np.quantile(s, 0.98) for s in games.final.values()))), 101)
    profiles = [
        bootstrap(lambda scores: performance_profile(scores, thresholds), games.final[eta], seed=0, draws=DRAWS)
        for eta in games.etas
    ]
    labels = [eta_label(eta) for eta in games.etas]
    performance_profiles(
        right, thresholds, labels, [colours[eta] for eta in games.etas], profiles, score="human-normalised score"
    )
    return figure


def game_curves(games: Games) -> list[Curve]:
    """Median over games of the mean over seeds, for each eta."""
    colours = eta_colours(games.etas)
    return [
        Curve(eta_label(eta), colours[eta], games.steps, bootstrap(median, games.curves[eta], seed=0, draws=DRAWS))
        for eta in games.etas
    ]


def stacked(intervals: Sequence[Interval | None]) -> Interval:
    """Several intervals as one, with them along its axis."""
    known = [each for each in intervals if each is not None]
    return Interval(
        np.array([each.estimate for each in known]),
        np.array([each.low for each in known]),
        np.array([each.high for each in known]),
    )


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
    colours = eta_colours(list(dict.fromkeys(run.config.eta for run in runs)))
    traces = []
    for run in runs:
        steps = run.trace("value")[0]
        records = {name: run.trace(name)[1] for name in QUANTITIES}
        traces.append(Trace(eta_label(run.config.eta), colours[run.config.eta], steps, records))
    diagnostics(list(axes.flat), traces)
    figure.suptitle(f"{runs[0].config.env}, one run for each setting", x=0.01, ha="left", fontsize=9)
    return figure
