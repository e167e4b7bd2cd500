"""The eigenvalues that decide how fast a relaxed iteration converges, and the constant that suits them best."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

Complexes = npt.NDArray[np.complexfloating[Any]]


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
