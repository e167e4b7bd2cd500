"""Bars and dots side by side: relative advantage by task, and differences by setting."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from bsrs.figures.style import BLACK, BLUE, GREY, VERMILION
from bsrs.stats import Comparison, Interval
from bsrs.stats.aggregates import Array

UPRIGHT = 6  # as many names have room beside each other
LINEAR_TO, LARGEST = 1.0, 10.0


def relative_advantages(
    ax: Axes, names: Sequence[str], advantage: Interval, *, same_seeds: Array | None = None, mark: float = 0.1
) -> Axes:
    """Sorted bars, one for each task, in percent; logarithmic beyond 100%. A dashed line at `mark`, and a ring at what
    eta chosen and judged on the same seeds would show."""
    order = np.argsort(-np.asarray(advantage.estimate), kind="stable")
    estimate, low, high = (
        np.asarray(x, dtype=float)[order] for x in (advantage.estimate, advantage.low, advantage.high)
    )
    shown, ends = np.clip(estimate, -LARGEST, LARGEST), np.clip([low, high], -LARGEST, LARGEST)
    at = np.arange(len(order))
    ax.bar(at, shown, color=np.where(shown >= 0, BLUE, VERMILION), width=0.75, zorder=2)
    known = np.isfinite([low, high, estimate]).all(axis=0)
    ax.vlines(at[known], *ends[:, known], color="#555555", linewidth=0.8, zorder=3)
    if same_seeds is not None:
        rings = np.clip(same_seeds[order], -LARGEST, LARGEST)
        label = "η chosen on the same seeds"
        ax.plot(at, rings, "o", markerfacecolor="none", color=BLACK, markersize=4, label=label, zorder=4)
        ax.legend(loc="upper right")
    for x in np.flatnonzero(np.abs(estimate) > LARGEST):
        beyond = f"{estimate[x]:+.0%}" if np.isfinite(estimate[x]) else "∞"
        ax.annotate(beyond, (x, shown[x]), (0, 2), textcoords="offset points", ha="center", fontsize=7, rotation=90)
    ax.axhline(0, color=BLACK, linewidth=0.8)
    ax.axhline(mark, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    ax.set_yscale("symlog", linthresh=LINEAR_TO, linscale=1.0)
    _percent_ticks(
        ax,
        float(min(shown.min(), ends[0][known].min(initial=0))),
        float(max(shown.max(), ends[1][known].max(initial=mark))),
    )
    ax.set_xticks(at, [names[i] for i in order], rotation=90 if len(order) > UPRIGHT else 0)
    ax.set_xlim(-0.8, len(order) - 0.2)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("relative advantage\nover η = 0")
    return ax


Difference = tuple[str, Comparison | None, str]  # name, difference, colour


def differences(ax: Axes, rows: Sequence[Difference]) -> Axes:
    """Each row's mean difference and its interval, from the top: (name, difference, colour); none leaves a gap."""
    for y, (_, effect, colour) in enumerate(reversed(rows)):
        if effect is not None:
            ends = np.array([effect.low, effect.high])
            if np.isfinite(ends).all():
                ax.plot(ends, [y, y], color=colour, linewidth=4, alpha=0.35, solid_capstyle="butt")
            ax.plot(effect.mean, y, marker="o", markersize=4, color=colour)
    ax.axvline(0, color=BLACK, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(rows)), [name for name, _, _ in reversed(rows)])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.grid(axis="y", visible=False)
    return ax


def _percent_ticks(ax: Axes, low: float, high: float) -> None:
    bottom, top = min(low, 0) * 1.1 - 0.02, max(high * 1.4, 0.2)
    steps = (0.1, 0.2, 0.3, 0.4) if max(-bottom, top) < 0.5 else (0.5, 1, 2, 5, 10)
    ax.set_yticks([t for t in (*(-s for s in reversed(steps)), 0, *steps) if bottom <= t <= top])
    ax.set_ylim(bottom, top)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+.0%}" if value else "0"))
    ax.minorticks_off()
