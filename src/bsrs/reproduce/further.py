"""The figures that every experiment has besides the paper's: who beats whom, profiles, and what went on inside."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from bsrs.errors import BadInput
from bsrs.figures.diagnostics import QUANTITIES, Trace, diagnostics
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.reproduce.pictures import games_figure, improvement_figure
from bsrs.stats.records import RunRecord, Series
from bsrs.stats.summary import atari_games, summary


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
