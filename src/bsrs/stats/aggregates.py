"""Aggregate many runs on many tasks (Agarwal et al., 2021): scores (..., runs, tasks) -> (...)."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def mean(scores: Array) -> Array:
    """Average over tasks the mean over runs. One task with huge scores decides it."""
    return np.asarray(np.mean(scores, axis=(-2, -1)))


def median(scores: Array) -> Array:
    """Take the median over tasks of the mean over runs, as usual on Atari. Half of the tasks do not matter to it."""
    return np.asarray(np.median(np.mean(scores, axis=-2), axis=-1))


def iqm(scores: Array) -> Array:
    """Average the middle half of all runs on all tasks (interquartile mean)."""
    from scipy.stats import trim_mean

    pooled = scores.reshape(*scores.shape[:-2], -1)  # (..., runs * tasks)
    return np.asarray(trim_mean(pooled, 0.25, axis=-1))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """Average how far the runs fall short of `target` (1: human level); better runs do not make up for worse ones."""
    return np.asarray(target - mean(np.minimum(scores, target)))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Compute the share of runs that score above each threshold, every task counting the same: (..., thresholds)."""
    above = scores[..., None, :, :] > np.asarray(thresholds)[:, None, None]  # (..., thresholds, runs, tasks)
    return mean(above)
