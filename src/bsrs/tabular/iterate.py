"""The paper's iteration: the self-shaped operator with a constant eta, for K tables side by side.

A step is one application; it has converged when two Q tables differ by less than the tolerance in the sup-norm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from bsrs.errors import BadInput
from bsrs.tabular.backup import is_large
from bsrs.tabular.layouts import require
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import shaped_bellman

Outcome = Literal["converged", "diverged", "exhausted"]
# Called with the number of applications and the residual during a solve.
Watch = Callable[[int, float], None]

# An iterate that has moved this many times further than its first step will not come back.
DIVERGENCE = 1e8


@dataclass(frozen=True, eq=False)
class Batch:
    """The ends of K iterations that ran side by side."""

    q: Floats  # (K, S, A)
    applications: Ints  # (K,)
    residuals: Floats  # (most applications, K), NaN after a run's end
    outcomes: list[Outcome]
    temperature: float


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
    threads: int | None = None,
    watch: Watch | None = None,
) -> Batch:
    """K iterations at once: `eta` is (K,) or (K, S), `init` is (K, S, A). Each one stops on its own."""
    check_gamma(gamma)
    first = np.asarray(init)
    scales = np.asarray(eta, dtype=np.float64)
    _check_batch(mdp, first, scales, tol)
    require(6 * first.size * np.dtype(dtype).itemsize, f"solving {len(first)} tables of {mdp.n_states:,} states")
    scales = scales.T if scales.ndim == 2 else scales[None]  # (S or 1, K)
    start = np.array(np.moveaxis(first, 0, -1), dtype=dtype, order="C")
    if temperature == 0.0 and is_large(mdp):
        return _iterate(_KernelRuns(mdp, gamma, start, scales.astype(dtype), threads), tol, max_steps, watch)
    return _iterate(_SciPyRuns(mdp, gamma, start, scales, temperature), tol, max_steps, watch)


def _check_batch(mdp: MDP, init: Floats, eta: Floats, tol: float) -> None:
    if init.ndim != 3 or init.shape[1:] != mdp.rewards.shape:
        raise BadInput(f"init has shape {init.shape[1:]}; expected {mdp.rewards.shape}, one number a state and action")
    if eta.shape not in ((len(init),), (len(init), mdp.n_states)):
        raise BadInput(f"eta has shape {eta.shape[1:]}; expected a number or one per state, ({mdp.n_states},)")
    if not np.isfinite(eta).all():
        raise BadInput("eta holds a number that is not finite")
    if not tol > 0:
        raise BadInput(f"tol is {tol}; expected a positive number")


class _SciPyRuns:
    """Iterations that go on side by side, with `q` of shape (S, A, running)."""

    def __init__(self, mdp: MDP, gamma: float, q: Floats, scales: Floats, temperature: float) -> None:
        self.q, self._scales = q, scales
        self._mdp, self._gamma, self.temperature = mdp, gamma, temperature

    def step(self) -> Floats:
        """Apply the operator once to each; the sup-norms of the changes, (running,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            new = shaped_bellman(self._mdp, self._gamma, self.q, self._scales, temperature=self.temperature)
            change = np.abs(new - self.q).max(axis=(0, 1))
        self.q = new
        return cast(Floats, change)

    def keep(self, running: npt.NDArray[np.bool_]) -> None:
        """Go on with these only."""
        self.q, self._scales = self.q[..., running], self._scales[:, running]


class _KernelRuns:
    """The same, one run after the other within a step: each has its arrays in one piece, (running, S, A)."""

    temperature = 0.0

    def __init__(self, mdp: MDP, gamma: float, q: Floats, scales: Floats, threads: int | None) -> None:
        from bsrs.tabular import kernels

        kernels.set_threads(threads)
        self._step, self._gamma = kernels.shaped_step, gamma
        self._table = kernels.compact(mdp, q.dtype)
        self._q, self._scales = (np.ascontiguousarray(np.moveaxis(part, -1, 0)) for part in (q, scales))
        self._value = self._q.max(axis=2)
        self._make_room()

    @property
    def q(self) -> Floats:
        return np.moveaxis(self._q, 0, -1)

    def _make_room(self) -> None:
        self._scaled = (1 + self._scales) * self._value
        self._next = np.empty_like(self._value), np.empty_like(self._value)

    def step(self) -> Floats:
        parts = zip(self._scales, self._value, self._scaled, self._q, zip(*self._next, strict=True), strict=True)
        with np.errstate(over="ignore", invalid="ignore"):
            change = [self._step(self._table, self._gamma, *part) for part in parts]
        (self._value, self._scaled), self._next = self._next, (self._value, self._scaled)
        return np.array(change)

    def keep(self, running: npt.NDArray[np.bool_]) -> None:
        self._q, self._scales, self._value = self._q[running], self._scales[running], self._value[running]
        self._make_room()


def _iterate(runs: _SciPyRuns | _KernelRuns, tol: float, max_steps: int, watch: Watch | None) -> Batch:
    """Step until every run has converged or diverged; one that has leaves the others."""
    n_states, n_actions, n_runs = runs.q.shape
    q = np.empty((n_runs, n_states, n_actions), dtype=runs.q.dtype)
    applications = np.zeros(n_runs, dtype=np.int64)
    outcomes: list[Outcome] = ["exhausted"] * n_runs
    history: list[Floats] = []
    running = np.arange(n_runs)
    while len(running) and len(history) < max_steps:
        residual = runs.step()
        applications[running] += 1
        history.append(np.full(n_runs, np.nan))
        history[-1][running] = residual
        if watch is not None:
            watch(len(history), float(residual.max()))
        converged = residual < tol
        diverged = ~(residual <= DIVERGENCE * np.maximum(history[0][running], tol))
        ended = converged | diverged
        if ended.any():
            for run, success in zip(running[ended], converged[ended], strict=True):
                outcomes[run] = "converged" if success else "diverged"
            q[running[ended]] = np.moveaxis(runs.q[..., ended], -1, 0)
            running = running[~ended]
            runs.keep(~ended)
    q[running] = np.moveaxis(runs.q, -1, 0)
    return Batch(q, applications, np.array(history).reshape(-1, n_runs), outcomes, runs.temperature)
