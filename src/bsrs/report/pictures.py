"""The page's still pictures: what the interactive plots do not show."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.bars import improvement
from bsrs.figures.curves import Curve, learning_curves
from bsrs.figures.profiles import performance_profiles
from bsrs.figures.style import eta_colours, eta_label, new_figure, project_style
from bsrs.report.plots import series_label, task_names
from bsrs.stats import Interval, bootstrap, median, performance_profile
from bsrs.stats.summary import Games, Row, atari_games

DRAWS = 1_000
MANY_TASKS = 6  # more would be a wall of small pictures; the table has the numbers


def pictures(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Name and source of each."""
    with project_style():
        return [{"name": name, "source": _source(figure)} for name, figure in [*_improvements(rows), *_all_games(rows)]]


def _improvements(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    names = task_names(rows)
    for task, name in names.items() if len(names) <= MANY_TASKS else []:
        compared = [row for row in rows if row.series.task == task and row.improvement is not None]
        if compared:
            yield f"{name}: probability of improvement", improvement_figure(compared)


def _all_games(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    for sweep, variant in dict.fromkeys((row.series.task.sweep, row.series.variant) for row in rows):
        games = _games([row for row in rows if (row.series.task.sweep, row.series.variant) == (sweep, variant)])
        if games is not None:
            name = f"{len(games.games)} Atari games, {len(games.seeds)} seeds" + (f", {variant}" if variant else "")
            yield name, games_figure(games)


def improvement_figure(rows: Sequence[Row]) -> Figure:
    """Each series against its baseline."""
    figure, ax = new_figure(5.5, 0.8 + 0.32 * len(rows))
    improvement(ax, [series_label(row.series) for row in rows], stacked([row.improvement for row in rows]))
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


def _games(rows: Sequence[Row]) -> Games | None:
    try:
        return atari_games([row.series for row in rows])
    except BadInput:  # a game without a human score: there is no median over games then
        return None


def _source(figure: Figure) -> str:
    """The figure as a data URL: SVG, with its letters drawn, for no font can be relied on."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "bsrs"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"
