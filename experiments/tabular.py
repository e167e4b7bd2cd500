"""The paper's tabular figure: steps to convergence against eta. And the same over discounts, slips and maps."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bsrs.figures.boards import board_of, draw_layer
from bsrs.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure, project_style, save
from bsrs.tabular import MDP, GridMap, grid_mdp, solve
from bsrs.tabular.grids import named_mdp
from bsrs.tabular.mdp import Floats
from bsrs.tabular.theory import count_steps, empirical_limit, optimal_chain, proven_range, random_inits, spectral_limit

INITS = {"smoke": 5, "laptop": 20, "paper": 20}
"""Random initialisations of the paper's figure, by scale."""
ADAPTIVE = ("aitken", "anderson", "spectral")
LOWEST = -0.5  # the least eta drawn
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, BLACK, GREY)
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), "-", "--", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True, eq=False)
class EtaCurve:
    """Steps to convergence against eta on one table."""

    varied: str
    """What distinguishes the table from the paper's: its discount, its slip or its map."""
    name: str
    gamma: float
    etas: Floats  # (E,)
    steps: Floats  # (E, inits), NaN where it did not converge

    @property
    def mean(self) -> Floats:
        return np.asarray(self.steps.mean(axis=1))

    @property
    def plain(self) -> float:
        """Mean steps at eta = 0."""
        return float(self.mean[np.argmin(np.abs(self.etas))])

    @property
    def best_eta(self) -> float:
        return float(self.etas[np.nanargmin(self.mean)])

    @property
    def saving(self) -> float:
        """Share of the steps at eta = 0 that the best constant eta saves."""
        return 1.0 - float(np.nanmin(self.mean)) / self.plain

    @property
    def times_the_bound(self) -> float:
        return self.best_eta / proven_range(self.gamma)[1]


def run(scale: str, out: Path) -> tuple[list[str], list[Path]]:
    """Solve everything, and write the figures and their numbers. Returns the findings and the files."""
    mdp, gamma, inits = grid_mdp("paper"), 0.8, INITS[scale]
    limits = {
        "proven": proven_range(gamma)[1],
        "empirical": empirical_limit(mdp, gamma),
        "spectral": spectral_limit(optimal_chain(mdp, gamma), gamma),
    }
    etas = np.append(np.linspace(LOWEST, 0.0, 16)[:-1], np.linspace(0.0, limits["empirical"], 34))
    paper = _curve("", "paper", mdp, gamma, etas, inits, patience=10)
    adaptive = {
        rule: float(
            np.mean([solve(mdp, gamma, eta=rule, init=each).applications for each in random_inits(mdp, range(inits))])
        )
        for rule in ADAPTIVE
    }
    others = robustness()
    with project_style():
        figures = {"tabular-eta": _draw_paper(paper, limits, adaptive), "tabular-robustness": _draw_robustness(others)}
        files = [path for name, figure in figures.items() for path in save(figure, out / name)]
    return _findings(paper, limits, adaptive, others), [*files, _write_csv(out / "tabular.csv", [paper, *others])]


def robustness() -> list[EtaCurve]:
    """Count steps on other tables than the paper's."""
    paper = GridMap.named("paper")
    maps = {
        "paper": grid_mdp(paper),
        "two rooms": grid_mdp("two-rooms"),
        "corridor": grid_mdp("corridor"),
        "open 10x10": grid_mdp("10x10"),
        "paper, goal ends": grid_mdp(paper, goal="terminate"),
        "paper, goal resets": grid_mdp(paper, goal="reset"),
        "FrozenLake": named_mdp("FrozenLake-v1"),
        "Garnet": MDP.garnet(50, 4, 5, seed=0),
    }
    etas = np.linspace(-0.3, 0.7, 51)
    return [
        *(_curve("discount", f"γ = {gamma:g}", maps["paper"], gamma, etas) for gamma in (0.5, 0.7, 0.8, 0.9, 0.99)),
        *(_curve("slip", f"slip {slip:g}", grid_mdp(paper, slip=slip), 0.8, etas) for slip in (0.0, 0.1, 0.2, 0.4)),
        *(_curve("map", name, mdp, 0.8, etas) for name, mdp in maps.items()),
    ]


def _curve(varied: str, name: str, mdp: MDP, gamma: float, etas: Floats, inits: int = 5, patience: int = 2) -> EtaCurve:
    """Count steps for each eta; give up a run `patience` times as long as iteration without shaping."""
    plain = solve(mdp, gamma, init=random_inits(mdp, range(1))[0]).applications
    counts, converged = count_steps(mdp, gamma, etas, seeds=range(inits), max_steps=patience * plain)
    return EtaCurve(varied, name, gamma, etas, np.where(converged, counts, np.nan))


def _findings(
    paper: EtaCurve, limits: Mapping[str, float], adaptive: Mapping[str, float], others: Sequence[EtaCurve]
) -> list[str]:
    """Sum up the figures in sentences with numbers."""
    gaining = [curve for curve in others if curve.saving > 0.01]
    etas, times = [curve.best_eta for curve in gaining], [curve.times_the_bound for curve in gaining]
    savings = [curve.saving for curve in others]
    best = min(adaptive, key=lambda rule: adaptive[rule])
    return [
        f"paper's grid: best constant eta = {paper.best_eta:.2f}, {paper.times_the_bound:.1f} times the proven bound "
        f"{limits['proven']:.2f}; {np.nanmin(paper.mean):.1f} steps instead of {paper.plain:.1f} "
        f"({-paper.saving:.0%}); {best} needs {adaptive[best]:.1f}",
        f"limits of eta there: empirical {limits['empirical']:.2f}, spectral {limits['spectral']:.2f}",
        f"is the relative location of the optimum robust? No: over {len(others)} discounts, slips and maps the best "
        f"constant eta is between {min(etas):.2f} and {max(etas):.2f}, which is {min(times):.1f} to {max(times):.0f} "
        f"times the proven bound, and saves {min(savings):.0%} to {max(savings):.0%}; "
        f"on {len(others) - len(gaining)} of them no constant eta saves more than 1%",
    ]


