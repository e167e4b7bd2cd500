"""Seconds and operator applications of our tabular solvers, quantecon's and mdpsolver's.

Every family of solvers lives in a process of its own; they take turns, so that all see the same machine. A solver that
takes longer than the limit is stopped, and its row has no numbers. Every answer is compared with a more exact solution.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from benchmarks.tabular_solvers import FAMILIES, Answer, Solvers
from benchmarks.timing import Worker, rotated, tell
from bsrs.errors import unknown
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
    "CliffWalking": lambda: MDP.from_gymnasium("CliffWalking-v1"),
    "Taxi": lambda: MDP.from_gymnasium("Taxi-v4"),
    "chain 50": lambda: grid_mdp("1x50"),
    "garnet 100": lambda: MDP.garnet(100, 4, 5, seed=0),
    "20x20": lambda: grid_mdp("20x20", slip=0.2),
    "60x60": lambda: grid_mdp("60x60", slip=0.2),
    "300x300": lambda: grid_mdp("300x300", slip=0.2),
    "1000x1000": lambda: grid_mdp("1000x1000", slip=0.2),
    "1000x1000 random rewards": lambda: grid_mdp("1000x1000", slip=0.2, random_rewards=0),
    "garnet 2000": lambda: MDP.garnet(2_000, 4, 5, seed=0),
    "garnet 100000": lambda: MDP.garnet(100_000, 4, 5, seed=0),
}
GAMMAS = (0.9, 0.99, 0.999)
TableCase = tuple[str, float]  # a table and a discount
QUICK: tuple[TableCase, ...] = (
    *(("paper", gamma) for gamma in GAMMAS),
    *((table, 0.99) for table in ("FrozenLake", "CliffWalking", "Taxi", "20x20", "60x60", "garnet 2000")),
)
TOL = 1e-6
THREADS = 2  # the same for all solvers
LIMIT, QUICK_LIMIT = 30.0, 5.0  # seconds after which a solver is stopped


def cases(mdps: Sequence[str], gammas: Sequence[float], *, quick: bool) -> list[TableCase]:
    """List the tables and discounts that are named, or all."""
    for table in mdps:
        if table not in TABLES:
            raise unknown("table", table, TABLES)
    for gamma in gammas:
        check_gamma(gamma)
    if quick and not mdps:
        return [case for case in QUICK if not gammas or case[1] in gammas]
    return [(table, gamma) for table in mdps or TABLES for gamma in gammas or GAMMAS]


def bench(
    chosen: Sequence[TableCase], *, quick: bool, families: Sequence[str] = tuple(FAMILIES), limit: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield a row for each solver, as soon as its case is measured."""
    limit = limit or (QUICK_LIMIT if quick else LIMIT)
    with ExitStack() as stack:
        contestants = [stack.enter_context(_Contestant(family, limit)) for family in families]
        for table, gamma in chosen:
            tell(f"{table}, gamma {gamma:g}")
            results = _race((table, gamma), contestants, rounds=2 if quick else 3)
            _check((table, gamma), results)
            for solver, result in results.items():
                yield {
                    "mdp": table,
                    "gamma": gamma,
                    "solver": solver,
                    "seconds": statistics.median(result.seconds) if result.seconds else None,
                    "applications": result.answer and result.answer.applications,
                    "sweeps": result.answer and result.answer.sweeps,
                    "max_error": result.max_error,
                    "policy_loss": result.policy_loss,
                }


@dataclass(eq=False)
class SolverResult:
    """What one solver did. It has no seconds and no answer if it was stopped."""

    seconds: list[float] = field(default_factory=list)
    answer: Answer | None = None
    max_error: float | None = None
    policy_loss: float | None = None


def _race(case: TableCase, contestants: Sequence["_Contestant"], rounds: int) -> dict[str, SolverResult]:
    solvers = [(contestant, name) for contestant in contestants for name in contestant.prepare(case)]
    results = {name: SolverResult() for _, name in solvers}
    for turn in range(rounds):
        for contestant, name in rotated(solvers, turn):
            result = results[name]
            # One that took a long time is steady enough.
            if turn == 0 or (result.seconds and result.seconds[0] < contestant.limit / 30):
                answer = contestant.run(name)
                tell(f"  {name}: {f'{answer.seconds:.4g} s' if answer else 'stopped'}")
                if answer is not None:
                    result.seconds.append(answer.seconds)
                    result.answer = answer
    return results


def _check(case: TableCase, results: dict[str, SolverResult]) -> None:
    """The distance of each answer from a solution a hundred times as exact, and of its policy's value."""
    tell("  comparing the answers")
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
        key = policy.tobytes()
        if key not in values:
            values[key] = policy_value(backup, policy, tol=TOL / 100)
        result.policy_loss = float((exact - values[key]).max()) / scale


class _Family:
    """A family of solvers, in a process of its own."""

    def __init__(self, family: str) -> None:
        self._family = family
        self._solvers: Solvers = {}

    def prepare(self, case: TableCase) -> list[str]:
        """Make the solvers for this case; their names."""
        table, gamma = case
        self._solvers = FAMILIES[self._family](TABLES[table](), gamma, TOL, THREADS)
        return list(self._solvers)

    def run(self, solver: str) -> Answer:
        """One solver's answer, with its median time over at most fifty solves in a twentieth of a second, after one to
        warm up."""
        solve_it = self._solvers[solver]
        answers, end = [solve_it()], time.perf_counter() + 0.05
        while len(answers) <= 50 and time.perf_counter() < end:
            answers.append(solve_it())
        return replace(answers[0], seconds=statistics.median(answer.seconds for answer in answers[1:] or answers))


class _Contestant:
    """A family's process, which is stopped and started again where a solver takes longer than the limit."""

    def __init__(self, family: str, limit: float) -> None:
        self.limit = limit
        self._family = family
        self._case: TableCase | None = None
        self._worker = Worker(partial(_Family, family))

    def prepare(self, case: TableCase) -> list[str]:
        """Make the solvers for this case; their names."""
        self._case = case
        names: list[str] = self._worker.call("prepare", case)
        return names

    def run(self, solver: str) -> Answer | None:
        """The answer of one solver; None if it takes longer than the limit or dies of it."""
        try:
            answer: Answer = self._worker.call("run", solver, limit=self.limit)
        except (TimeoutError, RuntimeError):
            self.__exit__()
            self._worker = Worker(partial(_Family, self._family))
            assert self._case is not None, "prepare first"
            self.prepare(self._case)
            return None
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__()
