"""Ours and the solvers that people use today, each in the form that suits it best.

A family makes its solvers for one table and discount. Only the solving is timed: what a library wants its input turned
into beforehand (for ours, the `MDP`) is not, and what is compiled once per machine has been. All stop at the same
guaranteed error.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sparse

from bsrs.errors import optional
from bsrs.tabular import MDP, solve
from bsrs.tabular.mdp import Floats, Ints

# A direct factorisation fills in: that of a random sparse chain almost completely.
LARGEST_FACTORISATION = 1_000
# Below this many states the threads of mdpsolver cost more than they bring.
WORTH_THREADS = 50_000


@dataclass(frozen=True, eq=False)
class Answer:
    """A solver's result, its time, and how often it applied an operator, if it reports that."""

    value: Floats
    policy: Ints
    seconds: float
    applications: int | None
    sweeps: int | None


Solvers = dict[str, Callable[[], Answer]]


def guaranteed_error(gamma: float, tol: float) -> float:
    """What stopping at a residual of `tol` guarantees."""
    return gamma / (1.0 - gamma) * tol


def our_solvers(mdp: MDP, gamma: float, tol: float, threads: int) -> Solvers:
    """Every method of `solve`."""
    methods: dict[str, dict[str, Any]] = {
        "plain": {},
        "aitken": {"eta": "aitken"},
        "anderson": {"eta": "anderson"},
        "midrange": {"method": "midrange"},
        "mpi": {"method": "mpi"},
        "auto": {"method": "auto"},
    }

    def run(**settings: Any) -> Answer:
        start = time.perf_counter()
        found = solve(mdp, gamma, tol=tol, threads=threads, **settings)
        seconds = time.perf_counter() - start
        return Answer(found.optimal_value, found.policy, seconds, found.applications, found.sweeps)

    for settings in methods.values():
        run(**settings, max_steps=2)  # compiles
    return {f"bsrs {name}": partial(run, **settings) for name, settings in methods.items()}


def quantecon_solvers(mdp: MDP, gamma: float, tol: float, threads: int) -> Solvers:
    """Value iteration, policy iteration and modified policy iteration, on sparse state-action pairs."""
    markov = optional("quantecon.markov", "python -m benchmarks tabular", "dev")
    whole = closed(mdp)
    states, actions = np.divmod(np.arange(whole.rewards.size), whole.n_actions)
    problem = markov.DiscreteDP(whole.rewards.ravel(), sparse.csr_matrix(whole.transitions), gamma, states, actions)

    def run(method: str, max_iter: int = 1_000_000, **settings: int) -> Answer:
        start = time.perf_counter()
        epsilon = 2 * guaranteed_error(gamma, tol)  # it promises half of its epsilon
        found = problem.solve(method=method, epsilon=epsilon, max_iter=max_iter, **settings)
        seconds = time.perf_counter() - start
        value, policy = found.v[: mdp.n_states], found.sigma[: mdp.n_states]
        return Answer(value, policy, seconds, found.num_iter, found.num_iter * settings.get("k", 0))

    run("modified_policy_iteration", max_iter=1)  # compiles
    solvers: Solvers = {f"quantecon mpi k={k}": partial(run, "modified_policy_iteration", k=k) for k in (20, 50)}
    if mdp.n_states <= LARGEST_FACTORISATION:
        solvers["quantecon pi"] = partial(run, "policy_iteration", max_iter=200)  # ties can make it cycle
    return {**solvers, "quantecon vi": partial(run, "value_iteration")}


def mdpsolver_solvers(mdp: MDP, gamma: float, tol: float, threads: int) -> Solvers:
    """Modified policy iteration with its standard updates (parallel, if the table is large) and Gauss-Seidel ones."""
    mdpsolver = optional("mdpsolver", "python -m benchmarks tabular", "dev")
    whole = closed(mdp)
    lists = {
        "rewards": whole.rewards.tolist(),
        "tranMatProbs": _nested(whole, whole.transitions.data),
        "tranMatColumns": _nested(whole, whole.transitions.indices),
    }

    def run(**settings: Any) -> Answer:
        model = mdpsolver.model()  # a new one each time: it would start from its last solution
        model.mdp(discount=gamma, **lists)
        start = time.perf_counter()
        model.solve(algorithm="mpi", tolerance=2 * guaranteed_error(gamma, tol), **settings)
        seconds = time.perf_counter() - start
        value, policy = (np.array(part)[: mdp.n_states] for part in (model.getValueVector(), model.getPolicy()))
        return Answer(value, policy, seconds, None, None)

    parallel = threads > 1 and mdp.n_states >= WORTH_THREADS
    return {
        "mdpsolver mpi": partial(run, update="standard", parallel=parallel),
        "mdpsolver mpi gs": partial(run, update="gs"),
    }


def closed(mdp: MDP) -> MDP:
    """The same table with a last state where episodes end up: the peers know no other way of ending."""
    if not mdp.may_end:
        return mdp
    ends = sparse.csr_array(1.0 - mdp.transitions.sum(axis=1).reshape(-1, 1))
    stay = sparse.csr_array((np.ones(mdp.n_actions), (range(mdp.n_actions), [mdp.n_states] * mdp.n_actions)))
    rows = sparse.vstack([sparse.hstack([mdp.transitions, ends]), stay])
    return MDP(rows, np.vstack([mdp.rewards, np.zeros((1, mdp.n_actions))]))


def _nested(mdp: MDP, entries: Floats | Ints) -> list[list[list[float]]]:
    """(S, A, next states) as lists."""
    pointers, numbers, n_actions = mdp.transitions.indptr.tolist(), entries.tolist(), mdp.n_actions
    rows = [numbers[first:last] for first, last in pairwise(pointers)]
    return [rows[first : first + n_actions] for first in range(0, len(rows), n_actions)]


FAMILIES: dict[str, Callable[[MDP, float, float, int], Solvers]] = {
    "bsrs": our_solvers,
    "quantecon": quantecon_solvers,
    "mdpsolver": mdpsolver_solvers,
}
