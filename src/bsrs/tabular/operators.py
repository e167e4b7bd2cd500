"""Bellman operators on tables, with and without shaping, with the maximum or the soft maximum.

Arrays may carry a trailing batch axis K (many etas and initialisations at once): values (S,) or (S, K),
action values (S, A) or (S, A, K). Trailing, because the K numbers of a state then lie side by side in memory.
"""

from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from bsrs.errors import BadInput
from bsrs.shaping import shaped_reward
from bsrs.tabular.mdp import MDP, Floats, Ints


def state_value(q: Floats, temperature: float = 0.0) -> Floats:
    """Return V from Q: the maximum over actions, or the soft maximum at a positive temperature."""
    if temperature == 0.0:
        return cast(Floats, q.max(axis=1))
    return cast(Floats, temperature * logsumexp(q / temperature, axis=1))


def greedy_policy(q: Floats) -> Ints:
    """Return the first best action of each state."""
    return cast(Ints, q.argmax(axis=1))


def expected_next(mdp: MDP, value: Floats) -> Floats:
    """Return E[value(s')] for each state and action. The value after termination is zero."""
    return cast(Floats, (mdp.transitions @ value).reshape(mdp.n_states, mdp.n_actions, *value.shape[1:]))


def bellman(mdp: MDP, gamma: float, q: Floats, *, temperature: float = 0.0) -> Floats:
    """Apply the Bellman operator: r + gamma E V(s')."""
    return _rewards(mdp, q) + gamma * expected_next(mdp, state_value(q, temperature))


def shaped_bellman(mdp: MDP, gamma: float, q: Floats, eta: npt.ArrayLike, *, temperature: float = 0.0) -> Floats:
    """Apply the paper's self-shaped operator: the Bellman operator on rewards shaped by eta * V.

    `eta` is a number, one per state (S,), or, with a batch axis on `q`, anything that broadcasts to (S, K).
    """
    value = state_value(q, temperature)
    potential = _scale(eta, value) * value
    shaped = shaped_reward(
        _rewards(mdp, q),
        np.broadcast_to(potential[:, None], q.shape),
        expected_next(mdp, potential),
        eta=1.0,
        gamma=gamma,
    )
    return cast(Floats, shaped + gamma * expected_next(mdp, value))


def relaxed_bellman(mdp: MDP, gamma: float, value: Floats, eta: npt.ArrayLike, *, temperature: float = 0.0) -> Floats:
    """Apply the self-shaped operator to U = (1 + eta) V: U + (1 + eta) (B U - U), or over-relaxed value iteration.

    The fixed point is the optimal value for every eta, so eta may change from step to step.
    """
    backed_up = state_value(mdp_rewards(mdp, value) + gamma * expected_next(mdp, value), temperature)
    return cast(Floats, value + (1.0 + _scale(eta, value)) * (backed_up - value))


def mdp_rewards(mdp: MDP, value: Floats) -> Floats:
    """(S, A) rewards with as many trailing axes as `value` has batch axes."""
    return mdp.rewards.reshape(*mdp.rewards.shape, *[1] * (value.ndim - 1))


def _rewards(mdp: MDP, q: Floats) -> Floats:
    return np.broadcast_to(mdp_rewards(mdp, q[:, 0]), q.shape)


def _scale(eta: npt.ArrayLike, value: Floats) -> Floats:
    """eta as an array that broadcasts against `value`, or a sentence that says which shape was expected."""
    scale = np.asarray(eta, dtype=value.dtype)
    try:
        fits = np.broadcast_shapes(scale.shape, value.shape) == value.shape
    except ValueError:
        fits = False
    if not fits:
        raise BadInput(f"eta has shape {scale.shape}; expected a number or one per state, {value.shape}")
    if not np.isfinite(scale).all():
        raise BadInput("eta holds a number that is not finite")
    return scale
