"""DQN that shapes its own reward. Read `gradient_step`, then `_target`: everything the paper changes is there.

V(s) comes from the forward pass that the loss needs anyway; V(s') costs one more pass without gradients, and
only where eta is not zero: at eta = 0 this is plain DQN, bit for bit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bsrs.agents import private_torch, targets
from bsrs.agents.agent import Array, times_due
from bsrs.agents.comparators import MUNCHAUSEN_TEMPERATURE, Comparators, Ingredients
from bsrs.agents.heads import Heads
from bsrs.agents.members import MemberTargets, Values, learning_rate, members_configs, target_interval
from bsrs.agents.nature import MINATAR, NATURE, SMALL, PatchConv, StackedConv
from bsrs.agents.networks import StackedMLP
from bsrs.agents.population import Population, generators, stacked
from bsrs.agents.replay import Batch
from bsrs.agents.stack import Stack
from bsrs.agents.tapes import Tape
from bsrs.config.agents import DQNConfig
from bsrs.envs import EnvSpec, require_discrete
from bsrs.errors import BadInput
from bsrs.shaping import Bootstrapped, Potential, RandomDynamic, Shaping, Static

QNetworks = StackedMLP | StackedConv | PatchConv
_CONVOLUTIONS = {"nature": NATURE, "small": SMALL}


class Passes(NamedTuple):
    """Q of a batch, (P, B, A) each."""

    q: Tensor
    """Of the online network at s."""
    next_target: Tensor
    """Of the target network at s'."""
    next: Tensor | None
    """Of the online network at s', where anybody asks."""


