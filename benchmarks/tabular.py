"""Seconds and operator applications of our tabular solvers, quantecon's and mdpsolver's.

Every family of solvers lives in a process of its own; they take turns, so that all see the same machine. A solver that
takes longer than the limit is stopped and left out. Every answer is compared with a more exact solution.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numba import njit, prange

from benchmarks.tabular_solvers import FAMILIES, Answer, Solvers
from benchmarks.timing import Tell, Worker, matrix_rate, rotated, seconds_of, silent
from bsrs.errors import unknown
from bsrs.rng import stream
from bsrs.tabular import MDP, grid_mdp, solve
from bsrs.tabular.backup import Backup
from bsrs.tabular.mdp import Floats, check_gamma
from bsrs.tabular.policy_iteration import policy_value

TABLES: dict[str, Callable[[], MDP]] = {
    "paper": lambda: grid_mdp("paper"),
    "paper ends": lambda: grid_mdp("paper", goal="terminate"),
    "paper resets": lambda: grid_mdp("paper", goal="reset", slip=0.2),
    "FrozenLake": lambda: MDP.from_gymnasium("FrozenLake-v1"),
    "FrozenLake 8x8": lambda: MDP.from_gymnasium("FrozenLake8x8-v1"),
    "FrozenLake 8x8 no slip": lambda: MDP.from_gymnasium("FrozenLake8x8-v1", is_slippery=False),
    "CliffWalking": lambda: MDP.from_gymnasium("CliffWalking-v1"),
    "Taxi": lambda: MDP.from_gymnasium("Taxi-v4"),
    "chain 50": lambda: grid_mdp("1x50"),
    "chain 50 ends": lambda: grid_mdp("1x50", slip=0.3, goal="terminate"),
    "garnet 100": lambda: MDP.garnet(100, 4, 5, seed=0),
    "20x20": lambda: grid_mdp("20x20", slip=0.2),
    "60x60": lambda: grid_mdp("60x60", slip=0.2),
    "300x300": lambda: grid_mdp("300x300", slip=0.2),
    "300x300 random rewards": lambda: grid_mdp("300x300", slip=0.2, random_rewards=0),
    "1000x1000": lambda: grid_mdp("1000x1000", slip=0.2),
    "1000x1000 random rewards": lambda: grid_mdp("1000x1000", slip=0.2, random_rewards=0),
    "garnet 2000": lambda: MDP.garnet(2_000, 4, 5, seed=0),
    "garnet 100000": lambda: MDP.garnet(100_000, 4, 5, seed=0),
}
CLASSICS = tuple(TABLES)[:11]  # what people try first
GAMMAS = (0.9, 0.99, 0.999)
HORIZONS = (0.5, 0.9, 0.99, 0.999, 0.9999)
TableCase = tuple[str, float]  # a table and a discount
QUICK: tuple[TableCase, ...] = (
    *(("paper", gamma) for gamma in GAMMAS),
    *((table, 0.99) for table in ("FrozenLake", "CliffWalking", "Taxi")),
    ("20x20", 0.99),
    ("60x60", 0.99),
    ("garnet 2000", 0.9),
    ("garnet 2000", 0.99),
)
FULL: tuple[TableCase, ...] = tuple(
    (table, gamma)
    for table in (*CLASSICS, "20x20", "300x300", "1000x1000", "1000x1000 random rewards", "garnet 100000")
    for gamma in GAMMAS
)
TOL = 1e-6
MOST_STATES_TO_COUNT = 1_000  # by plain iteration


@dataclass(frozen=True)
class Plan:
    """What is run, how often, and how long a single solve may take."""

    cases: tuple[TableCase, ...]
    families: tuple[str, ...] = tuple(FAMILIES)
    rounds: int = 3
    limit: float = 30.0
    threads: int = 2
    horizons: tuple[float, ...] = HORIZONS[:3]

    def __post_init__(self) -> None:
        for table, gamma in self.cases:
            check_gamma(gamma)
            if table not in TABLES:
                raise unknown("table", table, TABLES)


def bench(plan: Plan, tell: Tell = silent, show: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """`rows`, one for each solver, each shown as soon as it is measured; `stopped`, those that took too long; `best`,
    ours next to the best peer's; `promise`, our count of applications next to value iteration's; `bandwidth`."""
    rows: list[dict[str, Any]] = []
    stopped: list[dict[str, Any]] = []
    best: list[dict[str, Any]] = []
    rate = matrix_rate(threads=plan.threads)
    with ExitStack() as stack:
        contestants = [stack.enter_context(_Contestant(family, plan)) for family in plan.families]
        for case in plan.cases:
            tell(f"{case[0]}, gamma {case[1]:g}")
            results = _race(case, contestants, plan, tell)
            arithmetic = 2 * TABLES[case[0]]().transitions.nnz / rate  # seconds of one application, at that rate
            for result in results.values():
                if result.answer is None:
                    stopped.append({"mdp": case[0], "gamma": case[1], "solver": result.solver, "limit": plan.limit})
                else:
                    rows.append(_row(case, result, result.answer, arithmetic))
                    if show:
                        show(rows[-1])
            best += _best(case, results)
    tell("counting applications")
    tables = dict.fromkeys(table for table, _ in plan.cases)
    counts = [row for table in tables for row in promise(table, plan.horizons)]
    return {"rows": rows, "stopped": stopped, "best": best, "promise": counts, "bandwidth": [bandwidth(plan.threads)]}


def promise(table: str, horizons: Sequence[float]) -> list[dict[str, Any]]:
    """Count the applications of `auto` and of value iteration, and check the promise."""
    mdp = TABLES[table]()
    if mdp.n_states > MOST_STATES_TO_COUNT:
        return []
    rows = []
    for gamma in horizons:
        plain = solve(mdp, gamma, tol=TOL, max_steps=1_000_000).applications
        work = solve(mdp, gamma, tol=TOL, method="auto").work
        rows.append({"mdp": table, "gamma": gamma, "plain": plain, "auto": work, "kept": work <= 1.05 * plain + 3})
    return rows


@dataclass(eq=False)
class SolverResult:
    """What one solver did."""

    solver: str
    seconds: list[float] = field(default_factory=list)
    answer: Answer | None = None
    max_error: float | None = None
    policy_loss: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("inf")

    @property
    def last(self) -> str:
        """How long the last solve took, in words."""
        return f"{self.seconds[-1]:.4g} s" if self.seconds else "stopped"


def _race(case: TableCase, contestants: Sequence[_Contestant], plan: Plan, tell: Tell) -> dict[str, SolverResult]:
    solvers = [(contestant, name) for contestant in contestants for name in contestant.prepare(case)]
    results = {name: SolverResult(name) for _, name in solvers}
    for turn in range(plan.rounds):
        for contestant, name in rotated(solvers, turn):
            # One that took a long time is steady enough.
            if turn == 0 or results[name].median < plan.limit / 30:
                _take(contestant, results[name])
                tell(f"  {name}: {results[name].last}")
    tell("  comparing the answers")
    _check(case, results)
    return results


def _take(contestant: _Contestant, result: SolverResult) -> None:
    answer = contestant.run(result.solver)
    if answer is not None:
        result.seconds.append(answer.seconds)
        result.answer = answer


def _check(case: TableCase, results: dict[str, SolverResult]) -> None:
    """The distance of each answer from a solution a hundred times as exact, and of its policy's value."""
    mdp, gamma = TABLES[case[0]](), case[1]
    exact = solve(mdp, gamma, method="mpi", tol=TOL / 100, max_steps=1_000_000).value
    scale = float(np.abs(exact).max())
    backup = Backup(mdp, gamma)
    values: dict[bytes, Floats] = {}  # solvers often agree on the policy
    for result in results.values():
        if result.answer is None:
            continue
        result.max_error = float(np.abs(result.answer.value - exact).max()) / scale
        policy = result.answer.policy.astype(np.int32)
        value = values.setdefault(policy.tobytes(), np.empty(0))
        if not len(value):
            value = values[policy.tobytes()] = policy_value(backup, policy, tol=TOL / 100)
        result.policy_loss = float((exact - value).max()) / scale


