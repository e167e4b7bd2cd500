"""Learning curves, how much eta matters, performance profiles, and what went on inside runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from bsrs.figures.style import BLACK, GREY
from bsrs.stats import Interval
from bsrs.stats.aggregates import Array


@dataclass(frozen=True)
class Curve:
    """One line with its band."""

    label: str
    colour: str
    steps: Array  # (steps,)
    score: Interval  # (steps,)
    line: str = "-"
    """Its style, as Matplotlib writes it."""
    standard_error: Array | None = None  # (steps,)
    runs: Array | None = None  # (runs, steps)
    """Thin lines in place of the band, one for each run."""


def learning_curves(ax: Axes, curves: Sequence[Curve], *, score: str, legend: str | None = "η") -> Axes:
    """Score against env steps. A band without a width (a single run) is not drawn; one that is far wider than the
    curves rise, as of few runs, is cut, so that the curves have room. `legend` is its title; None draws none."""
    for curve in curves:
        estimate, low, high = (np.asarray(x) for x in (curve.score.estimate, curve.score.low, curve.score.high))
        baseline = curve.colour == BLACK and curve.line == "-"
        known = np.isfinite(low) & np.isfinite(high)
        if curve.runs is None:
            ax.fill_between(curve.steps, low, high, where=known.tolist(), color=curve.colour, alpha=0.13, linewidth=0)
        else:
            ax.plot(curve.steps, curve.runs.T, color=curve.colour, alpha=0.15, linewidth=0.7, zorder=1)
        if curve.standard_error is not None:
            inner = (estimate - curve.standard_error, estimate + curve.standard_error)
            ax.fill_between(curve.steps, *inner, color=curve.colour, alpha=0.22, linewidth=0)
        ax.plot(
            curve.steps,
            estimate,
            color=curve.colour,
            label=curve.label,
            linestyle=curve.line,
            linewidth=2.2 if baseline else 1.8,
            marker="o" if len(curve.steps) == 1 else None,
            zorder=3 if baseline else 2,
        )
    _leave_room(ax)
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("env steps")
    ax.set_ylabel(score)
    if len(curves) > 1 and legend is not None:
        ax.legend(title=legend, loc="upper left", bbox_to_anchor=(1, 1), handlelength=1.4, borderaxespad=0.2)
    return ax


def _leave_room(ax: Axes) -> None:
    """For the curves of all panels that share the axis, and for their bands as far as there is room."""
    panels = ax.get_shared_y_axes().get_siblings(ax)
    heights = [np.asarray(line.get_ydata(), dtype=np.float64) for panel in panels for line in panel.lines]
    lowest, highest = min(map(np.min, heights), default=0.0), max(map(np.max, heights), default=0.0)
    if lowest < highest:
        rise = highest - lowest
        below, above = (
            ends(getattr(panel.dataLim, end) for panel in panels) for ends, end in ((min, "y0"), (max, "y1"))
        )
        ax.set_ylim(max(lowest - 0.3 * rise, below - 0.05 * rise), min(highest + 0.3 * rise, above + 0.05 * rise))


def sensitivity(
    ax: Axes, labels: Sequence[str], colours: Sequence[str], score: Interval, *, name: str, baseline: int | None
) -> Axes:
    """Draw one number for each eta, evenly spaced, with its interval, and a line at the level of the baseline's."""
    at = np.arange(len(labels))
    estimate = np.asarray(score.estimate)
    ax.plot(at, estimate, color=GREY, linewidth=0.8, zorder=1)
    if baseline is not None:
        ax.axhline(estimate[baseline], color=BLACK, linewidth=0.8, linestyle=":", zorder=1)
    below, above = estimate - score.low, score.high - estimate
    for i, colour in enumerate(colours):
        known = np.isfinite(below[i]) and np.isfinite(above[i])
        error = [[below[i]], [above[i]]] if known else None
        ax.errorbar(at[i], estimate[i], yerr=error, fmt="o", color=colour, markersize=4.5, elinewidth=1.3, capsize=2)
    ax.set_xticks(at, labels)
    ax.set_xlabel("η")
    ax.set_ylabel(name)
    ax.margins(x=0.08)
    return ax
