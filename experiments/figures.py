"""The figures that several experiments share: learning curves by task and variant, and README's."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import sem

from bsrs.figures.curves import Curve, learning_curves, sensitivity
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.report.plots import short_label
from bsrs.stats import Interval, bootstrap, mean
from bsrs.stats.records import Series
from bsrs.stats.summary import SEED, baseline_of, gain
from experiments.claims import area, constant_etas, final
from experiments.pooling import by_task
from experiments.records import by_eta, records, shown_eta

BAND_DRAWS = 400
VARIANTS = {
    "potential_network=online": "V from the online network",
    "potential_network=target": "V from the target network",
    "potential_network=split": "V(s) from the online, V(s′) from the target network",
    "potential=policy": "V(s) (the paper's text)",
    "potential=replay": "Q at the replayed action (the authors' code)",
    "control=none": "shaping",
    "control=rescaled": "rescaling only",
}  # what titles call the settings


def curves(series: Sequence[Series], *, standard_error: bool = False, runs: bool = False) -> list[Curve]:
    """Average each series of a panel over its runs: score against steps, with a band or with every run."""
    colours = eta_colours(list(dict.fromkeys(each.eta for each in series)))
    label = (lambda each: eta_label(each.eta)) if len(colours) == len(series) else short_label
    reached = [scores for each in series for scores in (each.curves.min(), each.curves.max())]
    return [
        Curve(
            label(each),
            colours[each.eta],
            each.steps,
            bootstrap(mean, each.curves.T[..., None], seed=SEED, draws=BAND_DRAWS).within(min(reached), max(reached)),
            standard_error=sem(each.curves, axis=0) if standard_error and len(each.seeds) > 1 else None,
            runs=each.curves if runs else None,
        )
        for each in series
    ]


def stacked(intervals: Sequence[Interval]) -> Interval:
    """Stack several intervals into one."""
    return Interval(*(np.array([getattr(each, end) for each in intervals]) for end in ("estimate", "low", "high")))


def draw_pendulum(series: Sequence[Series]) -> dict[str, Figure]:
    """Draw learning curves for eta >= 0, with the paper's band (the standard error) inside the interval; the inset is
    the mean score over training for all etas."""
    etas = constant_etas(series)
    figure, (left, right) = new_figure(8.2, 3.2, 1, 2, width_ratios=(5, 4))
    learning_curves(left, curves([each for each in etas if float(each.eta) >= 0], standard_error=True), score="score")
    colours = eta_colours([each.eta for each in etas])
    sensitivity(
        right,
        [eta_label(each.eta) for each in etas],
        [colours[each.eta] for each in etas],
        stacked([bootstrap(mean, each.area[:, None], seed=SEED) for each in etas]),
        name="mean score over training",
        baseline=next((i for i, each in enumerate(etas) if each.eta == 0.0), None),
    )
    return {"pendulum": figure}


def draw_variants(name: str, series: Sequence[Series]) -> dict[str, Figure]:
    """Draw a row for each task with a panel for each variant, eta = 0 in all; or a panel for each task."""
    rows = [_panels(own) for own in by_task(series).values()]
    columns = max(map(len, rows))
    share = "row" if columns > 1 else False
    if columns == 1:
        columns, all_panels = min(len(rows), 2), [panel for (panel,) in rows]
        rows = [all_panels[i : i + columns] for i in range(0, len(all_panels), columns)]
    figure, axes = new_figure(4.1 * columns, 2.9 * len(rows), len(rows), columns, squeeze=False, sharey=share)
    for row, own_axes in zip(rows, axes, strict=True):
        for ax in own_axes[len(row) :]:
            ax.set_visible(False)
        for ax, (title, shown) in zip(own_axes, row, strict=False):
            learning_curves(ax, curves(shown, runs=True), score="score", legend=None)
            ax.set_title(title, loc="left")
    lines = {str(line.get_label()): line for ax in figure.axes for line in ax.lines}
    named = {label: line for label, line in lines.items() if not label.startswith("_")}
    figure.legend(list(named.values()), list(named), title="η", loc="outside right upper", handlelength=1.4)
    return {name: figure}


def _panels(series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    """List the panels of one task: the title and what it shows."""
    task = f"{series[0].config.algorithm.upper()} on {series[0].env}"
    variants = list(dict.fromkeys(each.variant for each in series if each.eta != 0.0))
    if len(variants) < 2:
        return [(task, list(series))]
    found = []
    for variant in variants:
        shaped = [each for each in series if each.eta != 0.0 and each.variant == variant]
        baseline = baseline_of(shaped[0], series)
        found.append((f"{task}\n{VARIANTS.get(variant, variant)}", [*([baseline] if baseline else []), *shaped]))
    return found


# --------------------------------------------------------------------------------------------------------------
# The figure of README and results: three tuned agents without shaping, at eta = 1 and with auto.

README_PANELS = {
    "TD3 on Pendulum": ("zoo/pendulum-td3", 9_000),  # before, actions are random
    "DQN on Acrobot": ("zoo/acrobot", 0),
    "DQN on CartPole": ("zoo/cartpole", 0),
}
"""Title -> the folder, and the first step that is drawn."""


def draw_readme() -> Figure:
    """Draw a panel for each agent: bold means over thin seeds."""
    figure, axes = new_figure(10.2, 3.1, 1, len(README_PANELS))
    for ax, (title, (folder, first_step)) in zip(axes, README_PANELS.items(), strict=True):
        own = by_eta(records(folder))
        plain, shaped, auto = (own[eta] for eta in (0.0, 1.0, "auto"))
        _readme_panel(ax, [plain, shaped, auto], first_step)
        ax.set_title(f"{title}\n", loc="left", fontweight="bold")
        ax.text(0, 1.03, _what_it_shows(plain, shaped), transform=ax.transAxes, fontsize=9)
    axes[0].set_ylabel("evaluation score")
    axes[0].legend(loc="lower right", frameon=False)
    return figure


def _readme_panel(ax: Axes, series: Sequence[Series], first_step: int) -> None:
    colours = eta_colours([each.eta for each in series])
    for each in series:
        name = "without shaping" if each.eta == 0.0 else f"η = {shown_eta(each)}"
        shown = each.steps >= first_step
        steps, scores = each.steps[shown] / 1_000, each.curves[:, shown]
        ax.plot(steps, scores.T, color=colours[each.eta], alpha=0.13, linewidth=0.7)
        ax.plot(steps, scores.mean(axis=0), color=colours[each.eta], linewidth=2.4, label=name, zorder=3)
    ax.set_xlabel("env steps (thousands)")
    ax.grid(visible=False)


def _what_it_shows(plain: Series, shaped: Series) -> str:
    """Write the subtitle: in how many seeds eta = 1 is ahead over training, and whether that is lost at the end."""
    over, end = gain(shaped, plain, area), gain(shaped, plain, final)
    assert over is not None
    assert end is not None
    if over.verdict == "holds":
        return f"η = 1 ahead over training in {over.ahead} of {over.n} seeds"
    return "no gain" + (
        f", and ends lower in {end.n - end.ahead} of {end.n} seeds" if end.verdict == "does not hold" else ""
    )
