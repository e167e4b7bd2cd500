"""TD targets as pure functions on tensors. The last axis of `q` over actions holds the actions."""

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


def chosen(q: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) of the actions taken."""
    return q.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def advantage(q: Tensor, action: Tensor) -> Tensor:
    """A(s, a) = Q(s, a) - max Q(s, .): at most zero."""
    return chosen(q, action) - value_of(q)


def parts_target(
    reward: Tensor,
    q: Tensor,
    value: Tensor,
    next_value: Tensor,
    bootstrap: Tensor,
    *,
    discount: Tensor,
    potential_discount: Tensor,
    c: Tensor | float = 1.0,
    a: Tensor | float = 0.0,
    b: Tensor | float = 0.0,
    w: Tensor | float = 1.0,
) -> Tensor:
    """The target whose TD error is `w * (c*r + gamma*[(1-b)*Vt(s') + b*V(s')] - Q - a*(V(s) - Q))`.

    Plain Q-learning is c = w = 1, a = b = 0. BSRS is w = 1+eta, c = 1/w, a = b = eta/w, and then this is the TD
    target of the shaped reward. The discounts are gamma, and zero after a true end: of the bootstrap Vt(s'), and
    of the potential's V(s'), which the authors' code kept there. `q` is Q(s, a), taken as a constant.
    """
    mixed = discount * (1 - b) * bootstrap + potential_discount * b * next_value
    return w * (c * reward + mixed - a * (value - q)) - (w - 1) * q


def part_coefficients(eta: Tensor, keeps_c: Tensor, keeps_a: Tensor, keeps_b: Tensor) -> dict[str, Tensor]:
    """The settings of `parts_target` for BSRS at `eta`, reduced to the parts that are kept."""
    w = 1 + eta
    share = eta / w
    zero = torch.zeros_like(share)
    return {
        "c": torch.where(keeps_c, 1 / w, zero + 1),
        "a": torch.where(keeps_a, share, zero),
        "b": torch.where(keeps_b, share, zero),
        "w": w,
    }
