"""The paper's iteration: the self-shaped operator with a constant eta, for K tables side by side.

A step is one application; it has converged when two Q tables differ by less than the tolerance in the sup-norm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bsrs.errors import BadInput
from bsrs.tabular.backup import Backup, Found
from bsrs.tabular.layouts import require
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import shaped_bellman

Outcome = Literal["converged", "diverged", "exhausted"]
# Called with the number of applications and the residual during a solve.
Watch = Callable[[int, float], None]

# An iterate that has moved this many times further than its first step will not come back.
DIVERGENCE = 1e8


@dataclass(frozen=True, eq=False)
class Solutions:
    """The results of K iterations that ran together."""

    q: Floats  # (K, S, A)
    applications: Ints  # (K,)
    residuals: Floats  # (most applications, K), NaN after a run's end
    outcomes: list[Outcome]


def solve_many(
    mdp: MDP,
    gamma: float,
    *,
    eta: npt.ArrayLike,
    init: npt.ArrayLike,
    tol: float = 1e-6,
    max_steps: int = 100_000,
    temperature: float = 0.0,
    dtype: Any = np.float64,
    watch: Watch | None = None,
) -> Solutions:
    """Run K iterations together. `eta` is (K,) or (K, S), `init` is (K, S, A). Each stops when it has converged."""
    check_gamma(gamma)
    first = np.asarray(init)
    scales = np.asarray(eta, dtype=np.float64)
    _check_batch(mdp, first, scales, tol)
    require(6 * first.size * np.dtype(np.float64).itemsize, f"solving {len(first)} tables of {mdp.n_states:,} states")
    scales = scales.T if scales.ndim == 2 else scales[None]  # (S or 1, K)
    q: Floats = np.array(np.moveaxis(first, 0, -1), dtype=np.float64, order="C")  # (S, A, K)
    ends = np.empty(first.shape, dtype=dtype)
    applications = np.zeros(len(first), dtype=np.int64)
    outcomes: list[Outcome] = ["exhausted"] * len(first)
    history: list[Floats] = []
    running = np.arange(len(first))  # one that has ended leaves the others: from then on q and scales are theirs
    while len(running) and len(history) < max_steps:
        with np.errstate(over="ignore", invalid="ignore"):
            new = shaped_bellman(mdp, gamma, q, scales, temperature=temperature)
            residual = np.abs(new - q).max(axis=(0, 1))
        q = new
        applications[running] += 1
        history.append(np.full(len(first), np.nan))
        history[-1][running] = residual
        if watch is not None:
            watch(len(history), float(residual.max()))
        converged = residual < tol
        ended = converged | ~(residual <= DIVERGENCE * np.maximum(history[0][running], tol))
        if ended.any():
            for run, success in zip(running[ended], converged[ended], strict=True):
                outcomes[run] = "converged" if success else "diverged"
            ends[running[ended]] = np.moveaxis(q[..., ended], -1, 0)
            running, q, scales = running[~ended], q[..., ~ended], scales[:, ~ended]
    ends[running] = np.moveaxis(q, -1, 0)
    return Solutions(ends, applications, np.array(history).reshape(-1, len(first)), outcomes)


def relaxed_iteration(
    backup: Backup, value: Floats, *, eta: float, tol: float, max_steps: int, watch: Watch | None = None
) -> tuple[Found, Outcome]:
    """The same where the table is large, as over-relaxed value iteration on U = (1 + eta) V.

    The residual is the sup-norm of the change of V: that of Q is below it one application later at the latest.
    """
    value, out, residuals = (1.0 + eta) * value, np.empty_like(value), list[float]()
    outcome: Outcome = "exhausted"
    while outcome == "exhausted" and len(residuals) < max_steps:
        low, high = backup.apply(value, out, omega=1.0 + eta)
        residuals.append(max(abs(low), abs(high)))
        value, out = out, value
        if watch is not None:
            watch(len(residuals), residuals[-1])
        if residuals[-1] < tol:
            outcome = "converged"
        elif not residuals[-1] <= DIVERGENCE * max(residuals[0], tol):
            outcome = "diverged"
    return Found(value, outcome == "converged", np.array(residuals)), outcome


def _check_batch(mdp: MDP, init: Floats, eta: Floats, tol: float) -> None:
    if init.ndim != 3 or init.shape[1:] != mdp.rewards.shape:
        raise BadInput(f"init has shape {init.shape[1:]}; expected {mdp.rewards.shape}, one number a state and action")
    if eta.shape not in ((len(init),), (len(init), mdp.n_states)):
        raise BadInput(f"eta has shape {eta.shape[1:]}; expected a number or one per state, ({mdp.n_states},)")
    if not np.isfinite(eta).all():
        raise BadInput("eta holds a number that is not finite")
    if not tol > 0:
        raise BadInput(f"tol is {tol}; expected a positive number")
