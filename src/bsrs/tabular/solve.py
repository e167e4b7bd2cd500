"""Solve tabular MDPs."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from bsrs.errors import BadInput, unknown
from bsrs.tabular.adaptive import accelerate
from bsrs.tabular.backup import Backup, Found, is_large
from bsrs.tabular.iterate import Outcome, Watch, relaxed_iteration, solve_many
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import greedy_policy, state_value
from bsrs.tabular.policy_iteration import MOST_SWEEPS, midrange, modified_policy_iteration

Method = Literal["iterate", "midrange", "mpi", "auto"]
TOL = 1e-6


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver."""

    q: Floats  # (S, A) fixed point of the operator that was iterated: shaped, if eta is not zero
    value: Floats  # (S,) its maximum over actions
    policy: Ints  # (S,)
    applications: int  # of the operator, those of refused proposals too
    residuals: Floats  # (applications,) sup-norm between iterates; for midrange and mpi half the width of its range
    outcome: Outcome
    eta: float | Floats  # the constant that is part of `q`; zero for the methods that choose eta as they go
    gamma: float
    method: str = "iterate"  # what was done
    schedule: Floats | None = None  # eta of each step, where it was chosen as the solve went on
    sweeps: int = 0  # applications of a single policy's operator, each about 1 / A of the work

    @property
    def work(self) -> float:
        """Work in units of one iteration: iterations, plus sweeps in proportion to the rows they read."""
        return float(self.applications + self.sweeps / self.q.shape[1])

    @property
    def optimal_value(self) -> Floats:
        """Value in the unshaped problem, (S,): 1 + eta times the shaped one."""
        return (1.0 + np.asarray(self.eta)) * self.value


