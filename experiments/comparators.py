"""What the field does to a TD target instead of shaping it, as variants of DQN and TD3.

- advantage learning and persistent advantage learning (Bellemare et al., 2016, arXiv:1512.04860);
- Munchausen reinforcement learning (Vieillard et al., 2020, arXiv:2007.14430);
- MINTO, the least of the online and the target network's bootstrap (Hendawy et al., 2025, arXiv:2510.02590);
- reward centering (Naik et al., 2024, arXiv:2405.09999), in episodic tasks as a constant potential;
- PopArt (van Hasselt et al., 2016, arXiv:1602.07714).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bsrs.agents.agent import Batch
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.off_policy import OffPolicyAgent, clip_grad_norm_per_member
from bsrs.agents.targets import discount_of, q_of_action, state_value
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import DQNConfig
from experiments.variant_configs import DQNVariantConfig, TD3VariantConfig

# ---- advantage learning


class DQNAdvantage(DQNAgent):
    config: DQNVariantConfig

    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        target, shaping = super().td_target(batch, q_all, step)
        q = self.target(batch.obs)  # (P, B, A)
        return target + self.config.comparator_alpha * (q_of_action(q, batch.action) - state_value(q)), shaping


class TD3Advantage(TD3Agent):
    config: TD3VariantConfig

    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        target, shaping = super().td_target(batch, q, step)
        best = torch.tanh(self.target_actor(batch.obs))  # (P, B, A)
        q_taken, q_best = (self.min_q(batch.obs, action, target=True) for action in (batch.action, best))
        return target + self.config.comparator_alpha * (q_taken - q_best).unsqueeze(1), shaping


# ---- persistent advantage learning: the larger of that target and of the value of repeating the action


class DQNPersistent(DQNAdvantage):
    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        target, shaping = super().td_target(batch, q_all, step)
        repeated = q_of_action(self.target(batch.next_obs), batch.action)
        return torch.maximum(target, self.plain_target(batch, repeated)), shaping


class TD3Persistent(TD3Advantage):
    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        target, shaping = super().td_target(batch, q, step)
        repeated = self.min_q(batch.next_obs, batch.action, target=True)
        return torch.maximum(target, self.plain_target(batch, repeated).unsqueeze(1)), shaping


# ---- Munchausen


class DQNMunchausen(DQNAgent):
    config: DQNVariantConfig
    softness = 0.03
    lowest = -1.0
    """Of the log-policy, as published."""

    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        q = self.target(batch.obs)  # (P, B, A)
        log_policy = q_of_action(q, batch.action) - state_value(q, self.softness)  # times the softness
        soft = state_value(self.target(batch.next_obs), self.softness)
        term = self.config.comparator_alpha * log_policy.clamp(self.lowest, 0.0)
        return self.plain_target(batch, soft) + term, torch.zeros_like(soft)


# ---- MINTO


class DQNMinto(DQNAgent):
    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        least = torch.minimum(self.online(batch.next_obs), self.target(batch.next_obs))  # (P, B, A)
        bootstrap = state_value(least)
        return self.plain_target(batch, bootstrap), torch.zeros_like(bootstrap)


class TD3Minto(TD3Agent):
    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        next_action = self.smoothed_action(batch)
        bootstrap = torch.minimum(*(self.min_q(batch.next_obs, next_action, target=each) for each in (True, False)))
        return self.plain_target(batch, bootstrap).unsqueeze(1), torch.zeros_like(bootstrap)


# ---- reward centering

CENTERING_RATE = 1e-3
"""Of the reward's mean, per gradient step."""


