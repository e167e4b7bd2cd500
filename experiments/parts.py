"""DQN and TD3 with some of the parts that BSRS consists of. docs/why-it-works.md has the algebra."""

from typing import Any

import torch
from torch import Tensor

from bsrs.agents.agent import Batch
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.off_policy import OffPolicyAgent
from bsrs.agents.targets import discount_of, q_of_action, state_value
from bsrs.agents.td3 import TD3Agent
from experiments.variant_configs import DQNVariantConfig, TD3VariantConfig


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
    """Return the target whose TD error is `w * (c*r + gamma*[(1-b)*Vt(s') + b*V(s')] - Q - a*(V(s) - Q))`.

    Q-learning is c = w = 1, a = b = 0. BSRS is w = 1+eta, c = 1/w, a = b = eta/w, and then this is the TD target of the
    shaped reward. `discount` is that of the bootstrap Vt(s'), `potential_discount` that of the potential's V(s').
    """
    mixed = discount * (1 - b) * bootstrap + potential_discount * b * next_value
    return w * (c * reward + mixed - a * (value - q)) - (w - 1) * q


def part_coefficients(eta: Tensor, parts: str) -> dict[str, Tensor]:
    """Return the settings of `parts_target` for BSRS at `eta`, with the parts that are named."""
    w = 1 + eta
    zero = torch.zeros_like(w)
    return {
        "c": 1 / w if "c" in parts else zero + 1,
        "a": eta / w if "a" in parts else zero,
        "b": eta / w if "b" in parts else zero,
        "w": w,
    }


def target_by_parts(
    agent: OffPolicyAgent[Any], batch: Batch, q: Tensor, value: Tensor, next_value: Tensor, bootstrap: Tensor, step: int
) -> Tensor:
    """Return the agent's target with the parts that its config names. Q is (P, B), or (P, n, B) for n critics."""
    eta = torch.tensor([shaper.coefficients(step)[0] for shaper in agent.shapers], dtype=q.dtype, device=q.device)
    ended, kept = batch.terminated, agent.config.terminal == "keep"
    given = {
        "reward": batch.reward, "value": value, "next_value": next_value, "bootstrap": bootstrap,
        "discount": discount_of(ended, agent.config.gamma, batch.steps),
        "potential_discount": discount_of(ended & (not kept), agent.config.gamma, batch.steps),
        **part_coefficients(eta.reshape(-1, 1), agent.config.parts),
    }  # fmt: skip
    if q.ndim == 3:
        given = {name: tensor.unsqueeze(1) for name, tensor in given.items()}
    return parts_target(q=q, **given)


class DQNParts(DQNAgent):
    config: DQNVariantConfig

    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        value, next_value = state_value(q_all), state_value(self.online(batch.next_obs))  # (P, B)
        bootstrap = state_value(self.target(batch.next_obs))
        q = q_of_action(q_all, batch.action)
        target = target_by_parts(self, batch, q, value, next_value, bootstrap, step)
        return target, target - self.plain_target(batch, bootstrap)


class TD3Parts(TD3Agent):
    config: TD3VariantConfig

    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return a target for each critic, because its own Q is in it."""
        bootstrap = self.min_q(batch.next_obs, self.smoothed_action(batch), target=True)  # (P, B)
        value, next_value = (self.min_q(obs, self.mean_action(obs)) for obs in (batch.obs, batch.next_obs))
        target = target_by_parts(self, batch, q, value, next_value, bootstrap, step)  # (P, n, B)
        return target, target.mean(dim=1) - self.plain_target(batch, bootstrap)
