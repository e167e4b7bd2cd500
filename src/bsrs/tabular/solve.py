"""Solving a table by repeating an operator until nothing moves, and saying honestly how that ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsrs.errors import BadInput
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma
from bsrs.tabular.operators import greedy_policy, shaped_bellman, state_value

Outcome = Literal["converged", "diverged", "exhausted"]

# An iterate that has moved this many times further than its first step will not come back.
DIVERGENCE = 1e8


@dataclass(frozen=True, eq=False)
class Solution:
    """What the iteration found, and how it got there."""

    q: Floats  # (S, A) fixed point of the operator that was iterated: shaped, if eta is not zero
    value: Floats  # (S,) its maximum over actions
    policy: Ints  # (S,)
    applications: int
    residuals: Floats  # (applications,) sup-norm between iterates
    outcome: Outcome
    eta: float | Floats
    gamma: float

    @property
    def optimal_value(self) -> Floats:
        """(S,) the value in the unshaped problem, (1 + eta) times the shaped one."""
        return (1.0 + np.asarray(self.eta)) * self.value


def solve(
    mdp: MDP,
    gamma: float,
    *,
    eta: float | npt.ArrayLike = 0.0,
    init: npt.ArrayLike | None = None,
    tol: float = 1e-6,
    max_steps: int = 100_000,
    temperature: float = 0.0,
) -> Solution:
    """Apply the self-shaped operator until two iterates differ by less than `tol` in the sup-norm.

    `eta` is a number or one per state; `init` the first Q, (S, A) or a number (default zero).
    """
    scale = np.asarray(eta, dtype=np.float64)
    start = np.zeros(mdp.rewards.shape) if init is None else np.asarray(init, dtype=np.float64)
    batch = solve_many(
        mdp,
        gamma,
        eta=scale[None],
        init=np.broadcast_to(start, mdp.rewards.shape)[None],
        tol=tol,
        max_steps=max_steps,
        temperature=temperature,
    )
    q = batch.q[0]
    return Solution(
        q=q,
        value=state_value(q, temperature),
        policy=greedy_policy(q),
        applications=int(batch.applications[0]),
        residuals=batch.residuals[: batch.applications[0], 0],
        outcome=batch.outcomes[0],
        eta=float(scale) if scale.ndim == 0 else scale,
        gamma=gamma,
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """The ends of K iterations that ran side by side."""

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
) -> Batch:
    """K iterations at once: `eta` is (K,) or (K, S), `init` is (K, S, A). Each one stops on its own."""
    check_gamma(gamma)
    first = np.asarray(init, dtype=np.float64)
    scales = np.asarray(eta, dtype=np.float64)
    _check_batch(mdp, first, scales, tol)
    scales = scales.T if scales.ndim == 2 else scales[None]  # (S or 1, K)

    def operator(q: Floats, running: Ints) -> Floats:
        return shaped_bellman(mdp, gamma, q, scales[:, running], temperature=temperature)

    return _iterate(operator, np.moveaxis(first, 0, -1).copy(), tol, max_steps)


def _check_batch(mdp: MDP, init: Floats, eta: Floats, tol: float) -> None:
    if init.ndim != 3 or init.shape[1:] != mdp.rewards.shape:
        raise BadInput(f"init has shape {init.shape[1:]}; expected {mdp.rewards.shape}, one number a state and action")
    if eta.shape not in ((len(init),), (len(init), mdp.n_states)):
        raise BadInput(f"eta has shape {eta.shape[1:]}; expected a number or one per state, ({mdp.n_states},)")
    if not tol > 0:
        raise BadInput(f"tol is {tol}; expected a positive number")


def _iterate(operator: Callable[[Floats, Ints], Floats], q: Floats, tol: float, max_steps: int) -> Batch:
    """Repeat `operator` on the columns that are still running; a column leaves when it converged or diverged."""
    n_runs = q.shape[-1]
    applications = np.zeros(n_runs, dtype=np.int64)
    outcomes: list[Outcome] = ["exhausted"] * n_runs
    history: list[Floats] = []
    running = np.arange(n_runs)
    while len(running) and len(history) < max_steps:
        with np.errstate(over="ignore", invalid="ignore"):
            new = operator(q[..., running], running)
            residual = np.abs(new - q[..., running]).max(axis=(0, 1))
        q[..., running] = new
        applications[running] += 1
        row = np.full(n_runs, np.nan)
        row[running] = residual
        history.append(row)
        converged = residual < tol
        diverged = ~(residual <= DIVERGENCE * np.maximum(history[0][running], tol))
        for kind, mask in (("converged", converged), ("diverged", diverged)):
            for run in running[mask]:
                outcomes[run] = kind  # type: ignore[assignment]
        running = running[~(converged | diverged)]
    residuals = np.array(history).reshape(-1, n_runs)
    return Batch(np.moveaxis(q, -1, 0), applications, residuals, outcomes)
