"""Pieces of TD targets, as pure functions on tensors. The last axis of `q` holds the actions."""

import torch
from torch import Tensor


def state_value(q: Tensor, temperature: float = 0.0) -> Tensor:
    """V(s): the largest Q, or its soft version `tau * logsumexp(Q / tau)`."""
    if temperature == 0:
        return q.amax(dim=-1)  # (..., A) -> (...)
    return temperature * torch.logsumexp(q / temperature, dim=-1)


def double_value(q_online: Tensor, q_target: Tensor) -> Tensor:
    """Double DQN: the target network's Q at the action that the online network prefers."""
    return q_target.gather(-1, q_online.argmax(dim=-1, keepdim=True)).squeeze(-1)


def q_of_action(q: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) of the actions taken: (..., A), (...) -> (...)."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def discount_of(terminated: Tensor, gamma: float, steps: Tensor | None = None) -> Tensor:
    """How much V(s') counts: gamma for each step of the transition, zero after a terminal state."""
    return torch.where(terminated, 0.0, gamma if steps is None else gamma**steps)
