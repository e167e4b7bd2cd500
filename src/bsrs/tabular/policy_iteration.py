"""Solvers for large tables: the constant mode removed, and policies evaluated cheaply between maximisations.

Where no episode ends, a constant added to the value passes through B, times gamma. It is the mode that dies slowest,
and the one that need not be iterated at all: if the residual B U - U lies between `low` and `high`, then

    gamma / (1 - gamma) * low  <=  V* - B U  <=  gamma / (1 - gamma) * high        (MacQueen; Porteus)

so U may be shifted by the middle of that interval at any time, and half its width is the error that is left. Read as
shaping, the shift is a constant potential: adding phi = c takes (1 - gamma) c from every reward, which is reward
centering. Where episodes end, nothing is won beyond the end, so the interval must contain zero.

- `midrange`: value iteration (relaxed by eta, if one is given) that stops by the width and shifts at the end.
- `mpi`, relaxed modified policy iteration: after each maximisation the greedy policy's own operator, which has S rows
  instead of S * A, is repeated (relaxed by eta) until the width has shrunk; then the shift. In the same reading the
  potential then is the policy's value so far.

Stopping at half a width below `tol` bounds the error by gamma / (1 - gamma) * tol, exactly as stopping plain
iteration at a residual below `tol` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsrs.tabular.backup import Backup, Chain
from bsrs.tabular.mdp import Floats, Ints

Watch = Callable[[int, float], None]

# A policy is evaluated until the width is SHRINK times that of the last maximisation, in at most MOST_SWEEPS sweeps.
SHRINK = 0.1
MOST_SWEEPS = 50


@dataclass(frozen=True, eq=False)
class Bounded:
    """A value function within a known distance of the optimum."""

    value: Floats  # (S,)
    converged: bool
    residuals: Floats  # (applications,) half of each width: what compares with a sup-norm residual
    sweeps: int  # applications of a policy's own operator, each about 1 / A of the work


def midrange(
    backup: Backup, value: Floats, *, eta: float = 0.0, tol: float, max_steps: int, watch: Watch | None = None
) -> Bounded:
    """Relaxed value iteration, stopped by the width of the residual's range."""
    value, out = value.copy(), np.empty_like(value)
    residuals: list[float] = []
    while True:
        low, high = _bounds(backup, backup.apply(value, out, omega=1.0 + eta))
        residuals.append((high - low) / 2)
        if watch is not None:
            watch(len(residuals), residuals[-1])
        if residuals[-1] < tol or len(residuals) >= max_steps:
            break
        value, out = out, value
    return Bounded(_centred(backup, value, low, high), residuals[-1] < tol, np.array(residuals), 0)


def modified_policy_iteration(
    backup: Backup,
    value: Floats,
    *,
    eta: float = 0.0,
    tol: float,
    max_steps: int,
    most_sweeps: int = MOST_SWEEPS,
    watch: Watch | None = None,
) -> Bounded:
    """Maximise, follow the greedy policy for some relaxed sweeps, remove the constant mode; again."""
    chain = Chain(backup)
    value, out = value.copy(), np.empty_like(value)
    policy = np.empty(backup.mdp.n_states, dtype=np.int32)
    residuals: list[float] = []
    sweeps = 0
    while True:
        low, high = _bounds(backup, backup.apply(value, out, policy=policy))
        residuals.append((high - low) / 2)
        if watch is not None:
            watch(len(residuals), residuals[-1])
        if residuals[-1] < tol or len(residuals) >= max_steps:
            break
        chain.follow(policy)
        value, out = out, value
        for _ in range(most_sweeps):
            low, high = _bounds(backup, chain.apply(value, out, omega=1.0 + eta))
            value, out = out, value
            sweeps += 1
            if (high - low) / 2 < max(SHRINK * residuals[-1], tol / 2):
                break
        if not backup.may_end:
            value += backup.gamma / (1.0 - backup.gamma) * (low + high) / 2
    return Bounded(_centred(backup, value, low, high), residuals[-1] < tol, np.array(residuals), sweeps)


def policy_value(backup: Backup, policy: Ints, *, tol: float, max_steps: int = 1_000_000) -> Floats:
    """(S,) the value of a deterministic policy, within gamma / (1 - gamma) * tol."""
    chain = Chain(backup)
    chain.follow(policy.astype(np.int32))
    value = backup.first_value(None)
    out = np.empty_like(value)
    for _ in range(max_steps):
        low, high = _bounds(backup, chain.apply(value, out))
        if (high - low) / 2 < tol:
            break
        value, out = out, value
    return np.asarray(out + backup.gamma / (1.0 - backup.gamma) * (low + high) / 2)


def _bounds(backup: Backup, span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    return (min(low, 0.0), max(high, 0.0)) if backup.may_end else (low, high)


def _centred(backup: Backup, value: Floats, low: float, high: float) -> Floats:
    """The middle of the interval for V*, from the value whose residual has these bounds.

    Around U itself the interval is (low, high) / (1 - gamma), as wide as that around B U is after one more B.
    """
    return np.asarray(value + (low + high) / 2 / (1.0 - backup.gamma))
