"""SAC with bootstrapped reward shaping, by its soft value. Read `train_on`, then `td_target`.

The soft value V(s) = E[min Q - alpha log pi] is estimated at one sampled action: at s the one that the actor's update
needs, at s' the one that the TD target needs.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bsrs.agents.actor_critic import ActorCriticAgent
from bsrs.agents.agent import Array, Batch
from bsrs.agents.off_policy import polyak_update
from bsrs.config.agents import SACConfig

LOG_STD_RANGE = (-20.0, 2.0)
TINY = 1e-6  # keeps the logarithm finite where tanh is 1


class LogAlpha(nn.Module):
    """One member's temperature, as its logarithm."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(alpha)]))


class SACAgent(ActorCriticAgent[SACConfig]):
    """SAC (Haarnoja et al., 2018) with a learned temperature."""

    metric_names = ("loss", "value", "advantage", "shaping", "alpha")
    outputs_per_action = 2

    def build(self, configs: Sequence[SACConfig]) -> None:
        super().build(configs)
        config = self.config
        self.temperatures = self.add_network("temperatures", [LogAlpha(config.alpha) for _ in self.seeds])
        self.alpha_optimizer = self.optimizers["temperatures"]
        size = float(self.actions.size)
        self.target_entropy = -size if config.target_entropy is None else config.target_entropy

    # ---- acting

    def mean_action(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.actor(obs)[..., : self.actions.size])

    @torch.no_grad()
    def explore(self, obs: Array, noise: Array) -> Array:
        if self.kernel is not None:
            action: Array = self.kernel.sampled_action(obs, noise)
            return action
        return self.sample_action(self.features(self.as_input(obs)), self.as_tensor(noise))[0].cpu().numpy()

    def sample_action(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions of the squashed Gaussian policy for that noise, and their log-density: (P, B, A), (P, B)."""
        mean, log_std = self.actor(obs).chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        action = torch.tanh(mean + log_std.exp() * noise)
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = (gaussian - torch.log(1 - action.square() + TINY)).sum(dim=-1)
        return action, log_prob

    # ---- learning

    def train_on(self, batch: Batch, step: int) -> None:
        config = self.config
        batch = self.encoded(batch)
        noise = self.as_tensor(self.noise("noise", 2, config.batch_size, self.actions.size))  # (P, 2, B, A)
        obs = batch.obs.detach()
        action, log_prob = self.sample_action(obs, noise[:, 0])  # (P, B, A), (P, B)
        log_alpha = torch.stack([member.get_parameter("log_alpha") for member in self.temperatures])  # (P, 1)
        alpha = log_alpha.detach().exp()

        if not config.fixed_alpha:
            alpha_loss = -(log_alpha * (log_prob.detach() + self.target_entropy)).mean(dim=-1).sum()
            self.alpha_optimizer.zero_grad()
            alpha_loss.backward()
            self.alpha_optimizer.step()

        q = self.critics(batch.obs, batch.action)  # (P, n, B)
        sampled = action.detach(), log_prob.detach()
        target, shaping = self.td_target(batch, q.detach(), sampled, noise[:, 1], alpha, step)  # (P, B), (P, B)
        critic_loss = 0.5 * (q - target.unsqueeze(1)).square().mean(dim=-1).sum(dim=-1)  # (P,)
        self.step_critics(critic_loss.sum())

        value = self.min_q(obs, action) - alpha * log_prob  # (P, B)
        self.actor_optimizer.zero_grad()
        (-value.mean(dim=-1).sum()).backward(inputs=list(self.actor.parameters()))
        self.actor_optimizer.step()
        polyak_update(self.critics, self.target_critics, config.tau)

        value = value.detach()
        advantage = (value - q.detach().amin(dim=1)).abs().mean(dim=-1)
        self.records.add(value, critic_loss, advantage, shaping.mean(dim=-1), alpha.squeeze(-1))

    @torch.no_grad()
    def td_target(
        self, batch: Batch, q: Tensor, sampled: tuple[Tensor, Tensor], noise: Tensor, alpha: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return the TD target and the part that shaping adds to it. A variant of the method overrides this.

        `sampled` is the policy's action at s and its log-density, `noise` that of the action at s'.
        """
        action, log_prob = sampled
        next_action, next_log_prob = self.sample_action(batch.next_obs, noise)
        next_q = self.min_q(batch.next_obs, next_action, target=True)  # (P, B)
        bootstrap = next_q - alpha * next_log_prob
        plain = self.plain_target(batch, bootstrap)
        if not self.is_shaped(step):
            return plain, torch.zeros_like(plain)
        value, next_value = self.potential(batch, action, next_action, q, next_action)
        if self.config.potential != "replay":
            value, next_value = value - alpha * log_prob, next_value - alpha * next_log_prob
        target = self.shaped_target(batch, bootstrap, value, next_value, step)
        return target, target - plain
