"""An eta that chooses itself, and never costs much.

In the coordinates U = (1 + eta) V, where BSRS is relaxed value iteration and the fixed point is V* whatever eta is,
eta may change from step to step: U <- U + (1 + eta_n) (B U - U). Each rule below looks at the last few points and
proposes the next one:

- `aitken`: the omega = 1 + eta that would have made the last residual least, by the secant through two points;
- `aitken-states`: the same in each state, an eta_n(s);
- `anderson`: the combination of the last m + 1 points with the least residual. Read as shaping, it is value
  iteration under a potential that grows by U_{n+1} - B U_n in every step;
- `spectral`: the best constant eta for the spectrum that the last residuals show (their Ritz values).

The safeguard is a bookkeeping of applications, accepted proposals and refused ones alike. Two facts bound what plain
iteration would have needed and what it still needs:

- from a residual r it needs at most the n with gamma^n r < tol, wherever one stands;
- if every state's residual is at least b > 0 (or all at most -b) and no episode ends, it needs at least the n with
  gamma^n b < tol, because B carries a constant through, times gamma.

As long as the applications so far, plus those still needed at most, stay below 1.1 times those needed at least plus
ten, any proposal may be tried. Where the second fact says nothing (values still travel, episodes end), plain iteration
is carried on next to the proposals, which then get one application for every ten of its own, and ten to begin with.
Either way the count ends below 1.1 times that of plain iteration, plus ten.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from bsrs.errors import BadInput, unknown
from bsrs.tabular.backup import Backup, Found, Point, Trail
from bsrs.tabular.mdp import Floats

Complexes = npt.NDArray[np.complexfloating[Any]]
# The promise: at most (1 + SHARE) times plain iteration's applications, plus ALLOWANCE.
SHARE, ALLOWANCE = 0.1, 10
# After a proposal was refused n times in a row, wait for PATIENCE^n plain steps before the next one.
PATIENCE = 1.5


# --------------------------------------------------------------------------------------------------------------
# Rules: the last points, oldest first, and gamma -> the next value function, or None if the points do not tell.

Rule = Callable[[Sequence[Point], float], Floats | None]


def aitken(points: Sequence[Point], gamma: float) -> Floats | None:
    """Aitken's dynamic relaxation: the secant omega through the last two points."""
    step, bend = points[-1].value - points[-2].value, points[-1].change - points[-2].change
    curvature = float(bend @ bend)
    if curvature == 0.0:
        return None
    return _relaxed(points[-1], -float(step @ bend) / curvature, gamma)


def aitken_states(points: Sequence[Point], gamma: float) -> Floats | None:
    """The secant omega in each state on its own; one where the residual did not move."""
    step, bend = points[-1].value - points[-2].value, points[-1].change - points[-2].change
    omega = np.divide(-step, bend, out=np.ones_like(bend), where=bend != 0.0)
    return _relaxed(points[-1], omega, gamma)


def anderson(points: Sequence[Point], gamma: float) -> Floats | None:
    """Anderson mixing: minimise the residual over the affine hull of the points, then apply B to the minimiser."""
    bends = np.diff([point.change for point in points], axis=0)  # (m, S)
    lengths = np.sqrt((bends * bends).sum(axis=1))
    moved = lengths > 0.0
    if not moved.any():
        return None
    unit = bends[moved] / lengths[moved, None]
    weights = np.linalg.lstsq(unit @ unit.T, unit @ points[-1].change, rcond=1e-12)[0] / lengths[moved]
    images = np.diff([point.image for point in points], axis=0)[moved]
    return np.asarray(points[-1].image - weights @ images)


def spectral(points: Sequence[Point], gamma: float) -> Floats | None:
    """The best constant omega for the Ritz values of I - gamma P in the span of the last steps."""
    steps = np.diff([point.value for point in points], axis=0)  # (m, S), and I - gamma P maps them to -bends
    bends = np.diff([point.change for point in points], axis=0)
    lengths = np.sqrt((steps * steps).sum(axis=1, keepdims=True))
    if not lengths.all():
        return None
    # Directions that the steps hardly span would show noise as eigenvalues: they are left out.
    axes, sizes, basis = np.linalg.svd(steps / lengths, full_matrices=False)
    seen = sizes > 1e-6 * sizes[0]
    mapped = -(axes[:, seen] / sizes[seen]).T @ (bends / lengths)
    return _relaxed(points[-1], best_relaxation(np.linalg.eigvals(mapped @ basis[seen].T))[0], gamma)


def largest_relaxation(mu: Complexes) -> float:
    """The omega beyond which |1 - omega mu| >= 1 for one of the mu: the limit of stability."""
    return float((2.0 * mu.real / np.abs(mu) ** 2).min())