def solve(
    mdp: MDP,
    gamma: float,
    *,
    eta: float | npt.ArrayLike | str = 0.0,
    method: Method = "iterate",
    init: npt.ArrayLike | None = None,
    tol: float | None = None,
    max_steps: int = 100_000,
    temperature: float = 0.0,
    memory: int = 5,
    dtype: Any = np.float64,
    threads: int | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Solve a tabular MDP.

    Args:
        mdp: The table.
        gamma: Discount factor, in [0, 1).
        eta: A number, one number per state, or a rule that chooses eta in every step: `aitken`, `aitken-states`,
            `anderson` or `spectral`. Used by `method="iterate"`.
        method: `iterate` is the paper's iteration with the self-shaped operator. `midrange` and `mpi` are for large
            tables. `auto` chooses between them; `Solution.method` has the choice.
        init: First Q table, (S, A) or a number. The default is zero.
        tol: Stop when two Q tables (for large tables, two value functions) differ by less than this in the sup-norm.
            The default is 1e-6, or a millionth of the largest reward if that is below 1.
        max_steps: Give up after this many iterations.
        temperature: Above 0, use the soft maximum.
        memory: Number of earlier points that `anderson` combines.
        dtype: Type of the numbers, for example np.float32.
        threads: Threads on large tables. The default is all cores.
        watch: Called with the number of iterations and the residual.
    """
    if method not in get_args(Method):
        raise unknown("method", method, get_args(Method))
    tol = _checked_tol(tol, dtype, mdp, gamma)
    first = None if init is None else np.broadcast_to(np.asarray(init, dtype=np.float64), mdp.rewards.shape)
    if method == "auto":
        method, eta = _choose(eta, temperature)
    limits: dict[str, Any] = {"tol": tol, "max_steps": max_steps, "watch": watch}
    large = is_large(mdp) and temperature == 0.0
    relaxed = large and isinstance(eta, (int, float)) and eta > -1
    if method == "iterate" and not relaxed and not isinstance(eta, str):
        return _iterate(mdp, gamma, eta, first, temperature, dtype, **limits)
    if method != "iterate" and temperature == 0.0 and not large and dtype is np.float64:
        return _solve_small(mdp, gamma, method, 1.0 + _one_number(method, eta), first, **limits)
    backup = Backup(mdp, gamma, temperature=temperature, dtype=dtype, threads=threads)
    value = backup.first_value(first)
    if method != "iterate":
        run = midrange if method == "midrange" else modified_policy_iteration
        return _solution(backup, run(backup, value, eta=_one_number(method, eta), **limits), method)
    if isinstance(eta, str):
        return _solution(backup, accelerate(backup, value, eta, memory=memory, **limits), eta)
    return _iterate_large(backup, value, float(cast(float, eta)), **limits)


def _iterate(
    mdp: MDP, gamma: float, eta: npt.ArrayLike, init: Floats | None, temperature: float, dtype: Any, **limits: Any
) -> Solution:
    """Apply the self-shaped operator, as one of the tables that `solve_many` takes side by side."""
    start = np.zeros((1, *mdp.rewards.shape)) if init is None else init[None]
    scale = np.asarray(eta, dtype=np.float64)
    batch = solve_many(mdp, gamma, eta=scale[None], init=start, temperature=temperature, dtype=dtype, **limits)
    q, count = batch.q[0], int(batch.applications[0])
    end = batch.residuals[:count, 0], batch.outcomes[0], float(scale) if scale.ndim == 0 else scale, gamma
    return Solution(q, state_value(q, temperature), greedy_policy(q), count, *end)


def _iterate_large(backup: Backup, value: Floats, eta: float, **limits: Any) -> Solution:
    """The same as over-relaxed value iteration; at the end the potential is taken off again."""
    found, outcome = relaxed_iteration(backup, value, eta=eta, **limits)
    plain = _solution(backup, found, "iterate")
    phi = eta / (1.0 + eta) * found.value
    return replace(plain, q=plain.q - phi[:, None], value=plain.value - phi, outcome=outcome, eta=eta)


def _checked_tol(tol: float | None, dtype: Any, mdp: MDP, gamma: float) -> float:
    reward = float(np.abs(mdp.rewards).max())
    if tol is None:
        tol = TOL * (min(reward, 1.0) or 1.0)
    if not tol > 0:
        raise BadInput(f"tol is {tol}; expected a positive number")
    if 0 < reward <= tol:
        raise BadInput(f"tol is {tol:g} and the largest reward {reward:g}: nothing would be solved; expected less")
    check_gamma(gamma)
    if dtype is np.float64:
        return tol
    largest = reward / (1.0 - gamma)
    finest = 4.0 * float(np.finfo(dtype).eps) * largest
    if tol < finest:
        raise BadInput(f"tol is {tol:g}; {np.dtype(dtype)} resolves values up to {largest:g} to {finest:.1g} at best")
    return tol


def _choose(eta: object, temperature: float) -> tuple[Method, float | str]:
    """The solver that never loses; the soft maximum has no greedy policy to follow."""
    if not (isinstance(eta, (int, float)) and eta == 0):
        raise BadInput(f"method auto was given eta {eta!r}; expected none: it chooses")
    return ("mpi" if temperature == 0.0 else "midrange"), 0.0


def _one_number(method: Method, eta: Any) -> float:
    if isinstance(eta, str):
        raise BadInput(f"method {method} was given eta {eta!r}; expected a number: it repeats one relaxation")
    if np.ndim(eta) != 0 or not np.isfinite(eta):
        raise BadInput(f"method {method} was given an eta of shape {np.shape(eta)}; expected one finite number")
    return float(eta)


def _solve_small(
    mdp: MDP, gamma: float, method: Method, omega: float, init: Floats | None, *, tol: float, max_steps: int,
    watch: Watch | None,
) -> Solution:  # fmt: skip
    from bsrs.tabular.small import solve_small

    start = np.zeros(mdp.n_states) if init is None else init.max(axis=1)
    most = MOST_SWEEPS if method == "mpi" else 0
    found = solve_small(mdp, gamma, start, omega=omega, tol=tol, max_steps=max_steps, most_sweeps=most)
    q, value, policy, residuals, sweeps = found
    count, last = len(residuals), float(residuals[-1])
    if watch is not None:
        watch(count, last)
    outcome: Outcome = "converged" if last < tol else "exhausted"
    return Solution(q, value, policy, count, residuals, outcome, 0.0, gamma, method, sweeps=sweeps)


def _solution(backup: Backup, found: Found, method: str) -> Solution:
    """Read Q out at the end: the last application once more, this time keeping what it saw; so it is not counted."""
    q, count = backup.q(found.value), len(found.residuals)
    best = state_value(q, backup.temperature)
    outcome: Outcome = "converged" if found.converged else "exhausted"
    end = found.residuals, outcome, 0.0, backup.gamma, method, found.schedule, found.sweeps
    return Solution(q, best, greedy_policy(q), count, *end)
