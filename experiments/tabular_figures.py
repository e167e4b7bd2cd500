"""Draw the tabular study: steps against eta, and the best eta of each table."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from bsrs.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from bsrs.tabular.mdp import Floats

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, BLACK, GREY)
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), "-", "--", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def steps_against_eta(
    ax: Axes, etas: Floats, steps: Floats, *, limits: Mapping[str, float], levels: Mapping[str, float]
) -> Axes:
    """Mean and standard deviation over initialisations, `steps` (E, inits); vertical `limits`, horizontal `levels`."""
    mean, spread = steps.mean(axis=1), steps.std(axis=1, ddof=1)
    ax.fill_between(etas, mean - spread, mean + spread, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(etas, mean, color=BLUE, marker="o", markersize=3, linewidth=1.4)
    top = 1.15 * float(mean[0])
    ax.set(ylim=(0, top), xlim=(float(etas[0]), 1.1 * max(limits.values())))
    for (name, eta), style in zip(limits.items(), ("--", "-.", ":"), strict=False):
        ax.axvline(eta, color=VERMILION, linestyle=style, linewidth=1.2)
        ax.text(eta, 1.01 * top, f"{name}\nlimit {eta:.2f}", ha="center", va="bottom", color=VERMILION, fontsize=8)
    for place, ((name, level), style) in enumerate(zip(levels.items(), ("-", "--", "-."), strict=False)):
        ax.axhline(
            level, color=GREEN, linestyle=style, linewidth=1.1, label=f"η by {name} ({level:.0f})", zorder=1 + place
        )
    ax.legend(loc="lower right", bbox_to_anchor=(0.93, 0.25), ncols=1, labelspacing=0.2)
    ax.set(xlabel="shape-scale η", ylabel="steps to a residual of 10⁻⁶")
    return ax


def relative_steps(ax: Axes, etas: Floats, steps: Mapping[str, Floats], *, title: str) -> Axes:
    """Mean steps of each table as a share of plain iteration's, with a marker at its best eta; NaN: no convergence."""
    for (label, mean), colour, style, marker in zip(steps.items(), COLOURS, STYLES, MARKERS, strict=False):
        share = mean / mean[np.argmin(np.abs(etas))]
        ax.plot(etas, share, color=colour, linestyle=style, linewidth=1.3)
        best = int(np.nanargmin(share))
        ax.plot(etas[best], share[best], color=colour, marker=marker, markersize=7, linestyle="none")
        # for the legend: the line with its marker
        ax.plot([], [], color=colour, linestyle=style, marker=marker, markersize=5, label=label)
    ax.axhline(1.0, color=GREY, linewidth=0.8)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.set(ylim=(0.6, 1.5), xlim=(etas[0], etas[-1] + 0.35), title=title)
    ax.set(xlabel="shape-scale η", ylabel="steps / steps at η = 0")
    ax.legend(loc="lower right", handlelength=2.8, labelspacing=0.3)
    return ax


def optima(ax: Axes, names: Sequence[str], etas: Floats, bounds: Floats, savings: Floats, *, claimed: float) -> Axes:
    """The best eta of each table, with its multiple of the proven bound and its saving; and where the paper puts it."""
    rows = np.arange(len(names))[::-1]
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.hlines(rows, 0, etas, color=GREY, linewidth=0.8)
    ax.plot(etas, rows, color=BLUE, marker="o", linestyle="none", label="best η")
    label = f"{claimed:g} × the proven bound, as in the paper"
    ax.plot(claimed * bounds, rows, color=VERMILION, marker="|", markersize=9, linestyle="none", label=label)
    ax.set_yticks(rows, labels=names, fontsize=7)
    ax.set(xlabel="shape-scale η", title="where the best constant η lies", ylim=(-2.2, len(names) - 0.4))
    ax.set_xlim(-0.1, 1.6)
    for row, eta, bound, saved in zip(rows, etas, bounds, savings, strict=True):
        text = f"{eta / bound:.1f} × bound, {round(-100 * saved)} %".replace("-", "\N{MINUS SIGN}")
        ax.annotate(text, (1.58, row), ha="right", va="center", fontsize=7)
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower right", ncols=2, columnspacing=1.0)
    return ax
