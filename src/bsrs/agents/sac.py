"""SAC that shapes its own reward with its soft value. Everything the paper changes is in `SACAgent._values`.

The soft value V(s) = E[min Q - alpha log pi] is estimated at one sampled action: the one that the actor's update
needs anyway at s, and the one that the TD target needs anyway at s'. At eta = 0 this is plain SAC, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bsrs.agents.actor_critic import ActorCritic, Batch, Learner, follow, least, q_tape, q_values
from bsrs.agents.networks import Layers, Tape, mlp, record
from bsrs.agents.targets import td_target
from bsrs.config.sac import SACConfig
from bsrs.envs import EnvSpec
from bsrs.shaping import Shaping

LOG_STD_RANGE = (-20.0, 2.0)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
_TINY = 1e-6  # keeps the logarithm finite where tanh is 1


class Sampled(NamedTuple):
    """Actions drawn from the policy, the logarithm of their density, and what its gradients need."""

    action: Tensor  # (P, B, A)
    log_prob: Tensor  # (P, B)
    spread: Tensor  # (P, B, A): standard deviation * noise
    tape: Tape

    def gradients(self, of_action: Tensor, of_log_prob: Tensor) -> list[Tensor]:
        """Of the actor's parameters, given those of the actions (P, B, A) and of each log-density (P, 1)."""
        slope = 1 - self.action.square()  # of tanh
        of_log_prob = of_log_prob.unsqueeze(-1)  # (P, 1, 1)
        of_mean = (of_action + of_log_prob * 2 * self.action / (slope + _TINY)) * slope
        of_log_std = of_mean * self.spread - of_log_prob
        log_std = self.tape.output.chunk(2, dim=-1)[1]
        inside = (log_std > LOG_STD_RANGE[0]) & (log_std < LOG_STD_RANGE[1])
        return self.tape.gradients(torch.cat((of_mean, of_log_std * inside), dim=-1))


class Temperatures(nn.Module):
    """One temperature per member, kept as its logarithm."""

    def __init__(self, members: int, alpha: float, device: str) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.full((members, 1), math.log(alpha), device=device))

    def forward(self) -> Tensor:
        return self.log_alpha.detach().exp()  # (P, 1)


