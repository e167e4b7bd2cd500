"""Summaries of learning curves. steps: (steps,), values: (..., steps) -> (...)."""

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats.aggregates import Array


def area_under_curve(steps: Array, values: Array) -> Array:
    """Return the mean score over training: the area under the curve divided by its length."""
    from scipy.integrate import trapezoid

    steps, values = _curve(steps, values)
    if len(steps) == 1:
        return np.asarray(values[..., 0])
    return np.asarray(trapezoid(values, steps, axis=-1) / (steps[-1] - steps[0]))


def steps_to_threshold(steps: Array, values: Array, threshold: float) -> Array:
    """Return the first evaluated step with a score of at least `threshold`; infinite if there is none."""
    steps, values = _curve(steps, values)
    return np.asarray(np.where(values >= threshold, steps, np.inf).min(axis=-1))


def final_score(steps: Array, values: Array, share: float = 0.1) -> Array:
    """Return the mean of the evaluations in the last `share` of training. A single one would be noisy."""
    steps, values = _curve(steps, values)
    return np.asarray(values[..., steps >= steps[-1] * (1 - share)].mean(axis=-1))


def _curve(steps: Array, values: Array) -> tuple[Array, Array]:
    steps, values = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if steps.ndim != 1 or not len(steps) or values.shape[-1:] != steps.shape:
        raise BadInput(f"a curve has {steps.shape} steps and {values.shape} values; expected a value for each step")
    if (np.diff(steps) <= 0).any():
        raise BadInput("the steps of a curve do not increase")
    return steps, values
