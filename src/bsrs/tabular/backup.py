"""The Bellman operator on value functions: SciPy for small tables, the fused kernels for large ones."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bsrs.errors import BadInput
from bsrs.tabular.layouts import require
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import expected_next, greedy_policy, state_value

# From this many transitions on a step is worth two threads; below, `small` makes the whole solve one compiled call.
LARGE = 200_000


def is_large(mdp: MDP) -> bool:
    """Whether to use the kernels."""
    return bool(mdp.transitions.nnz >= LARGE)


# The etas of the steps that led to a point, the last one first.
Trail = tuple[float, "Trail"] | None


@dataclass(frozen=True, eq=False)
class Point:
    """A value function, what the operator makes of it, and the range of the difference."""

    value: Floats  # (S,)
    image: Floats  # (S,) B value
    low: float
    high: float
    trail: Trail = None

    @property
    def residual(self) -> float:
        """The sup-norm of B value - value."""
        return max(abs(self.low), abs(self.high))

    @cached_property
    def change(self) -> Floats:
        """(S,) B value - value."""
        return self.image - self.value


@dataclass(frozen=True, eq=False)
class Found:
    """The end of an iteration on value functions."""

    value: Floats  # (S,)
    converged: bool
    residuals: Floats  # (applications,) in the order of evaluation; see `Solution`
    schedule: Floats | None = None  # eta of each step on the way; for an eta(s), its least-squares mean
    sweeps: int = 0  # applications of a policy's own operator, each about 1 / A of the work


class Backup:
    """B of one MDP and discount."""

    def __init__(
        self, mdp: MDP, gamma: float, *, temperature: float = 0.0, dtype: Any = np.float64, threads: int | None = None
    ) -> None:
        self.mdp, self.gamma, self.temperature = mdp, check_gamma(gamma), temperature
        self.dtype = np.dtype(dtype)
        self.kernels: Any = None
        if temperature == 0.0 and is_large(mdp):
            self.kernels = importlib.import_module("bsrs.tabular.kernels")  # here, because numba takes its time
            self.kernels.set_threads(threads)
        # Anderson's method needs the most: six points of three value functions each, and as much again for a while.
        require(36 * mdp.n_states * self.dtype.itemsize + 2 * mdp.rewards.nbytes, f"solving {mdp.n_states:,} states")

    @cached_property
    def table(self) -> Any:
        """The MDP in the layout of the kernels."""
        return self.kernels.compact(self.mdp, self.dtype)

    def __call__(self, value: Floats, trail: Trail = None) -> Point:
        image = np.empty_like(value)
        return Point(value, image, *self.apply(value, image), trail)

    def apply(
        self, value: Floats, out: Floats, *, omega: float = 1.0, policy: Ints | None = None
    ) -> tuple[float, float]:
        """Set out = value + omega (B value - value) and return the range of B value - value.

        Greedy actions are written to `policy`.
        """
        if self.kernels:
            low, high = self.kernels.back_up(self.table, self.gamma, value, out, omega=omega, policy=policy)
            return low, high
        q = self.q(value)
        if policy is not None:
            policy[:] = greedy_policy(q)
        return _relax(value, state_value(q, self.temperature), omega, out)

    def q(self, value: Floats) -> Floats:
        """Return r + gamma E value(s'), (S, A)."""
        if self.kernels:
            q = np.empty(self.mdp.rewards.shape, dtype=self.dtype)
            self.kernels.action_values(self.table, self.gamma, value, q)
            return q
        return np.asarray(self.mdp.rewards + self.gamma * expected_next(self.mdp, value), dtype=self.dtype)

    def first_value(self, init: Floats | None) -> Floats:
        """Return the value function of a first Q, or zero, (S,)."""
        if init is None:
            return np.zeros(self.mdp.n_states, dtype=self.dtype)
        return state_value(init, self.temperature).astype(self.dtype)


# (value, out, omega): out = value + omega (T value - value); the range of T value - value
PolicyOperator = Callable[[Floats, Floats, float], tuple[float, float]]


def policy_operator(backup: Backup, policy: Ints) -> PolicyOperator:
    """Return the operator T of one policy, which has no maximum and reads S rows instead of S * A."""
    if backup.temperature != 0.0:
        raise BadInput("policy iteration takes the hard maximum; expected temperature 0")
    if backup.kernels:
        table = backup.kernels.restrict(backup.table, policy)
        return lambda value, out, omega: backup.kernels.back_up(table, backup.gamma, value, out, omega=omega)
    matrix, rewards = backup.mdp.chain(policy), backup.mdp.rewards[np.arange(backup.mdp.n_states), policy]
    return lambda value, out, omega: _relax(value, rewards + backup.gamma * (matrix @ value), omega, out)


def _relax(value: Floats, image: Floats, omega: float, out: Floats) -> tuple[float, float]:
    change = image - value
    out[:] = image if omega == 1.0 else value + omega * change
    return float(change.min()), float(change.max())