class SACAgent(ActorCritic):
    """P members that differ in `eta` and `seed` only. `shaping` takes the place of what the configs say."""

    noises = 2
    measures = (*ActorCritic.measures, "alpha")

    def __init__(
        self, configs: Sequence[SACConfig], spec: EnvSpec, *, device: str = "cpu", shaping: Shaping | None = None
    ) -> None:
        super().__init__(configs, spec, outputs_per_action=2, device=device, shaping=shaping)
        self.config = config = configs[0]
        self.temperatures = Temperatures(self.members, config.alpha, device)
        self.alpha_optimizer = self._adam(self.temperatures)
        self._target_entropy = -float(self.n_actions) if config.target_entropy is None else config.target_entropy

    def mean_action(self, actor: Layers, obs: Tensor) -> Tensor:
        return mlp(obs, actor)[..., : self.n_actions].tanh()

    def explored_action(self, obs: Tensor, noise: Tensor) -> Tensor:
        return self.sampled(obs, noise).action

    @torch.inference_mode()
    def gradient_step(self, batch: Batch, step: int) -> None:
        alpha = self.temperatures()  # (P, 1)
        now = self.sampled(batch.obs, batch.noise[:, 0])
        if not self.config.fixed_alpha:
            self._update_alpha(now.log_prob)
        q, target, reward = self._update_critics(batch, now, alpha, step)
        value = self._update_actor(batch, now, alpha)  # (P, B)
        follow(self.target_critics, self.critics, self.config.tau)
        self._take_note(q, target, value, reward - batch.reward, alpha)

    def sampled(self, obs: Tensor, noise: Tensor) -> Sampled:
        """The policy's actions for that noise (P, B, A): a Gaussian squashed by tanh."""
        tape = record(obs, self.actor.layers)
        mean, log_std = tape.output.chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        spread = log_std.exp() * noise
        action = (mean + spread).tanh()
        of_gaussian = -0.5 * noise.square() - log_std - _HALF_LOG_TWO_PI
        log_prob = (of_gaussian - torch.log(1 - action.square() + _TINY)).sum(dim=-1)
        return Sampled(action, log_prob, spread, tape)

    def _update_alpha(self, log_prob: Tensor) -> None:
        """One step of the temperature towards the target entropy."""
        of_log_alpha = -(log_prob + self._target_entropy).mean(dim=-1, keepdim=True)  # (P, 1)
        self.alpha_optimizer.descend([of_log_alpha])

    def _update_critics(self, batch: Batch, now: Sampled, alpha: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """One step on the squared TD errors. What it saw of Q (P, n, B), the target and the shaped reward (P, B)."""
        tape = q_tape(self.critics.layers, batch.obs, batch.action)
        q = tape.output.view(self.members, -1, self.config.batch_size)  # (P, n, B)
        then = self.sampled(batch.next_obs, batch.noise[:, 1])
        next_q = least(q_values(self.target_critics.layers, batch.next_obs, then.action))  # (P, B)
        reward = batch.reward
        if self.is_shaped(step):
            reward = self.shape(batch, *self._values(batch, now, then, alpha, q, next_q), step)
        next_value = next_q - alpha * then.log_prob
        target = td_target(reward, next_value, batch.terminated, self.config.gamma)  # (P, B)
        of_q = (q - target.unsqueeze(1)).div_(self.config.batch_size)  # (P, n, B)
        self.critic_optimizer.descend(tape.gradients(of_q.view_as(tape.output)))
        return q, target, reward

    def _values(
        self, batch: Batch, now: Sampled, then: Sampled, alpha: Tensor, q: Tensor, next_q: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V(s) and V(s') as the potential takes them, each (P, B)."""
        if self.config.potential != "policy":
            return self.replayed_values(batch, q, then.action, next_q)
        obs = torch.cat((batch.obs, batch.next_obs), dim=1)  # (P, 2B, O)
        action = torch.cat((now.action, then.action), dim=1)  # (P, 2B, A)
        log_prob = torch.cat((now.log_prob, then.log_prob), dim=-1)  # (P, 2B)
        soft = least(q_values(self.potential_critics, obs, action)) - alpha * log_prob
        value, next_value = soft.chunk(2, dim=-1)
        return value, next_value

    def _update_actor(self, batch: Batch, now: Sampled, alpha: Tensor) -> Tensor:
        """One step uphill on the soft value, which it returns: (P, B)."""
        size = self.config.batch_size
        tape = q_tape(self.critics.layers, batch.obs, now.action)
        q, which = tape.output.view(self.members, -1, size).min(dim=1, keepdim=True)  # (P, 1, B)
        of_q = q.new_zeros(self.members, self.config.n_critics, size).scatter_(1, which, -1 / size)
        of_input = tape.input_gradient(of_q.view_as(tape.output))  # (P * n, B, O + A)
        of_input = of_input.view(self.members, -1, *of_input.shape[1:])  # (P, n, B, O + A)
        of_action = of_input[..., -self.n_actions :].sum(dim=1)  # (P, B, A)
        self.actor_optimizer.descend(now.gradients(of_action, alpha / size))
        return q.squeeze(1) - alpha * now.log_prob

    def _take_note(self, q: Tensor, target: Tensor, value: Tensor, shaping_term: Tensor, alpha: Tensor) -> None:
        loss = 0.5 * (q - target.unsqueeze(1)).square_().sum(dim=1)  # (P, B)
        gap = (value - least(q)).abs_()  # |A|
        self.diagnostics.add(loss, value, gap, shaping_term, alpha.expand_as(value))

    def learners(self) -> dict[str, Learner]:
        return {**super().learners(), "temperatures": Learner(self.temperatures, 1, self.alpha_optimizer)}
