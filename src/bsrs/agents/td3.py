"""TD3 with bootstrapped reward shaping. Read `train_on`, then `td_target`: the paper changes nothing else.

Every tensor has the members on axis 0, and losses are summed over members.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bsrs.agents.actor_critic import ActorCriticAgent
from bsrs.agents.agent import Array, Batch
from bsrs.agents.off_policy import polyak_update
from bsrs.config.agents import TD3Config


class TD3Agent(ActorCriticAgent[TD3Config]):
    """TD3 (Fujimoto et al., 2018)."""

    def build(self, configs: Sequence[TD3Config]) -> None:
        super().build(configs)
        self.target_actor = self.add_target("target_actor", of="policy")

    # ---- acting

    def mean_action(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.actor(obs))

    @torch.no_grad()
    def explore(self, obs: Array, noise: Array) -> Array:
        if self.kernel is not None:
            action: Array = self.kernel.mean_action(obs)
        else:
            action = self.mean_action(self.features(self.as_input(obs))).cpu().numpy()
        if self.config.exploration_noise:
            action = (action + self.config.exploration_noise * noise).clip(-1, 1)
        return action

    # ---- learning

    def train_on(self, batch: Batch, step: int) -> None:
        config = self.config
        batch = self.encoded(batch)
        q = self.critics(batch.obs, batch.action)  # (P, n, B)
        target, shaping = self.td_target(batch, q.detach(), step)  # (P, 1, B), (P, B)
        critic_loss = (q - target).square().mean(dim=-1).sum(dim=-1)  # (P,)
        self.step_critics(critic_loss.sum())

        if self.updates % config.policy_delay == 0:
            obs = batch.obs.detach()
            q_policy = self.first_q(obs, self.mean_action(obs))  # (P, B)
            self.actor_optimizer.zero_grad()
            (-q_policy.mean(dim=-1).sum()).backward(inputs=list(self.actor.parameters()))
            self.actor_optimizer.step()
            polyak_update(self.critics, self.target_critics, config.tau)
            polyak_update(self.actor, self.target_actor, config.tau)
            value = q_policy.detach()
            advantage = (value - q.detach()[:, 0]).abs().mean(dim=-1)
            self.records.add(value, critic_loss, advantage, shaping.mean(dim=-1))

    @torch.no_grad()
    def td_target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return the TD target and the part that shaping adds to it. A variant of the method overrides this.

        The target may be one for all critics, (P, 1, B), or one for each, (P, n, B).
        """
        next_action = self.smoothed_action(batch)  # (P, B, A)
        bootstrap = self.min_q(batch.next_obs, next_action, target=True)  # (P, B)
        plain = self.plain_target(batch, bootstrap)
        if not self.is_shaped(step):
            return plain.unsqueeze(1), torch.zeros_like(plain)
        policy_actions = self.mean_action(batch.obs), self.mean_action(batch.next_obs)
        value, next_value = self.potential(batch, *policy_actions, q, next_action)
        target = self.shaped_target(batch, bootstrap, value, next_value, step)
        return target.unsqueeze(1), target - plain

    def smoothed_action(self, batch: Batch) -> Tensor:
        """The target actor's action at s', with clipped noise: (P, B, A)."""
        config = self.config
        noise = self.as_tensor(self.noise("noise", config.batch_size, self.actions.size))
        noise = (noise * config.target_policy_noise).clamp(-config.target_noise_clip, config.target_noise_clip)
        return (torch.tanh(self.target_actor(batch.next_obs)) + noise).clamp(-1, 1)
