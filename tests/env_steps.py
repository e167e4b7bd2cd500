"""Copies of what a step of `Envs` writes into its buffers, for tests that look back at earlier steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bsrs.envs import Envs, Episode


class Step(NamedTuple):
    """One step of n envs: its arrays, which later steps leave alone, and the real episodes that ended."""

    obs: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episodes: list[Episode]


def step(envs: Envs, action: Any) -> Step:
    """Act in every env."""
    episodes = envs.step(np.asarray(action))
    return Step(*(array.copy() for array in envs.buffers), episodes)


def same_step(first: Step, second: Step) -> bool:
    """Whether two steps are equal in every bit."""
    return first.episodes == second.episodes and all(map(np.array_equal, first[:-1], second[:-1]))