class DQNAgent:
    """P members that may differ in the registry's `member_fields`. `shaping` takes the place of what configs say."""

    def __init__(
        self, configs: Sequence[DQNConfig], spec: EnvSpec, *, device: str = "cpu", shaping: Shaping | None = None
    ) -> None:
        configs = members_configs(configs, shaping)
        self.members = len(configs)
        self.config = configs[0]
        self.device = torch.device(device)
        self.n_actions = require_discrete(spec)
        self._obs_factor = 1 / spec.obs_scale
        seeds = [config.seed for config in configs]
        heads = Heads(configs, self.device)
        self._heads = heads if heads.dueling or heads.stacks else None
        outputs = heads.outputs(self.n_actions)
        self.online, self.target = (_network(self.config, spec, seeds, self.device, outputs) for _ in range(2))
        if heads.stacks and not isinstance(self.online, StackedMLP):
            raise BadInput(f"comparator popart has env {spec.env!r} with images; expected flat observations")
        self._comparators = Comparators(configs, self.device)
        doubles = [config.double for config in configs]
        self._double = torch.tensor(doubles, device=self.device).unsqueeze(1) if any(doubles) else None  # (P, 1)
        self._asks_next = any(doubles) or self._comparators.has("minto")
        self.population = Population(
            configs,
            spec,
            streams=("exploration", "batches"),
            measures=("loss", "value", "advantage", "shaping"),
            measure=_measure,
            potentials=[_potential(config, spec, self.device) for config in configs],
            shaping=shaping,
            device=self.device,
        )
        self._td = MemberTargets(configs, self.population.shaper, self.device)
        self._stacks = self.population.stacks = {
            "policy": Stack.trained(self.online, [learning_rate(config) for config in configs]),
            "target": Stack(self.target, self.members, copy_of="policy"),
            **self._comparators.stacks,
            **heads.stacks,
        }
        self.optimizer = self._stacks["policy"].adam
        self._intervals = [target_interval(config, config.target_update_interval) for config in configs]
        self.observe = self.population.observe
        # Records and checkpoints are the population's.
        self.metrics, self.findings = self.population.metrics, self.population.diagnostics.findings
        self.policy, self.load_policy = self.population.policy, self.population.load_policy
        self.state, self.load_state = self.population.state, self.population.load_state

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        n: int = obs.shape[1]
        rngs = self.population.streams["exploration"]
        chance, which = stacked([rng.random((2, n)) for rng in rngs]).swapaxes(0, 1)  # (P, n) each
        explore = chance < self.epsilon(step)
        random_action: Array = (which * self.n_actions).astype(np.int64)
        return random_action if explore.all() else np.where(explore, random_action, self.q_values(obs).argmax(axis=-1))

    def epsilon(self, step: int) -> float:
        """The share of random actions at `step`."""
        config = self.config
        if step < config.learning_starts:
            return 1.0
        fall = config.exploration_fraction * config.steps
        progress = min(step / fall, 1.0) if fall > 0 else 1.0
        first, last = config.exploration_initial_eps, config.exploration_final_eps
        return first + progress * (last - first)

    def greedy(self, obs: Array) -> Array:
        return self.q_values(obs).argmax(axis=-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def q_values(self, obs: Array) -> Array:
        """Q of every action: (P, n, *obs) -> (P, n, A)."""
        output = self.online(self._as_input(torch.from_numpy(obs)))
        return (output if self._heads is None else self._heads.q(output)).cpu().numpy()

    # ---- learning

    def update(self, step: int) -> None:
        if self.population.reviews:
            self.population.review(step, self.config.target_update_interval, self._both_values)
        due = [times_due(step, self.config.n_envs, interval) > 0 for interval in self._intervals]
        if any(due):
            self._copy_into_target(due)
        for _ in range(self.population.gradient_steps_due(step)):
            self.gradient_step(self.sample(), step)

    @torch.no_grad()
    def _copy_into_target(self, due: Sequence[bool]) -> None:
        """The online network into the target network, of the members for which that is due."""
        if all(due):
            private_torch.copy_(self._stacks["target"].parameters, self._stacks["policy"].parameters)
            return
        for member in np.flatnonzero(due).tolist():
            self._stacks["target"].load_weights(member, self._stacks["policy"].weights(member))

    def sample(self) -> Batch:
        """A batch of every member's replay, as the networks take it."""
        batch = self.population.draw()
        return batch._replace(obs=self._as_input(batch.obs), next_obs=self._as_input(batch.next_obs))

    @torch.no_grad()
    def gradient_step(self, batch: Batch, step: int) -> None:
        """One step of Adam on the Huber loss of the shaped TD error."""
        tape, passes = self._passes(batch, step)
        q, taken = passes.q, batch.action.unsqueeze(-1)  # (P, B, A), (P, B, 1)
        q_chosen = q.gather(-1, taken).squeeze(-1)  # (P, B)
        target, shaping_term = self._target(batch, passes, step)  # (P, B), (P, B)
        error = q_chosen - target
        if self._heads is not None:
            self._heads.learn(target, self.online, self.target)
            error = self._heads.error(error)
        if self._comparators.any:
            self._comparators.learn(target - q_chosen)
        # Of the mean Huber loss.
        grad_chosen = error.clamp_(-1, 1).div_(self.config.batch_size)
        grad_q = torch.zeros_like(q).scatter_(-1, taken, grad_chosen.unsqueeze(-1))  # (P, B, A)
        grad_output = grad_q if self._heads is None else self._heads.gradient(grad_q)
        self.optimizer.learn(tape, grad_output, self.config.max_grad_norm)
        self.population.diagnostics.add(q.amax(dim=-1), q_chosen, target, shaping_term)

    def _passes(self, batch: Batch, step: int) -> tuple[Tape, Passes]:
        """What the networks say of a batch, and how the online one came to it at s."""
        shaped = self._td.shaper.is_active(step)
        asked = self._asks_next or (shaped and self._td.asks_online)
        tape = self.online.record(batch.obs, batch.next_obs if asked else None)
        next_target, next_output = self.target(batch.next_obs), tape.more
        if self._heads is None:
            return tape, Passes(tape.output, next_target, next_output)
        heads = self._heads.q
        return tape, Passes(heads(tape.output), heads(next_target), None if next_output is None else heads(next_output))

    def _target_q(self, obs: Tensor) -> Tensor:
        """Of the target network: (P, B, *obs) -> (P, B, A)."""
        output = self.target(obs)
        return output if self._heads is None else self._heads.q(output)

    def _target(self, batch: Batch, passes: Passes, step: int) -> tuple[Tensor, Tensor]:
        """The TD target, and what shaping added to it."""
        config, td = self.config, self._td
        q, next_q_target, next_q = passes
        next_target = bootstrap = targets.value_of(next_q_target, config.temperature)  # (P, B)
        if self._double is not None and next_q is not None:
            bootstrap = torch.where(self._double, targets.double_value(next_q, next_q_target), bootstrap)
        if self._comparators.any:
            given = self._ingredients(batch, next_q_target, next_q)
            batch, bootstrap = self._comparators.apply(batch, bootstrap, given)
        if not td.shaper.is_active(step):
            return td.plain(batch, bootstrap)
        value = targets.value_of
        values = Values(
            here=value(q, config.temperature),
            here_target=value(self._target_q(batch.obs), config.temperature) if td.asks_target else None,
            next=None if next_q is None else value(next_q, config.temperature),
            next_target=next_target,
        )
        return td.shaped(batch, targets.chosen(q, batch.action) if td.partial else q, bootstrap, values, step)

    def _ingredients(self, batch: Batch, next_q_target: Tensor, next_q: Tensor | None) -> Ingredients:
        """What the members' comparators ask for."""
        has, value, tau = self._comparators.has, targets.value_of, MUNCHAUSEN_TEMPERATURE
        q = self._target_q(batch.obs) if has("advantage", "persistent", "munchausen") else None
        least = torch.minimum(next_q, next_q_target) if next_q is not None and has("minto") else None
        return Ingredients(
            advantage=None if q is None else targets.advantage(q, batch.action),
            repeated=targets.chosen(next_q_target, batch.action) if has("persistent") else None,
            log_policy=None if q is None else targets.chosen(q, batch.action) - value(q, tau),
            soft_bootstrap=value(next_q_target, tau) if has("munchausen") else None,
            least=None if least is None else value(least, self.config.temperature),
        )

    @torch.no_grad()
    def _both_values(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """V of the online and the target network: (P, N, *obs) -> (P, N) each."""
        inputs = self.online.prepare(self._as_input(obs))
        output = self.online(inputs)
        q, q_target = output if self._heads is None else self._heads.q(output), self._target_q(inputs)  # (P, N, A) each
        return targets.value_of(q, self.config.temperature), targets.value_of(q_target, self.config.temperature)

    def _as_input(self, obs: Tensor) -> Tensor:
        """Observations as the network takes them: float, bytes of brightness scaled to 0..1."""
        inputs = obs.to(self.device, torch.float32)  # (P, B, *obs)
        return inputs.mul_(self._obs_factor) if self._obs_factor != 1 else inputs


def _measure(value: Tensor, q: Tensor, target: Tensor, shaping: Tensor) -> tuple[Tensor, ...]:
    """Loss, value, |advantage| and shaping."""
    return F.smooth_l1_loss(q, target, reduction="none"), value, value - q, shaping


def _network(config: DQNConfig, spec: EnvSpec, seeds: Sequence[int], device: torch.device, outputs: int) -> QNetworks:
    """The Q-networks of the members, each drawn from its own stream: the same ones at every call."""
    init = generators(seeds, "init")
    if spec.is_image:
        fitting = (
            shape for shape in (_CONVOLUTIONS[config.atari_network], SMALL, MINATAR) if shape.fits(spec.obs_shape)
        )
        shape = next(fitting)
        network = PatchConv if shape is MINATAR else StackedConv
        return network(shape, spec.obs_shape, outputs, init, device=device)
    return StackedMLP((spec.obs_shape[0], *config.hidden, outputs), init, device=device)


def _potential(config: DQNConfig, spec: EnvSpec, device: torch.device) -> Potential:
    """One member's potential."""
    if config.potential == "random":
        return RandomDynamic(config.seed, config.random_period)
    if config.potential == "bootstrapped":
        return Bootstrapped()
    heads = Heads([config], device)
    network = _network(config, spec, [config.seed], device, heads.outputs(require_discrete(spec)))

    def untrained_value(obs: Tensor) -> Tensor:
        lead = obs.shape[: obs.ndim - len(spec.obs_shape)]
        q = heads.q(network(obs.reshape(1, -1, *spec.obs_shape)))
        return targets.value_of(q, config.temperature).reshape(lead)

    return Static(untrained_value)
