"""The figure of README and results: three tuned agents without shaping, at eta = 1 and with auto."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsrs.figures.style import eta_colours, new_figure
from bsrs.stats.records import Series
from experiments.claims import area, gain
from experiments.records import records, shown_eta

PANELS = {"TD3 on Pendulum": "zoo/pendulum-td3", "DQN on Acrobot": "zoo/acrobot", "DQN on CartPole": "zoo/cartpole"}
SHOWN = (0.0, 1.0, "auto")
CROPPED = {"zoo/pendulum-td3": 9_000}  # before, actions are random


def draw_readme() -> Figure:
    """Draw a panel for each agent: bold means over thin seeds."""
    figure, axes = new_figure(10.2, 3.1, 1, len(PANELS))
    for ax, (title, folder) in zip(axes, PANELS.items(), strict=True):
        series = [next(each for each in records(folder) if each.eta == eta) for eta in SHOWN]
        _panel(ax, series, CROPPED.get(folder, 0))
        ax.set_title(f"{title}\n", loc="left", fontweight="bold")
        ax.text(0, 1.03, what_it_shows(series), transform=ax.transAxes, fontsize=9)
    axes[0].set_ylabel("evaluation score")
    axes[0].legend(loc="lower right", frameon=False)
    return figure


def _panel(ax: Axes, series: Sequence[Series], first_step: int) -> None:
    colours = eta_colours([each.eta for each in series])
    for each in series:
        name = "without shaping" if each.eta == 0.0 else f"η = {shown_eta(each)}"
        shown = each.steps >= first_step
        steps, curves = each.steps[shown] / 1_000, each.curves[:, shown]
        ax.plot(steps, curves.T, color=colours[each.eta], alpha=0.13, linewidth=0.7)
        ax.plot(steps, curves.mean(axis=0), color=colours[each.eta], linewidth=2.4, label=name, zorder=3)
    ax.set_xlabel("env steps (thousands)")
    ax.grid(visible=False)


def what_it_shows(series: Sequence[Series]) -> str:
    """Write the subtitle: in how many seeds eta = 1 is ahead over training, and whether that is lost at the end."""
    plain, shaped = series[0], series[1]
    over, end = gain(shaped, plain, area), gain(shaped, plain, lambda each: each.final)
    assert over is not None
    assert end is not None
    if over.verdict == "holds":
        return f"η = 1 ahead over training in {over.ahead} of {over.n} seeds"
    lost = f", and ends lower in {end.n - end.ahead} of {end.n} seeds" if end.verdict == "does not hold" else ""
    return f"no gain{lost}" if np.isfinite(over.mean) else ""
