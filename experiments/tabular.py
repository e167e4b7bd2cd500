"""The paper's tabular figure, the same over discounts, slips and maps, and the model-free comparison.

Numbers first (`study`), then ink and files: everything that is drawn stands in a CSV file too.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.boards import board_of, draw_layer
from bsrs.figures.curves import Curve, learning_curves
from bsrs.figures.style import BLACK, BLUE, GREEN, ORANGE, new_figure, project_style, save
from bsrs.stats import Interval
from bsrs.tabular import MDP, GridMap, grid_mdp, solve
from bsrs.tabular.grids import named_mdp
from bsrs.tabular.mdp import Floats
from bsrs.tabular.theory import count_steps, empirical_limit, optimal_chain, proven_range, random_inits, spectral_limit
from experiments.relaxed_learning import ENVS, LearningCurve, compare_learning
from experiments.tabular_figures import optima, relative_steps, steps_against_eta

ADAPTIVE = ("aitken", "anderson", "spectral")


@dataclass(frozen=True)
class Scale:
    """How much is computed."""

    inits: int
    """Random initialisations of the paper's figure."""
    steps: int
    """Steps of learning from samples."""


SCALES = {"smoke": Scale(5, 1_000), "laptop": Scale(20, 6_000), "paper": Scale(20, 6_000)}
RULE_COLOURS = (BLACK, BLUE, GREEN, ORANGE)
LOWEST = -0.5  # the least eta drawn


@dataclass(frozen=True, eq=False)
class EtaCurve:
    """Steps to convergence against eta on one table."""

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
        """The share of plain iteration's steps that the best constant eta saves."""
        return 1.0 - float(np.nanmin(self.mean)) / self.plain

    @property
    def times_the_bound(self) -> float:
        return self.best_eta / proven_range(self.gamma)[1]


@dataclass(frozen=True, eq=False)
class Numbers:
    """All numbers of the tabular experiments."""

    paper: EtaCurve
    limits: dict[str, float]
    adaptive: dict[str, float]  # mean applications over the same initialisations
    robustness: dict[str, list[EtaCurve]]  # what varies -> a curve for each value
    learning: list[LearningCurve]


def study(scale: Scale) -> Numbers:
    """Solve everything."""
    mdp, gamma = grid_mdp("paper"), 0.8
    limits = {
        "proven": proven_range(gamma)[1],
        "empirical": empirical_limit(mdp, gamma),
        "spectral": spectral_limit(optimal_chain(mdp, gamma), gamma),
    }
    etas = np.append(np.linspace(LOWEST, 0.0, 16)[:-1], np.linspace(0.0, limits["empirical"], 34))
    paper = _curve("paper", mdp, gamma, etas, scale.inits, patience=10)
    init = random_inits(mdp, range(scale.inits))
    counts = {
        rule: float(np.mean([solve(mdp, gamma, eta=rule, init=each).applications for each in init]))
        for rule in ADAPTIVE
    }
    return Numbers(paper, limits, counts, _robustness(), compare_learning(scale.steps))


def _robustness() -> dict[str, list[EtaCurve]]:
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
    return {
        "discount": [_curve(f"γ = {gamma:g}", maps["paper"], gamma, etas) for gamma in (0.5, 0.7, 0.8, 0.9, 0.99)],
        "slip": [_curve(f"slip {slip:g}", grid_mdp(paper, slip=slip), 0.8, etas) for slip in (0.0, 0.1, 0.2, 0.4)],
        "map": [_curve(name, mdp, 0.8, etas) for name, mdp in maps.items()],
    }


def _curve(name: str, mdp: MDP, gamma: float, etas: Floats, inits: int = 5, patience: int = 2) -> EtaCurve:
    """Count steps for each eta; give up a run `patience` times as long as plain iteration."""
    plain = solve(mdp, gamma, init=random_inits(mdp, range(1))[0]).applications
    counts, converged = count_steps(mdp, gamma, etas, seeds=range(inits), max_steps=patience * plain)
    steps = np.where(converged, counts, np.nan)
    return EtaCurve(name, gamma, etas, steps)


# --------------------------------------------------------------------------------------------------------------


