"""Aggregate many runs on many tasks (Agarwal et al., 2021): scores (..., runs, tasks) -> (...)."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def mean(scores: Array) -> Array:
    """Return the mean over tasks of the mean over runs. A task with huge scores dominates it."""
    return np.asarray(np.mean(scores, axis=(-2, -1)))


def median(scores: Array) -> Array:
    """Return the median over tasks of the mean over runs, as is usual on Atari. Half of the tasks have no effect."""
    return np.asarray(np.median(np.mean(scores, axis=-2), axis=-1))


def iqm(scores: Array) -> Array:
    """Return the interquartile mean: the mean of the middle half of all runs on all tasks."""
    from scipy.stats import trim_mean

    pooled = scores.reshape(*scores.shape[:-2], -1)  # (..., runs * tasks)
    return np.asarray(trim_mean(pooled, 0.25, axis=-1))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """Return how far runs fall short of `target` (1: human level) on average. Runs above it count as at it."""
    return np.asarray(target - mean(np.minimum(scores, target)))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Return the fraction of runs above each threshold, with equal weight for every task: (..., thresholds)."""
    above = scores[..., None, :, :] > np.asarray(thresholds)[:, None, None]  # (..., thresholds, runs, tasks)
    return mean(above)
