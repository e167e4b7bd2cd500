"""SAC that shapes its own reward with its soft value. Read `gradient_step` and what it calls, in that order.

The soft value V(s) = E[min Q - alpha log pi] is estimated at one sampled action: the one that the actor's update
needs anyway at s, and the one that the TD target needs anyway at s'. At eta = 0 this is plain SAC, bit for bit.
"""

import math
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
from bsrs.agents.members import MemberTargets, Values, learning_rate, members_configs
from bsrs.agents.networks import StackedMLP, Weights
from bsrs.agents.population import Population, stacked
from bsrs.agents.replay import Batch
from bsrs.agents.stack import Stack
from bsrs.agents.tapes import Tape
from bsrs.config.agents import SACConfig
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

    def grad_output(self, grad_action: Tensor, grad_log_prob: Tensor) -> Tensor:
        """Of what the actor puts out, given that of the actions (P, B, A) and of each log-density (P, 1)."""
        slope = 1 - self.action.square()  # of tanh
        grad_log_prob = grad_log_prob.unsqueeze(-1)  # (P, 1, 1)
        grad_mean = (grad_action + grad_log_prob * 2 * self.action / (slope + _TINY)) * slope
        grad_log_std = grad_mean * self.spread - grad_log_prob
        log_std = self.tape.output.chunk(2, dim=-1)[1]
        inside = (log_std > LOG_STD_RANGE[0]) & (log_std < LOG_STD_RANGE[1])
        return torch.cat((grad_mean, grad_log_std * inside), dim=-1)


class Temperatures:
    """One temperature per member, kept as its logarithm."""

    def __init__(self, members: int, alpha: float, device: torch.device) -> None:
        self.weights = Weights({"log_alpha": torch.full((members, 1), math.log(alpha))}, device)

    def __call__(self) -> Tensor:
        return self.weights.numbers.exp()  # (P, 1)


