"""`bsrs tabular ...` and `bsrs lab`: parsing and printing only."""

import sys
import webbrowser
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bsrs.cli.show import print_json, print_table, watch_residual
from bsrs.config.tabular import SolveTable, SweepTable, TableProblem, TableTheory
from bsrs.errors import BadInput
from bsrs.tabular import theory as tabular_theory
from bsrs.tabular.grids import GridMap, is_map, named_mdp
from bsrs.tabular.mdp import MDP
from bsrs.tabular.solve import Solution
from bsrs.tabular.solve import solve as solve_table

# Applications after which `--plot` shows the values "before": early enough for value to be on its way still.
BEFORE = 5
# The rule that eta = auto means on a table: the best of those that never lose to a constant.
AUTO = "anderson"
PAGE = Path(str(files("bsrs"))) / "data" / "lab" / "lab.html"


def lab(map: str = "", path: bool = False) -> None:
    """Draw a maze, move eta and watch three learners race, in the browser.

    Args:
        map: Start with this map: a name, a size, a text file or rows of letters. By default it is the paper's.
        path: Print the path of the page and open nothing.
    """
    address = PAGE.as_uri()
    if map:
        address += "#" + urlencode({"map": ".".join("".join(row) for row in GridMap.named(map).cells)})
    if path:
        print(PAGE)
    elif webbrowser.open(address):
        print(f"opened {address}")
    else:
        print(f"no browser found; open {address}")


def solve(config: SolveTable) -> None:
    """Solve for each eta and print how it went, the value and the policy."""
    if config.plot and config.mdp:
        raise BadInput(f"--plot draws maps, FrozenLake, CliffWalking and Taxi; {config.mdp} has no board")
    mdp = named_mdp(config.table, slip=config.slip, goal=config.goal)
    if config.plot:
        from bsrs.figures.boards import board_of

        board_of(config.table)  # says at once if there is none
    solutions = {eta: _solution(config, mdp, eta) for eta in config.eta or (0.0,)}
    eta, last = list(solutions.items())[-1]
    if config.plot:
        _plot_solution(config, mdp, _rule(eta), last)
    rows = [
        {
            "eta": eta,
            "method": solution.method,
            "outcome": solution.outcome,
            "applications": solution.applications,
            "residual": float(solution.residuals[-1]),
            "start_value": float(mdp.start_distribution() @ solution.optimal_value),
        }
        for eta, solution in solutions.items()
    ]
    if config.json:
        extra = {"value": last.optimal_value.tolist(), "policy": last.policy.tolist()}
        print_json({"map": config.table, "gamma": config.gamma, "rows": rows, **extra})
        return
    print_table(f"{_title(config)}, residual below {config.tol:g}", rows)
    if mdp.n_states <= 400 and is_map(config.table):
        _print_policies(GridMap.named(config.table), solutions)


def _solution(config: SolveTable, mdp: MDP, eta: float | str) -> Solution:
    with watch_residual(config.tol, f"{config.table}, eta {eta}") as watch:
        return solve_table(
            mdp,
            config.gamma,
            eta=_rule(eta),
            method=config.method or ("iterate" if config.eta else "auto"),
            tol=config.tol,
            max_steps=config.max_steps,
            threads=config.threads or None,
            watch=watch,
        )


def _rule(eta: float | str) -> float | str:
    return AUTO if eta == "auto" else eta


def _print_policies(grid: GridMap, solutions: dict[float | str, Solution]) -> None:
    """Each policy once, under the etas that led to it."""
    texts: dict[str, list[str]] = {}
    for eta, solution in solutions.items():
        outcome = "" if solution.outcome == "converged" else f" ({solution.outcome})"
        texts.setdefault(grid.policy_text(solution.policy), []).append(
            f"{eta:g}{outcome}" if isinstance(eta, float) else f"{eta}{outcome}"
        )
    for text, etas in texts.items():
        print(f"policy at eta {', '.join(etas)}:\n{text}")


def _plot_solution(config: SolveTable, mdp: MDP, eta: float | str, after: Solution) -> None:
    from bsrs.figures.boards import before_and_after, board_of, save_as
    from bsrs.figures.style import project_style

    before = solve_table(mdp, config.gamma, eta=eta, tol=config.tol, max_steps=BEFORE)
    title = f"{config.table}, γ = {config.gamma:g}, " + (f"η = {eta:g}" if isinstance(eta, float) else f"η by {eta}")
    with project_style():
        path = save_as(before_and_after(board_of(config.table), before, after, title=title), config.plot)
    print(f"wrote {path}", file=sys.stderr)


def sweep(config: SweepTable) -> None:
    """Mean and standard deviation of the number of operator applications, for each eta over all initialisations."""
    if config.seeds < 1 or not config.eta:
        raise BadInput("a sweep needs at least one eta and one seed")
    mdp = named_mdp(config.table, slip=config.slip, goal=config.goal)
    steps, converged = tabular_theory.count_steps(
        mdp, config.gamma, config.eta, seeds=range(config.seeds), tol=config.tol, max_steps=config.max_steps
    )
    rows: list[dict[str, Any]] = [
        {
            "eta": float(eta),
            "steps_mean": float(count.mean()),
            "steps_std": float(count.std(ddof=1)) if len(count) > 1 else 0.0,
            "converged": bool(ended.all()),
        }
        for eta, count, ended in zip(config.eta, steps, converged, strict=True)
    ]
    if config.json:
        print_json({"rows": rows})
        return
    best = min((row for row in rows if row["converged"]), key=lambda row: row["steps_mean"], default=None)
    print_table(f"{_title(config)}, steps over {config.seeds} initialisations", rows)
    if best is not None:
        print(f"fewest steps at eta = {best['eta']:g}: {best['steps_mean']:.1f}")


def theory(config: TableTheory) -> None:
    """The proven range, the spectral and the empirical limit, the best constant eta, and a verdict on given etas."""
    mdp = named_mdp(config.table, slip=config.slip, goal=config.goal)
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
        from bsrs.figures.boards import save_as, stability
        from bsrs.figures.style import project_style

        limits = {"(proven limit)": high, "(empirical limit)": empirical, "(spectral limit)": limit}
        etas = [("", eta) for eta in config.eta] or list(limits.items())
        with project_style():
            figure = stability(tabular_theory.spectrum(chain), config.gamma, etas)
            print(f"wrote {save_as(figure, config.plot)}", file=sys.stderr)
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
        print_json({"map": config.table, "gamma": config.gamma, **facts, "rows": rows})
        return
    meanings = {
        "proven range": f"({low:g}, {high:.4f})",
        "spectral limit (near the optimum)": f"{limit:.4f}",
        "empirical limit (random starts)": f"{empirical:.4f}",
        "best constant eta (random starts)": f"{best.eta:.4f}: {best.steps:.1f} steps, plain {best.plain_steps:.1f}",
    }
    print_table(_title(config), [{"what": what, "eta": value} for what, value in meanings.items()])
    if rows:
        print_table("the etas asked for", rows)


def _title(config: TableProblem) -> str:
    maps = f", slip {config.slip:g}, goal {config.goal}s" if is_map(config.table) else ""
    return f"{config.table}, gamma {config.gamma:g}{maps}"
