"""Pure functions of Q-learning on tensors: no state, no side effect. The last axis of `q` holds the actions."""

from __future__ import annotations

import torch
from torch import Tensor


def value_of(q: Tensor, temperature: float = 0.0) -> Tensor:
    """V(s): the largest Q, or its soft version `tau * logsumexp(Q / tau)`."""
    if temperature == 0:
        return q.amax(dim=-1)  # (..., A) -> (...)
    return temperature * torch.logsumexp(q / temperature, dim=-1)


def double_value(q_online: Tensor, q_target: Tensor) -> Tensor:
    """Double DQN: the target network's Q at the action that the online network prefers."""
    return q_target.gather(-1, q_online.argmax(dim=-1, keepdim=True)).squeeze(-1)


def td_target(reward: Tensor, next_value: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """`r + gamma * V(s')`, and `r` alone after a true end."""
    return reward + gamma * next_value * (terminated == 0)


def chosen(q: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) of the actions taken."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def advantage(q: Tensor, action: Tensor) -> Tensor:
    """A(s, a) = Q(s, a) - max Q(s, .): at most zero."""
    return chosen(q, action) - value_of(q)
