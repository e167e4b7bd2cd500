"""TD3 that shapes its own reward. Read `gradient_step` and what it calls, in that order.

With the potential `policy` the actor's actions are computed once, for V(s) and for the actor's own update; with
`replay` V(s) is the forward pass of the loss. At eta = 0 this is plain TD3, bit for bit.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.actor_critic import (
    ActionRange,
    Networks,
    PolyakUpdate,
    ingredients,
    member_potential,
    min_over_critics,
    policy_values,
    q_values,
    replayed_values,
)
from bsrs.agents.agent import Array, Transition
from bsrs.agents.comparators import Comparators, Ingredients
from bsrs.agents.members import MemberTargets, learning_rate, members_configs
from bsrs.agents.networks import StackedMLP
from bsrs.agents.population import Population, stacked
from bsrs.agents.replay import Batch
from bsrs.agents.stack import Stack
from bsrs.agents.tapes import Tape
from bsrs.config.agents import TD3Config
from bsrs.envs import EnvSpec
from bsrs.shaping import Shaping


class Policy(NamedTuple):
    """The actor's actions at s (P, B, A), and the pass that made them."""

    action: Tensor
    tape: Tape


class TD3Agent:
    """P members that may differ in the registry's `member_fields`. `shaping` takes the place of what configs say."""

    def __init__(
        self, configs: Sequence[TD3Config], spec: EnvSpec, *, device: str = "cpu", shaping: Shaping | None = None
    ) -> None:
        configs = members_configs(configs, shaping)
        self.members = len(configs)
        self.config = config = configs[0]
        self.device = torch.device(device)
        self.actions = ActionRange(spec)
        self.networks = nets = Networks(configs, spec, outputs_per_action=1, device=self.device)
        self.actor, self.critics, self.target_critics = nets.actor, nets.critics, nets.target_critics
        self.encoder = nets.encoder
        self.target_actor = copy.deepcopy(self.actor)
        self._first_critics = self.critics.part(slice(None, None, config.n_critics))
        self.population = Population(
            configs,
            spec,
            streams=("exploration", "batches", "noise"),
            measures=("loss", "value", "advantage", "shaping"),
            measure=_measure,
            potentials=[member_potential(member, c, nets, mean_action) for member, c in enumerate(configs)],
            shaping=shaping,
            device=self.device,
        )
        self._td = MemberTargets(configs, self.population.shaper, self.device)
        self._comparators = Comparators(configs, self.device)
        self._polyak_update = PolyakUpdate(configs, self.device)
        rates = [learning_rate(c) for c in configs]
        self._stacks = self.population.stacks = {
            "policy": Stack.trained(self.actor, rates),
            "critics": Stack.trained(self.critics, rates, config.n_critics),
            "target_critics": Stack(self.target_critics, self.members, config.n_critics, copy_of="critics"),
            "target_actor": Stack(self.target_actor, self.members, copy_of="policy"),
            **self.encoder.stacks(rates),
            **self._comparators.stacks,
        }
        self.actor_optimizer, self.critic_optimizer = self._stacks["policy"].adam, self._stacks["critics"].adam
        # Records and checkpoints are the population's.
        self.metrics, self.findings = self.population.metrics, self.population.diagnostics.findings
        self.policy, self.load_policy = self.population.policy, self.population.load_policy
        self.state, self.load_state = self.population.state, self.population.load_state

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        shape, rngs = (obs.shape[1], self.actions.size), self.population.streams["exploration"]
        if step < self.config.learning_starts:
            return self.actions.to_env(stacked([rng.uniform(-1, 1, shape).astype(np.float32) for rng in rngs]))
        noise = self.population.noise("exploration", *shape)
        with torch.no_grad():
            action = mean_action(self.actor, self._features(obs))
            if self.config.exploration_noise:
                action.add_(noise, alpha=self.config.exploration_noise).clamp_(-1, 1)
        return self.actions.to_env(action.cpu().numpy())

    @torch.no_grad()
    def greedy(self, obs: Array) -> Array:
        return self.actions.to_env(mean_action(self.actor, self._features(obs)).cpu().numpy())

    def _features(self, obs: Array) -> Tensor:
        return self.encoder.features(self.population.sent(torch.from_numpy(obs)))

    @torch.no_grad()
    def q_values(self, obs: Array, action: Array) -> Array:
        """Q of every critic at actions in the env's units: (P, n, O), (P, n, A) -> (P, critics, n)."""
        inside = self.population.sent(torch.from_numpy(self.actions.from_env(action)))
        return q_values(self.critics, self._features(obs), inside).cpu().numpy()

    # ---- learning

    def observe(self, transition: Transition) -> None:
        self.population.observe(transition._replace(action=self.actions.from_env(transition.action)))

    def update(self, step: int) -> None:
        for _ in range(self.population.gradient_steps_due(step)):
            self.gradient_step(self.sample(), step)
        if self.population.reviews:
            self.population.review(step, 1 / self.config.tau, self._both_values)

    def sample(self) -> Batch:
        """A batch of every member's replay and its noise, drawn from the member's own streams."""
        noise = self.population.noise("noise", 1, self.config.batch_size, self.actions.size)
        batch = self.population.draw()._replace(noise=noise)
        return batch if self.encoder.network is None else self.encoder.encode(batch)

    @torch.no_grad()
    def gradient_step(self, batch: Batch, step: int) -> None:
        """One update of the critics, and of the actor and the targets if they are due."""
        self.population.updates += 1
        actor_due = self.population.updates % self.config.policy_delay == 0
        shaped = self._td.shaper.is_active(step)
        policy = None
        if actor_due or (shaped and self.config.potential == "policy"):
            tape = self.actor.record(batch.obs)
            policy = Policy(tape.output.tanh(), tape)
        q, target, shaping_term = self._update_critics(batch, policy, shaped, step)
        if actor_due and policy is not None:
            q_policy = self._update_actor(batch, policy)  # (P, B)
            self._polyak_update(self.target_critics, self.critics)
            self._polyak_update(self.target_actor, self.actor)
            # For the records, at every update of the actor: there V(s) is at hand.
            self.population.diagnostics.add(q_policy, q, target, shaping_term)

    def _update_critics(
        self, batch: Batch, policy: Policy | None, shaped: bool, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step on the squared TD errors: Q (P, n, B), its target (P, 1 or n, B) and the shaping term (P, B)."""
        tape = self.critics.record(torch.cat((batch.obs, batch.action), dim=-1))
        q = tape.output.view(self.members, -1, self.config.batch_size)  # (P, n, B)
        next_action = self.smoothed_action(batch)  # (P, B, A)
        bootstrap = min_over_critics(q_values(self.target_critics, batch.next_obs, next_action))  # (P, B)
        if self._comparators.any:
            batch, bootstrap = self._comparators.apply(
                batch, bootstrap, self._ingredients(batch, next_action, bootstrap)
            )
        if shaped:
            if policy is None or self.config.potential != "policy":
                values = replayed_values(self._td, self.networks, batch, q, next_action, bootstrap)
            else:
                values = policy_values(
                    self._td, self.networks, batch, policy.action, lambda: mean_action(self.actor, batch.next_obs)
                )
            target, term = self._td.shaped(batch, q, bootstrap, values, step)
        else:
            target, term = self._td.plain(batch, bootstrap)
        target = target if target.ndim == 3 else target.unsqueeze(1)
        if self._comparators.any:
            self._comparators.learn(target - q)
        grad_q = (q - target).mul_(2 / self.config.batch_size)  # (P, n, B)
        if self.encoder.network is not None:
            self.encoder.learn(tape, grad_q.view_as(tape.output), self._stacks)
        self.critic_optimizer.learn(tape, grad_q.view_as(tape.output))
        return q, target, term if term.ndim == 2 else term.mean(dim=1)

    def _ingredients(self, batch: Batch, next_action: Tensor, next_q: Tensor) -> Ingredients:
        """What the members' comparators ask for; V(s) is at the target actor's action."""

        def value() -> Tensor:
            action = mean_action(self.target_actor, batch.obs)
            return min_over_critics(q_values(self.target_critics, batch.obs, action))

        return ingredients(self._comparators, self.networks, batch, next_action, next_q, value)

    def smoothed_action(self, batch: Batch) -> Tensor:
        """The target actor's action at s', with clipped noise: (P, B, A)."""
        clip = self.config.target_noise_clip
        noise = (batch.noise[:, 0] * self.config.target_policy_noise).clamp_(-clip, clip)
        return mean_action(self.target_actor, batch.next_obs).add_(noise).clamp_(-1, 1)

    def _update_actor(self, batch: Batch, policy: Policy) -> Tensor:
        """One step uphill on the first critic. Its Q at the actor's actions: (P, B)."""
        tape = self._first_critics.record(torch.cat((batch.obs, policy.action), dim=-1))
        grad_q = torch.full_like(tape.output, -1 / self.config.batch_size)
        grad_action = tape.input_gradient(grad_q)[..., -self.actions.size :]  # (P, B, A)
        grad_output = grad_action * (1 - policy.action.square())  # tanh' = 1 - tanh^2
        self.actor_optimizer.learn(policy.tape, grad_output)
        return tape.output.squeeze(-1)

    @torch.no_grad()
    def _both_values(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """V of the online and the target networks: (P, N, O) -> (P, N) each."""
        obs = self.encoder.features(obs)
        pairs = (self.critics, self.actor), (self.target_critics, self.target_actor)
        online, target = (q_values(critics, obs, mean_action(actor, obs)) for critics, actor in pairs)
        return min_over_critics(online), min_over_critics(target)


def _measure(value: Tensor, q: Tensor, target: Tensor, shaping: Tensor) -> tuple[Tensor, ...]:
    """Loss, value, |advantage| and shaping."""
    return (q - target).square_().sum(dim=-2), value, (value - q[..., 0, :]).abs_(), shaping


def mean_action(actor: StackedMLP, obs: Tensor) -> Tensor:
    """The actors' actions without exploration: (P, B, O) -> (P, B, A)."""
    return actor(obs).tanh()