def _row(case: TableCase, result: SolverResult, answer: Answer, arithmetic: float) -> dict[str, Any]:
    share = None if answer.applications is None else answer.applications * arithmetic / result.median
    return {
        "mdp": case[0],
        "gamma": case[1],
        "solver": result.solver,
        "seconds": result.median,
        "applications": answer.applications,
        "sweeps": answer.sweeps,
        "share_of_matrix_rate": share,
        "max_error": result.max_error,
        "policy_loss": result.policy_loss,
    }


def _best(case: TableCase, results: dict[str, SolverResult]) -> list[dict[str, Any]]:
    """Our fastest solver and the peers' fastest: how many times as long they take."""
    ours = [result for name, result in results.items() if name.startswith("bsrs")]
    peers = [result for name, result in results.items() if not name.startswith("bsrs")]
    if not ours or not any(peer.seconds for peer in peers):
        return []
    us, them = (min(group, key=lambda result: result.median) for group in (ours, peers))
    ratio = statistics.median(b / a for a, b in zip(us.seconds, them.seconds, strict=False))
    return [
        {
            "mdp": case[0],
            "gamma": case[1],
            "ours": us.solver,
            "our_seconds": us.median,
            "peer": them.solver,
            "peer_seconds": them.median,
            "times_as_fast": ratio,
        }
    ]


