"""TD3 that shapes its own reward. Everything the paper changes is in `TD3Agent._values`.

With the potential `policy` the actor's actions are computed once, for V(s) and for the actor's own update; with
`replay` V(s) is the forward pass of the loss. At eta = 0 this is plain TD3, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bsrs.agents.actor_critic import ActorCritic, Batch, Learner, follow, frozen_copy, least, q_tape, q_values
from bsrs.agents.agent import State
from bsrs.agents.networks import Layers, Tape, mlp, record
from bsrs.agents.targets import td_target
from bsrs.config.td3 import TD3Config
from bsrs.envs import EnvSpec
from bsrs.shaping import Shaping


class Policy(NamedTuple):
    """The actor's actions at s (P, B, A), and the pass that made them."""

    action: Tensor
    tape: Tape


class TD3Agent(ActorCritic):
    """P members that differ in `eta` and `seed` only. `shaping` takes the place of what the configs say."""

    noises = 1

    def __init__(
        self, configs: Sequence[TD3Config], spec: EnvSpec, *, device: str = "cpu", shaping: Shaping | None = None
    ) -> None:
        super().__init__(configs, spec, outputs_per_action=1, device=device, shaping=shaping)
        self.config = configs[0]
        self.target_actor = frozen_copy(self.actor)
        self.updates = 0

    def mean_action(self, actor: Layers, obs: Tensor) -> Tensor:
        return mlp(obs, actor).tanh()

    def explored_action(self, obs: Tensor, noise: Tensor) -> Tensor:
        action = self.mean_action(self.actor.layers, obs)
        scale = self.config.exploration_noise
        return action.add_(noise, alpha=scale).clamp_(-1, 1) if scale else action

    @torch.inference_mode()
    def gradient_step(self, batch: Batch, step: int) -> None:
        self.updates += 1
        actor_due = self.updates % self.config.policy_delay == 0
        policy = None
        if actor_due or (self.config.potential == "policy" and self.is_shaped(step)):
            policy = self._policy(batch)
        q, target, reward = self._update_critics(batch, policy, step)
        if actor_due:
            assert policy is not None
            q_policy = self._update_actor(batch, policy)  # (P, B)
            follow(self.target_critics, self.critics, self.config.tau)
            follow(self.target_actor, self.actor, self.config.tau)
            self._take_note(q, target, q_policy, reward - batch.reward)

    def _policy(self, batch: Batch) -> Policy:
        tape = record(batch.obs, self.actor.layers)
        return Policy(tape.output.tanh(), tape)

    def _update_critics(self, batch: Batch, policy: Policy | None, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """One step on the squared TD errors. What it saw of Q (P, n, B), the target and the shaped reward (P, B)."""
        tape = q_tape(self.critics.layers, batch.obs, batch.action)
        q = tape.output.view(self.members, -1, self.config.batch_size)  # (P, n, B)
        next_action = self.smoothed_action(batch)  # (P, B, A)
        next_q = least(q_values(self.target_critics.layers, batch.next_obs, next_action))  # (P, B)
        reward = batch.reward
        if self.is_shaped(step):
            reward = self.shape(batch, *self._values(batch, policy, q, next_action, next_q), step)
        target = td_target(reward, next_q, batch.terminated, self.config.gamma)  # (P, B)
        of_q = (q - target.unsqueeze(1)).mul_(2 / self.config.batch_size)  # (P, n, B)
        self.critic_optimizer.descend(tape.gradients(of_q.view_as(tape.output)))
        return q, target, reward

    def smoothed_action(self, batch: Batch) -> Tensor:
        """The target actor's action at s', with clipped noise: (P, B, A)."""
        clip = self.config.target_noise_clip
        noise = (batch.noise[:, 0] * self.config.target_policy_noise).clamp_(-clip, clip)
        return self.mean_action(self.target_actor.layers, batch.next_obs).add_(noise).clamp_(-1, 1)

    def _values(
        self, batch: Batch, policy: Policy | None, q: Tensor, next_action: Tensor, next_q: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V(s) and V(s') as the potential takes them, each (P, B)."""
        if self.config.potential != "policy":
            return self.replayed_values(batch, q, next_action, next_q)
        assert policy is not None
        next_policy_action = self.mean_action(self.actor.layers, batch.next_obs)
        obs = torch.cat((batch.obs, batch.next_obs), dim=1)  # (P, 2B, O)
        action = torch.cat((policy.action, next_policy_action), dim=1)  # (P, 2B, A)
        value, next_value = least(q_values(self.potential_critics, obs, action)).chunk(2, dim=-1)
        return value, next_value

    def _update_actor(self, batch: Batch, policy: Policy) -> Tensor:
        """One step uphill on the first critic. Its Q at the actor's actions: (P, B)."""
        tape = q_tape(self.critics.every(self.config.n_critics), batch.obs, policy.action)
        of_q = torch.full_like(tape.output, -1 / self.config.batch_size)
        of_action = tape.input_gradient(of_q)[..., -self.n_actions :]  # (P, B, A)
        of_output = of_action * (1 - policy.action.square())  # tanh' = 1 - tanh^2
        self.actor_optimizer.descend(policy.tape.gradients(of_output))
        return tape.output.squeeze(-1)

    def _take_note(self, q: Tensor, target: Tensor, q_policy: Tensor, shaping_term: Tensor) -> None:
        """For the records, at every update of the actor: there V(s) is at hand."""
        loss = (q - target.unsqueeze(1)).square_().sum(dim=1)  # (P, B)
        gap = (q_policy - q[:, 0]).abs_()  # |A|
        self.diagnostics.add(loss, q_policy, gap, shaping_term)

    # ---- checkpoints

    def learners(self) -> dict[str, Learner]:
        return {**super().learners(), "target_actor": Learner(self.target_actor, 1, None)}

    def state(self, member: int) -> State:
        state = super().state(member)
        state.info["updates"] = self.updates
        return state

    def load_state(self, member: int, state: State) -> None:
        super().load_state(member, state)
        self.updates = state.info["updates"]