def write(numbers: Numbers, out: Path) -> list[Path]:
    """Write figures as PDF and PNG, numbers as CSV."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {
        "tabular-eta": _paper_rows(numbers),
        "tabular-robustness": _robustness_rows(numbers),
        "tabular-learning": _learning_rows(numbers.learning),
    }
    files = [_write_csv(out / f"{name}.csv", rows) for name, rows in tables.items()]
    with project_style():
        figures = {
            "tabular-eta": _draw_paper(numbers),
            "tabular-robustness": _draw_robustness(numbers),
            "tabular-learning": _draw_learning(numbers),
        }
        for name, figure in figures.items():
            files += save(figure, out / name)
    return files


def _draw_paper(numbers: Numbers) -> Figure:
    figure, ax = new_figure(6.4, 4.2)
    curve = numbers.paper
    steps_against_eta(ax, curve.etas, curve.steps, limits=numbers.limits, levels=numbers.adaptive)
    solution, inset = solve(grid_mdp("paper"), 0.8), ax.inset_axes((0.665, 0.44, 0.27, 0.5))
    draw_layer(inset, board_of("paper"), "", solution, (0.0, float(solution.value.max())))
    return figure


def _draw_robustness(numbers: Numbers) -> Figure:
    figure, axes = new_figure(9.6, 7.2, 2, 2)
    for ax, (varied, curves) in zip(axes.flat, numbers.robustness.items(), strict=False):
        relative_steps(ax, curves[0].etas, {c.name: c.mean for c in curves}, title=f"different {varied}s")
    curves = [curve for group in numbers.robustness.values() for curve in group]
    etas, savings = np.array([c.best_eta for c in curves]), np.array([c.saving for c in curves])
    bounds = np.array([proven_range(c.gamma)[1] for c in curves])
    optima(axes.flat[-1], [c.name for c in curves], etas, bounds, savings, claimed=3)
    return figure


def _draw_learning(numbers: Numbers) -> Figure:
    figure, axes = new_figure(9.6, 3.4, 1, 2)
    for ax, env in zip(axes, ENVS, strict=True):
        curves = [
            Curve(curve.rule, colour, curve.steps, curve.error, line="--" if colour == ORANGE else "-")
            for curve, colour in zip([c for c in numbers.learning if c.env == env], RULE_COLOURS, strict=True)
        ]
        learning_curves(ax, curves, score="distance from V* (sup-norm)", legend="").set_title(env)
    axes[0].get_legend().remove()
    return figure


def findings(numbers: Numbers) -> list[str]:
    """Sum up the figures in sentences with numbers."""
    paper = numbers.paper
    curves = [curve for group in numbers.robustness.values() for curve in group]
    gaining = [curve for curve in curves if curve.saving > 0.01]
    etas, times = [c.best_eta for c in gaining], [c.times_the_bound for c in gaining]
    savings = [100 * c.saving for c in curves]
    best = min(numbers.adaptive, key=lambda rule: numbers.adaptive[rule])
    return [
        f"paper's grid: best constant eta = {paper.best_eta:.2f}, {paper.times_the_bound:.1f} times the proven bound "
        f"{numbers.limits['proven']:.2f}; {np.nanmin(paper.mean):.1f} steps instead of {paper.plain:.1f} "
        f"({-100 * paper.saving:.0f} %); {best} needs {numbers.adaptive[best]:.1f}",
        f"limits of eta there: empirical {numbers.limits['empirical']:.2f}, spectral {numbers.limits['spectral']:.2f}",
        f"is the relative location of the optimum robust? No: over {len(curves)} discounts, slips and maps the best "
        f"constant eta lies between {min(etas):.2f} and {max(etas):.2f}, which is {min(times):.1f} to {max(times):.0f} "
        f"times the proven bound, and saves {min(savings):.0f} to {max(savings):.0f} %; "
        f"on {len(curves) - len(gaining)} of them no constant eta saves more than 1%",
        *(
            f"learning from samples, {curve.env}, {curve.rule}: distance from V* {_last(curve.error)}"
            for curve in numbers.learning
        ),
    ]


def _last(error: Interval) -> str:
    return str(Interval(error.estimate[-1], error.low[-1], error.high[-1]))


def _paper_rows(numbers: Numbers) -> Iterable[dict[str, Any]]:
    for eta, steps in zip(numbers.paper.etas, numbers.paper.steps, strict=True):
        yield {"kind": "constant", "name": "", "eta": eta, "steps_mean": steps.mean(), "steps_std": steps.std(ddof=1)}
    for name, eta in numbers.limits.items():
        yield {"kind": "limit", "name": name, "eta": eta, "steps_mean": "", "steps_std": ""}
    for name, count in numbers.adaptive.items():
        yield {"kind": "adaptive", "name": name, "eta": "", "steps_mean": count, "steps_std": ""}


def _robustness_rows(numbers: Numbers) -> Iterable[dict[str, Any]]:
    for varied, curves in numbers.robustness.items():
        for curve in curves:
            for eta, mean in zip(curve.etas, curve.mean, strict=True):
                row = {"varied": varied, "name": curve.name, "gamma": curve.gamma, "eta": eta, "steps_mean": mean}
                best = {"best_eta": curve.best_eta, "times_the_bound": curve.times_the_bound, "saving": curve.saving}
                yield {**row, **best}


def _learning_rows(curves: Sequence[LearningCurve]) -> Iterable[dict[str, Any]]:
    for curve in curves:
        columns = (curve.steps, curve.error.estimate, curve.error.low, curve.error.high)
        for step, error, low, high in zip(*columns, strict=True):
            row = {"env": curve.env, "rule": curve.rule, "step": step, "error": error}
            yield {**row, "low": low, "high": high}


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    table = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()} for row in table)
    return path