class _Family:
    """A family of solvers, in a process of its own."""

    def __init__(self, family: str, threads: int) -> None:
        self._family, self._threads = family, threads
        self._solvers: Solvers = {}

    def prepare(self, case: TableCase) -> list[str]:
        """Make the solvers for this case; their names."""
        table, gamma = case
        self._solvers = FAMILIES[self._family](TABLES[table](), gamma, TOL, self._threads)
        return list(self._solvers)

    def run(self, solver: str) -> Answer:
        """The answer of one solver."""
        return _timed(self._solvers[solver])


class _Contestant:
    """A family's process, which is stopped and started again where a solver takes longer than the limit."""

    def __init__(self, family: str, plan: Plan) -> None:
        self._family, self._plan = family, plan
        self._case: TableCase | None = None
        self._worker = self._started()

    def _started(self) -> Worker:
        return Worker(_Family, family=self._family, threads=self._plan.threads)

    def prepare(self, case: TableCase) -> list[str]:
        """Make the solvers for this case; their names."""
        self._case = case
        self._worker.ask("prepare", case)
        names: list[str] = self._worker.answer()
        return names

    def run(self, solver: str) -> Answer | None:
        """The answer of one solver; None if it takes longer than the limit or dies of it."""
        self._worker.ask("run", solver)
        try:
            answer: Answer = self._worker.answer(self._plan.limit)
        except (TimeoutError, RuntimeError):
            self._worker.close()
            self._worker = self._started()
            assert self._case is not None, "prepare first"
            self.prepare(self._case)
            return None
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()


def _timed(solver: Callable[[], Answer]) -> Answer:
    """The answer with its median time over at most fifty solves in a twentieth of a second, after one to warm up."""
    answers, end = [solver()], time.perf_counter() + 0.05
    while len(answers) <= 50 and time.perf_counter() < end:
        answers.append(solver())
    return replace(answers[0], seconds=statistics.median(answer.seconds for answer in answers[1:] or answers))


@njit(parallel=True)
def _copy(source, target):  # type: ignore[no-untyped-def]
    for i in prange(source.size):
        target[i] = source[i]


def bandwidth(threads: int, side: int = 1000, rounds: int = 20) -> dict[str, float]:
    """One application on a deterministic grid of side x side states, compared with copying as much memory."""
    from bsrs.tabular import kernels

    threads = kernels.set_threads(threads)
    table = kernels.compact(grid_mdp(f"{side}x{side}"))
    value = stream(0, "bandwidth").random(table.n_states)
    out = np.empty_like(value)
    source, target = np.ones(16_000_000), np.zeros(16_000_000)
    moved = table.nbytes + 2 * value.nbytes
    kernels.back_up(table, 0.99, value, out)
    _copy(source, target)
    applying, copying = [], []
    for _ in range(rounds):
        applying.append(seconds_of(lambda: kernels.back_up(table, 0.99, value, out)))
        copying.append(seconds_of(lambda: _copy(source, target)))
    ours, machine = moved / min(applying), 2 * source.nbytes / min(copying)
    return {
        "threads": float(threads),
        "table_mb": table.nbytes / 1e6,
        "milliseconds": 1e3 * min(applying),
        "gb_per_s": ours / 1e9,
        "copy_gb_per_s": machine / 1e9,
        "share": ours / machine,
    }