class RewardMean(nn.Module):
    """One member's mean reward, as its TD errors tell it."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))


class CentredRewards(OffPolicyAgent[Any]):
    """An agent that subtracts the mean reward, as the constant potential mean / (1 - gamma), which ends with the
    episode."""

    def build(self, configs: Sequence[Any]) -> None:
        super().build(configs)
        self.means = self.add_network("centering", [RewardMean() for _ in self.seeds], train=False)

    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        gamma = self.config.gamma
        average = torch.stack([member.mean for member in self.means])  # type: ignore[misc]  # (P, 1)
        discount = discount_of(batch.terminated, gamma, batch.steps)
        centred = batch._replace(reward=batch.reward - average * (1 - discount) / (1 - gamma))
        target, shaping = super().td_target(centred, q, step)  # type: ignore[misc]
        taken = q_of_action(q, batch.action) if isinstance(self, DQNAgent) else q  # TD3's critics are given the action
        for member, error in zip(self.means, target - taken, strict=True):  # (..., B)
            member.mean.add_(CENTERING_RATE * error.mean())  # type: ignore[operator]
        return target, shaping


class DQNCentering(CentredRewards, DQNAgent):
    """DQN with centred rewards."""


class TD3Centering(CentredRewards, TD3Agent):
    """TD3 with centred rewards."""


# ---- PopArt

POPART_RATE = 1e-4
SMALLEST_SPREAD = 1e-2


class PopArt(nn.Module):
    """A Q-network that learns in units of the targets' spread from their mean; Q stays when these units move."""

    mean: Tensor
    square: Tensor

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("square", torch.ones(1))

    @property
    def spread(self) -> Tensor:
        return (self.square - self.mean.square()).clamp(min=SMALLEST_SPREAD**2).sqrt()

    def forward(self, obs: Tensor) -> Tensor:
        q: Tensor = self.network(obs) * self.spread + self.mean
        return q

    @torch.no_grad()
    def learn(self, target: Tensor) -> None:
        """Move the units towards the targets (B,), and the last layer with them."""
        mean, spread = self.mean.clone(), self.spread
        self.mean.lerp_(target.mean(), POPART_RATE)
        self.square.lerp_(target.square().mean(), POPART_RATE)
        last = self.network[-1]
        assert isinstance(last, nn.Linear)
        last.weight.mul_(spread / self.spread)
        last.bias.mul_(spread).add_(mean - self.mean).div_(self.spread)


class DQNPopArt(DQNAgent):
    def build(self, configs: Sequence[DQNConfig]) -> None:
        super().build(configs)
        self.online = self.add_network("policy", [PopArt(network) for network in self.online])  # type: ignore[arg-type]
        self.target = self.add_target("target", of="policy")
        self.optimizer = self.optimizers["policy"]

    def train_on(self, batch: Batch, step: int) -> None:
        with torch.no_grad():
            target, shaping = self.td_target(batch, self.online(batch.obs), step)  # (P, B)
        for member, own in zip(self.online, target, strict=True):
            member.learn(own)  # type: ignore[operator]
        spread = torch.stack([member.spread for member in self.online])  # type: ignore[misc]  # (P, 1)
        q_all = self.online(batch.obs)  # (P, B, A)
        q = q_of_action(q_all, batch.action)
        loss = F.smooth_l1_loss(q / spread, target / spread, reduction="none").mean(dim=-1)  # (P,)
        self.optimizer.zero_grad()
        loss.sum().backward()
        clip_grad_norm_per_member(self.online, self.config.max_grad_norm)
        self.optimizer.step()
        value = q_all.detach().amax(dim=-1)
        self.records.add(value, loss, (value - q.detach()).mean(dim=-1), shaping.mean(dim=-1))


DQN: dict[str, type[DQNAgent]] = {
    "advantage": DQNAdvantage,
    "persistent": DQNPersistent,
    "munchausen": DQNMunchausen,
    "minto": DQNMinto,
    "centering": DQNCentering,
    "popart": DQNPopArt,
}
TD3: dict[str, type[TD3Agent]] = {
    "advantage": TD3Advantage,
    "persistent": TD3Persistent,
    "minto": TD3Minto,
    "centering": TD3Centering,
}