def _write_csv(path: Path, curves: Sequence[EtaCurve]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("varied", "name", "gamma", "eta", "steps_mean", "steps_std"))
        for curve in curves:
            for eta, steps in zip(curve.etas, curve.steps, strict=True):
                numbers = (f"{each:.8g}" for each in (curve.gamma, eta, steps.mean(), steps.std(ddof=1)))
                writer.writerow((curve.varied, curve.name, *numbers))
    return path


# --------------------------------------------------------------------------------------------------------------
# Figures.


def _draw_paper(curve: EtaCurve, limits: Mapping[str, float], adaptive: Mapping[str, float]) -> Figure:
    """Draw mean and standard deviation over initialisations, vertical `limits`, and horizontal lines for `adaptive`."""
    figure, ax = new_figure(6.4, 4.2)
    spread = curve.steps.std(axis=1, ddof=1)
    ax.fill_between(curve.etas, curve.mean - spread, curve.mean + spread, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(curve.etas, curve.mean, color=BLUE, marker="o", markersize=3, linewidth=1.4)
    top = 1.15 * float(curve.mean[0])
    ax.set(ylim=(0, top), xlim=(float(curve.etas[0]), 1.1 * max(limits.values())))
    for (name, eta), style in zip(limits.items(), ("--", "-.", ":"), strict=True):
        ax.axvline(eta, color=VERMILION, linestyle=style, linewidth=1.2)
        ax.text(eta, 1.01 * top, f"{name}\nlimit {eta:.2f}", ha="center", va="bottom", color=VERMILION, fontsize=8)
    for (name, level), style in zip(adaptive.items(), ("-", "--", "-."), strict=True):
        ax.axhline(level, color=GREEN, linestyle=style, linewidth=1.1, label=f"η by {name} ({level:.0f})")
    ax.legend(loc="lower right", bbox_to_anchor=(0.93, 0.25), ncols=1, labelspacing=0.2)
    ax.set(xlabel="shape-scale η", ylabel="steps to a residual of 10⁻⁶")
    solution, inset = solve(grid_mdp("paper"), 0.8), ax.inset_axes((0.665, 0.44, 0.27, 0.5))
    draw_layer(inset, board_of("paper"), "", solution, (0.0, float(solution.value.max())))
    return figure


def _draw_robustness(curves: Sequence[EtaCurve]) -> Figure:
    figure, axes = new_figure(9.6, 7.2, 2, 2)
    for ax, varied in zip(axes.flat, ("discount", "slip", "map"), strict=False):
        _relative_steps(ax, [curve for curve in curves if curve.varied == varied], title=f"different {varied}s")
    _optima(axes.flat[-1], curves, claimed=3)
    return figure


def _relative_steps(ax: Axes, curves: Sequence[EtaCurve], *, title: str) -> None:
    """Draw mean steps as a share of those at eta = 0, with a marker at the best eta; NaN: no convergence."""
    for curve, colour, style, marker in zip(curves, COLOURS, STYLES, MARKERS, strict=False):
        share = curve.mean / curve.plain
        best = [int(np.nanargmin(share))]
        (line,) = ax.plot(curve.etas, share, color=colour, linestyle=style, linewidth=1.3, label=curve.name)
        line.set(marker=marker, markersize=6, markevery=best)
    ax.axhline(1.0, color=GREY, linewidth=0.8)
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.set(ylim=(0.6, 1.5), xlim=(curves[0].etas[0], curves[0].etas[-1] + 0.35), title=title)
    ax.set(xlabel="shape-scale η", ylabel="steps / steps at η = 0")
    ax.legend(loc="lower right", handlelength=2.8, labelspacing=0.3)


def _optima(ax: Axes, curves: Sequence[EtaCurve], *, claimed: float) -> None:
    """Draw the best eta of each table, with its multiple of the proven bound; and where the paper puts it."""
    rows, etas = np.arange(len(curves))[::-1], [curve.best_eta for curve in curves]
    paper = [claimed * proven_range(curve.gamma)[1] for curve in curves]
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.hlines(rows, 0, etas, color=GREY, linewidth=0.8)
    ax.plot(etas, rows, color=BLUE, marker="o", linestyle="none", label="best η")
    label = f"{claimed:g} × the proven bound, as in the paper"
    ax.plot(paper, rows, color=VERMILION, marker="|", markersize=9, linestyle="none", label=label)
    ax.set_yticks(rows, labels=[curve.name for curve in curves], fontsize=7)
    ax.set(xlabel="shape-scale η", title="where the best constant η is", ylim=(-2.2, len(rows) - 0.4), xlim=(-0.1, 1.6))
    for row, curve in zip(rows, curves, strict=True):
        text = f"{curve.times_the_bound:.1f} × bound, {-curve.saving:.0%}".replace("-", "\N{MINUS SIGN}")
        ax.annotate(text, (1.58, row), ha="right", va="center", fontsize=7)
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower right", ncols=2, columnspacing=1.0)
