"""The solver that never loses: the constant mode removed, and policies evaluated cheaply as far as it pays.

Where no episode ends, a constant added to the value passes through B, times gamma. It is the mode that dies slowest,
and the one that need not be iterated at all: if the residual B U - U lies between `low` and `high`, then

    gamma / (1 - gamma) * low  <=  V* - B U  <=  gamma / (1 - gamma) * high        (MacQueen; Porteus)

so U may be shifted by the middle of that interval at any time, and half its width is the error that is left. Read as
shaping, the shift is a constant potential: adding phi = c takes (1 - gamma) c from every reward, which is reward
centering. Where episodes end, nothing is won beyond the end, so the interval must contain zero. Stopping at half a
width below `tol` bounds the error by gamma / (1 - gamma) * tol, exactly as stopping plain iteration at a residual
below `tol` does; so `midrange`, plain value iteration with this rule, never takes a step more.

`mpi`, modified policy iteration, repeats the greedy policy's own operator between maximisations: S rows instead of
S * A. Such a sweep is worth a maximisation while the policy is the right one, and nothing while value still travels.
`plan_sweeps` decides how many: it doubles their number as long as the next maximisation confirms what they gained,
and otherwise falls back to plain iteration, with a purse that limits what may be lost. An eta relaxes what is
repeated: the sweeps, or `midrange`'s maximisation.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from bsrs.tabular.backup import Backup, Found, policy_operator
from bsrs.tabular.mdp import Floats, Ints

Watch = Callable[[int, float], None]

# A policy is evaluated until the width is SHRINK times that of the last maximisation, in at most MOST_SWEEPS sweeps.
SHRINK = 0.1
MOST_SWEEPS = 64
# Sweeps that gained nothing may cost this share of the maximisations, plus an allowance in applications.
SHARE, ALLOWANCE = 0.05, 2.0

# An interval that is narrower than so many roundings of the value has no middle: shifting by it would go on for ever.
ROUNDINGS = 8

# sweeps to make, what the purse holds, refusals in a row, maximisations to wait before sweeps are tried again
Plan = tuple[int, float, int, int]
FIRST_PLAN: Plan = (0, 0.0, 0, 2)


def plan_sweeps(  # compiled in `small`, so that both drivers decide alike
    plan: Plan, n_actions: int, most: int, step: int, before: float, after: float, swept: float, used: int
) -> Plan:
    """How many sweeps follow maximisation number `step`.

    Its half width is `after`, that of the maximisation before was `before`; `used` sweeps between them ended at
    `swept`. They are confirmed if at least half of what they seemed to gain (in logarithms) is there.
    """
    sweeps, purse, refused, wait = plan
    if used == 0:
        wait -= 1
        sweeps = 1 if wait <= 0 else 0
    elif 2 * np.log(before / after) >= np.log(before / max(swept, SHRINK * before)):
        sweeps, purse, refused = 2 * sweeps, purse + 0.5 * used * (1 - 1 / n_actions), 0
    else:
        sweeps, purse, refused = sweeps // 4, purse - used / n_actions, min(refused + 1, 20)
        wait = 2**refused
    affordable = max(int((SHARE * step + ALLOWANCE + purse) * n_actions), 0)
    return min(sweeps, affordable, most), purse, refused, wait


def modified_policy_iteration(
    backup: Backup,
    value: Floats,
    *,
    eta: float = 0.0,
    tol: float,
    max_steps: int,
    most_sweeps: int = MOST_SWEEPS,
    watch: Watch | None = None,
) -> Found:
    """Maximise, follow the greedy policy for as many sweeps as pay, remove the constant mode; again."""
    value, out, omega = value.copy(), np.empty_like(value), 1.0 + eta
    first_omega = 1.0 if most_sweeps else omega  # what is relaxed is what is repeated
    policy = np.empty(backup.mdp.n_states, dtype=np.int32) if most_sweeps else None
    residuals: list[float] = []
    rounding = ROUNDINGS * float(np.finfo(value.dtype).eps)
    sweeps, plan, used, swept, before = 0, FIRST_PLAN, 0, 0.0, 1.0
    while True:
        low, high = _bounds(backup, backup.apply(value, out, omega=first_omega, policy=policy))
        residuals.append(after := (high - low) / 2)
        if watch is not None:
            watch(len(residuals), after)
        if after < tol or len(residuals) >= max_steps:
            break
        value, out = out, value
        plan = plan_sweeps(plan, backup.mdp.n_actions, most_sweeps, len(residuals), before, after, swept, used)
        before, used = after, 0
        sweep = policy_operator(backup, policy) if plan[0] and policy is not None else None
        while sweep and used < plan[0] and (used == 0 or swept >= max(SHRINK * before, tol / 2)):
            low, high = _bounds(backup, sweep(value, out, omega))
            value, out, used, swept = out, value, used + 1, (high - low) / 2
        sweeps += used
        if not backup.mdp.may_end and (high - low) / 2 > rounding * np.abs(value).max():
            value += backup.gamma / (1.0 - backup.gamma) * (low + high) / 2
    # Around U itself the interval for V* is (low, high) / (1 - gamma), as wide as that around B U after one more B.
    middle = np.asarray(value + (low + high) / 2 / (1.0 - backup.gamma))
    return Found(middle, after < tol, np.array(residuals), sweeps=sweeps)


midrange = partial(modified_policy_iteration, most_sweeps=0)


def policy_value(backup: Backup, policy: Ints, *, tol: float, max_steps: int = 1_000_000) -> Floats:
    """(S,) the value of a deterministic policy, within gamma / (1 - gamma) * tol."""
    apply = policy_operator(backup, policy.astype(np.int32))
    value = backup.first_value(None)
    out = np.empty_like(value)
    for _ in range(max_steps):
        low, high = _bounds(backup, apply(value, out, 1.0))
        if (high - low) / 2 < tol:
            break
        value, out = out, value
    return np.asarray(out + backup.gamma / (1.0 - backup.gamma) * (low + high) / 2)


def _bounds(backup: Backup, span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    return (min(low, 0.0), max(high, 0.0)) if backup.mdp.may_end else (low, high)
