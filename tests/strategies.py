"""Hypothesis strategies: random MDPs, discounts and tables, with and without termination."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from bsrs.rng import stream
from bsrs.tabular import MDP

gammas = st.floats(0.0, 0.95)
seeds = st.integers(0, 2**20)


@st.composite
def mdps(draw: st.DrawFn, terminating: bool | None = None) -> MDP:
    """Up to six states and three actions; some have steps that end the episode, always or with some probability."""
    n_states, n_actions = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    numbers = stream(draw(seeds), "test mdp")
    weights = numbers.random((n_states, n_actions, n_states)) ** draw(st.sampled_from([1, 8]))
    p = weights / weights.sum(axis=2, keepdims=True)
    ends = draw(st.booleans()) if terminating is None else terminating
    terminates = numbers.choice([0.0, 0.3, 1.0], size=(n_states, n_actions)) if ends else np.zeros(p.shape[:2])
    rewards = numbers.standard_normal((n_states, n_actions))
    return MDP(p * (1 - terminates)[:, :, None], rewards, terminates=terminates, layout="SAS")


def table(seed: int, *shape: int) -> np.ndarray:
    """Random numbers of a shape, for first Q tables, potentials and the like."""
    return stream(seed, "test table").standard_normal(shape)


@st.composite
def proven_etas(draw: st.DrawFn, gamma: float) -> float:
    """An eta well inside the range for which the paper proves convergence."""
    return draw(st.floats(-0.9, 0.95 * (1 - gamma) / (1 + gamma)))
