"""Solve small tables in one compiled call: on a 7x7 grid, calling a step from Python costs more than the step.

`solve_small` is `policy_iteration.modified_policy_iteration` for one thread, without a progress line.
"""

from typing import Any

import numpy as np
from numba import njit

from bsrs.tabular import policy_iteration as mpi
from bsrs.tabular.mdp import MDP, Floats, Ints

SHRINK, FIRST_PLAN = mpi.SHRINK, mpi.FIRST_PLAN
ROUNDING = mpi.ROUNDINGS * float(np.finfo(np.float64).eps)
_plan_sweeps = njit(cache=True)(mpi.plan_sweeps)


def solve_small(
    mdp: MDP, gamma: float, value: Floats, *, omega: float, tol: float, max_steps: int, most_sweeps: int
) -> tuple[Floats, Floats, Ints, Floats, int]:
    """Return (Q, V, policy, half widths, sweeps) of relaxed modified policy iteration from `value`."""
    rows = mdp.transitions
    table = (rows.data, rows.indices, rows.indptr, mdp.rewards)
    found: Any = _solve(*table, gamma, omega, value, mdp.may_end, tol, max_steps, most_sweeps)
    return found  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _solve(  # type: ignore[no-untyped-def]
    weights, columns, pointers, rewards, gamma, omega, value, may_end, tol, max_steps, most_sweeps
):
    n_states, n_actions = rewards.shape
    first_omega = 1.0 if most_sweeps else omega
    value, out, q = value.copy(), np.empty(n_states), np.empty((n_states, n_actions))
    policy, residuals = np.zeros(n_states, dtype=np.int64), np.empty(64)
    plan, step, sweeps, used, swept, before = FIRST_PLAN, 0, 0, 0, 0.0, 1.0
    while True:
        low, high = _step(weights, columns, pointers, rewards, gamma, first_omega, value, out, policy, False, may_end)
        after = (high - low) / 2
        if step == len(residuals):
            residuals = np.concatenate((residuals, np.empty(step)))
        residuals[step] = after
        step += 1
        if after < tol or step >= max_steps:
            break
        value, out = out, value
        plan = _plan_sweeps(plan, n_actions, most_sweeps, step, before, after, swept, used)
        before, used = after, 0
        while used < plan[0] and (used == 0 or swept >= max(SHRINK * before, tol / 2)):
            low, high = _step(weights, columns, pointers, rewards, gamma, omega, value, out, policy, True, may_end)
            value, out, used, swept = out, value, used + 1, (high - low) / 2
        sweeps += used
        if not may_end and (high - low) / 2 > ROUNDING * np.abs(value).max():
            value += gamma / (1.0 - gamma) * (low + high) / 2
    value += (low + high) / 2 / (1.0 - gamma)
    _read_out(weights, columns, pointers, rewards, gamma, value, q, out, policy)
    return q, out, policy, residuals[:step].copy(), sweeps


@njit(inline="always")
def _q(weights, columns, pointers, rewards, gamma, value, s, a):  # type: ignore[no-untyped-def]
    row, expected = s * rewards.shape[1] + a, 0.0
    for j in range(pointers[row], pointers[row + 1]):
        expected += weights[j] * value[columns[j]]
    return rewards[s, a] + gamma * expected


@njit(cache=True, nogil=True)
def _step(weights, columns, pointers, rewards, gamma, omega, value, out, policy, follow, may_end):  # type: ignore[no-untyped-def]
    """Apply the operator of the policy (`follow`), or the maximum, which becomes the policy; the residual's range."""
    low, high = (0.0, 0.0) if may_end else (np.inf, -np.inf)
    for s in range(len(value)):
        best, action = -np.inf, policy[s]
        for a in range(policy[s], policy[s] + 1) if follow else range(rewards.shape[1]):
            q = _q(weights, columns, pointers, rewards, gamma, value, s, a)
            if q > best:
                best, action = q, a
        change = best - value[s]
        out[s], policy[s] = value[s] + omega * change, action
        low, high = min(low, change), max(high, change)
    return low, high


@njit(cache=True, nogil=True)
def _read_out(weights, columns, pointers, rewards, gamma, value, q, best, policy):  # type: ignore[no-untyped-def]
    for s in range(len(value)):
        best[s] = -np.inf
        for a in range(rewards.shape[1]):
            q[s, a] = _q(weights, columns, pointers, rewards, gamma, value, s, a)
            if q[s, a] > best[s]:
                best[s], policy[s] = q[s, a], a