def best_relaxation(mu: Complexes) -> tuple[float, float]:
    """The omega that minimises max |1 - omega mu|, and that maximum: convex, so a bounded scalar search finds it."""
    found = minimize_scalar(
        lambda omega: float(np.abs(1.0 - omega * mu).max()),
        bounds=(0.0, max(largest_relaxation(mu), 0.0)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(found.x), float(found.fun)


def _relaxed(point: Point, omega: float | Floats, gamma: float) -> Floats:
    """U + omega (B U - U), with omega between the extremes 1 / (1 - gamma lam) for lam from -1 to 1."""
    return np.asarray(point.value + np.clip(omega, 1.0 / (1.0 + gamma), 1.0 / (1.0 - gamma)) * point.change)


# name -> the rule, and how many points it looks at (None: as many as the caller says)
RULES: dict[str, tuple[Rule, int | None]] = {
    "aitken": (aitken, 2),
    "aitken-states": (aitken_states, 2),
    "anderson": (anderson, None),
    "spectral": (spectral, 8),
}


# --------------------------------------------------------------------------------------------------------------
# The safeguard.


def accelerate(
    backup: Backup,
    start: Floats,
    name: str,
    *,
    tol: float,
    max_steps: int,
    memory: int = 5,
    watch: Callable[[int, float], None] | None = None,
) -> Found:
    """Iterate from `start` with the rule of this name until the sup-norm of B U - U is below `tol`.

    `memory` is Anderson's m; `watch` is called with the count of applications and the residual.
    """
    if name not in RULES:
        raise unknown("eta", name, RULES)
    if memory < 1:
        raise BadInput(f"memory is {memory}; expected at least 1")
    rule, n_points = RULES[name]
    run = _Run(backup, start, rule, n_points or memory + 1, tol)
    while run.best.residual >= tol and run.ledger.applications < max_steps:
        run.step()
        if watch is not None:
            watch(run.ledger.applications, run.best.residual)
    etas, trail = [], run.best.trail
    while trail is not None:
        eta, trail = trail
        etas.append(eta)
    return Found(run.best.value, run.best.residual < tol, np.array(run.residuals), np.array(etas[::-1]))


class _Ledger:
    """Counts applications and says what may be risked without breaking the promise."""

    def __init__(self, gamma: float, tol: float, constants_pass: bool) -> None:
        self._gamma, self._tol, self._constants_pass = gamma, tol, constants_pass
        self.applications = 0
        self._plain_steps = 0
        self._at_least = 0  # applications that plain iteration needs at least

    def count_plain(self, point: Point) -> None:
        """One more step of plain iteration from the start has been made, and this is its point."""
        self._plain_steps += 1
        bound = max(point.low, -point.high) if self._constants_pass else 0.0
        self._at_least = max(self._at_least, self._plain_steps + self._steps_from(bound))

    def may_risk_one(self, residual: float) -> bool:
        """Whether an application may be lost, if plain iteration from this residual, or from the start, can follow."""
        beside_plain = self.applications - self._plain_steps + 1 <= SHARE * self._plain_steps + ALLOWANCE
        return self.covers(residual, 1) or beside_plain

    def covers(self, residual: float, lost: int = 0) -> bool:
        """Whether plain iteration from this residual ends in time, even with some more applications lost."""
        return self.applications + lost + self._steps_from(residual) <= (1 + SHARE) * self._at_least + ALLOWANCE

    def _steps_from(self, residual: float) -> int:
        """The least n with gamma^n residual < tol."""
        if residual < self._tol:
            return 0
        return 1 if self._gamma == 0.0 else math.floor(math.log(self._tol / residual) / math.log(self._gamma)) + 1


class _Run:
    """Plain iteration from the start, and the best point that the rule has found, which may be plain iteration's."""

    def __init__(self, backup: Backup, start: Floats, rule: Rule, n_points: int, tol: float) -> None:
        self._backup, self._rule, self._n_points = backup, rule, n_points
        self.ledger = _Ledger(backup.gamma, tol, not backup.mdp.may_end)
        self.residuals: list[float] = []
        self._points: list[Point] = []
        self._refused = 0  # proposals in a row
        self._wait = 0  # plain steps before the next proposal
        self._plain = self.best = self._accepted(self._evaluate(start, None))
        self.ledger.count_plain(self._plain)

    def step(self) -> None:
        """One application of the operator: of a proposal, if there is one that may be tried, or a plain one."""
        proposal = self._proposal()
        if proposal is not None:
            self._try(proposal)
        elif self.best is not self._plain and self.ledger.covers(self.best.residual):
            self.best = self._accepted(self._plain_step(self.best))
        else:
            leads = self.best is self._plain
            self._plain = self._plain_step(self._plain)
            self.ledger.count_plain(self._plain)
            if leads or self._plain.residual <= self.best.residual:
                self.best = self._accepted(self._plain)

    def _proposal(self) -> Floats | None:
        if self._wait > 0 or len(self._points) < 2 or not self.ledger.may_risk_one(self.best.residual):
            return None
        return self._rule(self._points, self._backup.gamma)

    def _try(self, proposal: Floats) -> None:
        """Keep the proposal if it brings the residual down at least as plain iteration is sure to."""
        origin = self.best
        step, change = proposal - origin.value, origin.change
        eta = float(step @ change) / float(change @ change) - 1.0
        point = self._evaluate(proposal, (eta, origin.trail))
        if point.residual <= self._backup.gamma * origin.residual:
            self.best = self._accepted(point)
            self._refused = 0
        else:
            self._refused += 1
            self._wait = int(PATIENCE**self._refused)

    def _plain_step(self, point: Point) -> Point:
        self._wait -= 1
        return self._evaluate(point.image, (0.0, point.trail))

    def _evaluate(self, value: Floats, trail: Trail) -> Point:
        self.ledger.applications += 1
        point = self._backup(value, trail)
        self.residuals.append(point.residual)
        return point

    def _accepted(self, point: Point) -> Point:
        self._points = [*self._points, point][-self._n_points :]
        return point