class SACAgent:
    """P members that may differ in the registry's `member_fields`. `shaping` takes the place of what configs say."""

    def __init__(
        self, configs: Sequence[SACConfig], spec: EnvSpec, *, device: str = "cpu", shaping: Shaping | None = None
    ) -> None:
        configs = members_configs(configs, shaping)
        self.members = len(configs)
        self.config = config = configs[0]
        self.device = torch.device(device)
        self.actions = ActionRange(spec)
        self.networks = nets = Networks(configs, spec, outputs_per_action=2, device=self.device)
        self.actor, self.critics, self.target_critics = nets.actor, nets.critics, nets.target_critics
        self.encoder = nets.encoder
        self.temperatures = Temperatures(self.members, config.alpha, self.device)
        self.population = Population(
            configs,
            spec,
            streams=("exploration", "batches", "noise"),
            measures=("loss", "value", "advantage", "shaping", "alpha"),
            measure=_measure,
            potentials=[member_potential(member, c, nets, self.mean_action) for member, c in enumerate(configs)],
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
            "temperatures": Stack.trained(self.temperatures, rates),
            **self.encoder.stacks(rates),
            **self._comparators.stacks,
        }
        self._target_entropy = -float(self.actions.size) if config.target_entropy is None else config.target_entropy
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
            action = self.sampled(self._features(obs), noise).action
        return self.actions.to_env(action.cpu().numpy())

    @torch.no_grad()
    def greedy(self, obs: Array) -> Array:
        return self.actions.to_env(self.mean_action(self.actor, self._features(obs)).cpu().numpy())

    def _features(self, obs: Array) -> Tensor:
        return self.encoder.features(self.population.sent(torch.from_numpy(obs)))

    def mean_action(self, actor: StackedMLP, obs: Tensor) -> Tensor:
        """The actors' actions without exploration: (P, B, O) -> (P, B, A)."""
        return actor(obs)[..., : self.actions.size].tanh()

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
        noise = self.population.noise("noise", 2, self.config.batch_size, self.actions.size)
        batch = self.population.draw()._replace(noise=noise)
        return batch if self.encoder.network is None else self.encoder.encode(batch)

    @torch.no_grad()
    def gradient_step(self, batch: Batch, step: int) -> None:
        """One update of the temperature, the critics, the actor and the target critics."""
        alpha = self.temperatures()  # (P, 1)
        current = self.sampled(batch.obs, batch.noise[:, 0])
        if not self.config.fixed_alpha:
            self._update_alpha(current.log_prob)
        q, target, shaping_term = self._update_critics(batch, current, alpha, step)
        value = self._update_actor(batch, current, alpha)  # (P, B)
        self._polyak_update(self.target_critics, self.critics)
        self.population.diagnostics.add(value, q, target, shaping_term, alpha)

    def sampled(self, obs: Tensor, noise: Tensor) -> Sampled:
        """The policy's actions for that noise (P, B, A): a Gaussian squashed by tanh."""
        tape = self.actor.record(obs)
        mean, log_std = tape.output.chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        spread = log_std.exp() * noise
        action = (mean + spread).tanh()
        return Sampled(action, _log_density(action, noise, log_std), spread, tape)

    def _log_prob(self, current: Sampled, action: Tensor) -> Tensor:
        """The current policy's log-density of other actions, (P, B)."""
        mean, log_std = current.tape.output.chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        noise = (torch.atanh(action.clamp(_TINY - 1, 1 - _TINY)) - mean) / log_std.exp()
        return _log_density(action, noise, log_std)

    def _update_alpha(self, log_prob: Tensor) -> None:
        """One step of the temperature towards the target entropy."""
        grad_log_alpha = -(log_prob + self._target_entropy).mean(dim=-1, keepdim=True)  # (P, 1)
        self._stacks["temperatures"].adam.descend([grad_log_alpha])

    def _update_critics(
        self, batch: Batch, current: Sampled, alpha: Tensor, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step on the squared TD errors: Q (P, n, B), its target (P, 1 or n, B) and the shaping term (P, B)."""
        tape = self.critics.record(torch.cat((batch.obs, batch.action), dim=-1))
        q = tape.output.view(self.members, -1, self.config.batch_size)  # (P, n, B)
        following = self.sampled(batch.next_obs, batch.noise[:, 1])
        next_q = min_over_critics(q_values(self.target_critics, batch.next_obs, following.action))  # (P, B)
        bootstrap = next_q - alpha * following.log_prob
        if self._comparators.any:
            given = self._ingredients(batch, current, following, alpha, next_q)
            batch, bootstrap = self._comparators.apply(batch, bootstrap, given)
        if self._td.shaper.is_active(step):
            values = self._values(batch, current, following, alpha, q, next_q)
            target, term = self._td.shaped(batch, q, bootstrap, values, step)
        else:
            target, term = self._td.plain(batch, bootstrap)
        target = target if target.ndim == 3 else target.unsqueeze(1)
        if self._comparators.any:
            self._comparators.learn(target - q)
        grad_q = (q - target).div_(self.config.batch_size)  # (P, n, B)
        if self.encoder.network is not None:
            self.encoder.learn(tape, grad_q.view_as(tape.output), self._stacks)
        self._stacks["critics"].adam.learn(tape, grad_q.view_as(tape.output))
        return q, target, term if term.ndim == 2 else term.mean(dim=1)

    def _ingredients(
        self, batch: Batch, current: Sampled, following: Sampled, alpha: Tensor, next_q: Tensor
    ) -> Ingredients:
        """What the members' comparators ask for, with the entropy's bonus where V has it."""

        def value() -> Tensor:
            q = q_values(self.target_critics, batch.obs, current.action)
            return min_over_critics(q) - alpha * current.log_prob

        found = ingredients(self._comparators, self.networks, batch, following.action, next_q, value)
        if found.least is not None:
            found = found._replace(least=found.least - alpha * following.log_prob)
        return found._replace(log_policy=alpha * self._log_prob(current, batch.action))

    def _values(
        self, batch: Batch, current: Sampled, following: Sampled, alpha: Tensor, q: Tensor, next_q: Tensor
    ) -> Values:
        """V at both ends as the potential takes it."""
        if self.config.potential != "policy":
            return replayed_values(self._td, self.networks, batch, q, following.action, next_q)
        values = policy_values(self._td, self.networks, batch, current.action, lambda: following.action)
        entropy, next_entropy = -alpha * current.log_prob, -alpha * following.log_prob
        bonus = (entropy, entropy, next_entropy, next_entropy)
        return Values(*(None if v is None else v + more for v, more in zip(values, bonus, strict=True)))

    def _update_actor(self, batch: Batch, current: Sampled, alpha: Tensor) -> Tensor:
        """One step uphill on the soft value, which it returns: (P, B)."""
        size = self.config.batch_size
        tape = self.critics.record(torch.cat((batch.obs, current.action), dim=-1))
        q, which = tape.output.view(self.members, -1, size).min(dim=1, keepdim=True)  # (P, 1, B)
        grad_q = q.new_zeros(self.members, self.config.n_critics, size).scatter_(1, which, -1 / size)
        grad_input = tape.input_gradient(grad_q.view_as(tape.output))  # (P * n, B, O + A)
        grad_input = grad_input.view(self.members, -1, *grad_input.shape[1:])  # (P, n, B, O + A)
        grad_action = grad_input[..., -self.actions.size :].sum(dim=1)  # (P, B, A)
        self._stacks["policy"].adam.learn(current.tape, current.grad_output(grad_action, alpha / size))
        return q.squeeze(1) - alpha * current.log_prob

    @torch.no_grad()
    def _both_values(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """V of the online and the target critics, without entropy, as returns are: (P, N, O) -> (P, N) each."""
        obs = self.encoder.features(obs)
        action = self.mean_action(self.actor, obs)
        online, target = (q_values(critics, obs, action) for critics in (self.critics, self.target_critics))
        return min_over_critics(online), min_over_critics(target)


def _measure(value: Tensor, q: Tensor, target: Tensor, shaping: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
    """Loss, value, |advantage|, shaping and the temperature."""
    loss = (q - target).square_().sum(dim=-2).mul_(0.5)
    return loss, value, (value - q.amin(dim=-2)).abs_(), shaping, alpha


def _log_density(action: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Of a Gaussian squashed by tanh: (P, B, A) -> (P, B)."""
    gaussian = -0.5 * noise.square() - log_std - _HALF_LOG_TWO_PI
    return (gaussian - torch.log(1 - action.square() + _TINY)).sum(dim=-1)
