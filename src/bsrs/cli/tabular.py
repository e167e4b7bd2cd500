"""`bsrs tabular ...`: parsing and printing only."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from bsrs.cli.progress import watch_residual
from bsrs.config.tabular import SolveTable, SweepTable, Table, TableTheory
from bsrs.errors import BadInput
from bsrs.tabular import theory as tabular_theory
from bsrs.tabular.grids import GridMap
from bsrs.tabular.mdp import MDP
from bsrs.tabular.solve import Solution
from bsrs.tabular.solve import solve as solve_table
from bsrs.tabular.sources import named_mdp

# Applications after which `--plot` shows the values "before": early enough for value to be on its way still.
BEFORE = 5


def solve(config: SolveTable) -> None:
    """Solve for each eta and print how it went, the value and the policy."""
    mdp = _mdp(config)
    rows, solution, eta = [], None, cast(float | str, 0.0)
    if config.plot:
        from bsrs.figures.boards import board_of

        board_of(config.map)  # says at once if there is none
    for text in config.eta or ("0",):
        eta = _number(text)
        with watch_residual(config.tol, f"{config.map}, eta {text}") as watch:
            solution = solve_table(
                mdp,
                config.gamma,
                eta=eta,
                method=config.method or ("iterate" if config.eta else "auto"),
                tol=config.tol,
                max_steps=config.max_steps,
                threads=config.threads or None,
                watch=watch,
            )
        rows.append(_solution_row(eta, solution, mdp))
    assert solution is not None
    if config.plot:
        _plot_solution(config, mdp, eta, solution)
    if config.json:
        extra = {"value": solution.optimal_value.tolist(), "policy": solution.policy.tolist()}
        _print_json({"map": config.map, "gamma": config.gamma, "rows": rows, **extra})
        return
    _print_table(f"{_title(config)}, residual below {config.tol:g}", rows)
    if mdp.n_states <= 400 and _is_map(config.map):
        print(GridMap.named(config.map).policy_text(solution.policy))


def _plot_solution(config: SolveTable, mdp: MDP, eta: float | str, after: Solution) -> None:
    from bsrs.figures.boards import before_and_after, board_of, save_as
    from bsrs.figures.style import project_style

    before = solve_table(mdp, config.gamma, eta=eta, tol=config.tol, max_steps=BEFORE)
    title = f"{config.map}, γ = {config.gamma:g}, " + (f"η = {eta:g}" if isinstance(eta, float) else f"η by {eta}")
    with project_style():
        path = save_as(before_and_after(board_of(config.map), before, after, title=title), config.plot)
    print(f"wrote {path}", file=sys.stderr)


def sweep(config: SweepTable) -> None:
    """Mean and standard deviation of the number of operator applications, for each eta over all initialisations."""
    if config.seeds < 1 or not config.eta:
        raise BadInput("a sweep needs at least one eta and one seed")
    mdp = _mdp(config)
    steps, converged = tabular_theory.count_steps(
        mdp, config.gamma, config.eta, seeds=range(config.seeds), tol=config.tol, max_steps=config.max_steps
    )
    rows = [_sweep_row(*each) for each in zip(config.eta, steps, converged, strict=True)]
    if config.json:
        _print_json({"rows": rows})
        return
    best = min((row for row in rows if row["converged"]), key=lambda row: row["steps_mean"], default=None)
    _print_table(f"{_title(config)}, steps over {config.seeds} initialisations", rows)
    if best is not None:
        print(f"fewest steps at eta = {best['eta']:g}: {best['steps_mean']:.1f}")


def theory(config: TableTheory) -> None:
    """The proven range, the spectral and the empirical limit, the best constant eta, and a verdict on given etas."""
    mdp = _mdp(config)
    chain = tabular_theory.optimal_chain(mdp, config.gamma)
    low, high = tabular_theory.proven_range(config.gamma)
    limit = tabular_theory.spectral_limit(chain, config.gamma)
    starts: dict[str, Any] = {"seeds": range(config.seeds), "tol": config.tol}
    empirical = tabular_theory.empirical_limit(mdp, config.gamma, **starts)
    best = tabular_theory.fastest_eta(mdp, config.gamma, limit=empirical, **starts)
    facts: dict[str, Any] = {
        "proven_low": low,
        "proven_high": high,
        "spectral_limit": limit,
        "empirical_limit": empirical,
        "best_eta": best.eta,
        "best_steps": best.steps,
        "plain_steps": best.plain_steps,
    }
    if config.plot:
        limits = {"(proven limit)": high, "(empirical limit)": empirical, "(spectral limit)": limit}
        _plot_theory(config, tabular_theory.spectrum(chain), limits)
    rows = [
        {
            "eta": eta,
            "contraction_factor": tabular_theory.contraction_factor(eta, config.gamma),
            "proven": low < eta < high,
            "stable_near_optimum": -1.0 < eta < limit,
            "converges_in_practice": -1.0 < eta <= empirical,
        }
        for eta in config.eta
    ]
    if config.json:
        _print_json({"map": config.map, "gamma": config.gamma, **facts, "rows": rows})
        return
    meanings = {
        "proven range": f"({low:g}, {high:.4f})",
        "spectral limit (near the optimum)": f"{limit:.4f}",
        "empirical limit (random starts)": f"{empirical:.4f}",
        "best constant eta (random starts)": f"{best.eta:.4f}: {best.steps:.1f} steps, plain {best.plain_steps:.1f}",
    }
    _print_table(_title(config), [{"what": what, "eta": value} for what, value in meanings.items()])
    if rows:
        _print_table("the etas asked for", rows)


def _plot_theory(config: TableTheory, eigenvalues: np.ndarray, limits: dict[str, float]) -> None:
    from bsrs.figures.boards import save_as, stability
    from bsrs.figures.style import project_style

    etas = [("", eta) for eta in config.eta] or list(limits.items())
    with project_style():
        print(f"wrote {save_as(stability(eigenvalues, config.gamma, etas), config.plot)}", file=sys.stderr)


def _mdp(config: Table) -> MDP:
    return named_mdp(config.map, slip=config.slip, goal=config.goal)


def _is_map(name: str) -> bool:
    return not name.startswith("garnet:") and "-v" not in name


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _solution_row(eta: float | str, solution: Solution, mdp: MDP) -> dict[str, Any]:
    return {
        "eta": eta,
        "method": solution.method,
        "outcome": solution.outcome,
        "applications": solution.applications,
        "residual": float(solution.residuals[-1]),
        "start_value": float(mdp.start_distribution() @ solution.optimal_value),
    }


def _sweep_row(eta: float, steps: np.ndarray, converged: np.ndarray) -> dict[str, Any]:
    return {
        "eta": float(eta),
        "steps_mean": float(steps.mean()),
        "steps_std": float(steps.std(ddof=1)) if len(steps) > 1 else 0.0,
        "converged": bool(converged.all()),
    }


def _title(config: Table) -> str:
    maps = f", slip {config.slip:g}, goal {config.goal}s" if _is_map(config.map) else ""
    return f"{config.map}, gamma {config.gamma:g}{maps}"


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))


def _print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*_cells(row.values()))
    Console().print(table)


def _cells(values: Iterable[Any]) -> list[str]:
    return [
        f"{v:.4g}" if isinstance(v, float) else ("yes" if v else "no") if isinstance(v, bool) else str(v)
        for v in values
    ]
