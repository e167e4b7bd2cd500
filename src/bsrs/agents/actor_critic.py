"""What TD3 and SAC share: stacked critics and actors, replay, acting, and everything a checkpoint needs.

Inside an agent actions span -1 to 1, in its networks and in its replay; only `act` and `greedy` speak the env's
units. The critics of all members are one stack: networks n*p ... n*p + n-1 are member p's.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from bsrs.agents.adam import Adam
from bsrs.agents.agent import Array, Finding, State, Transition, times_due
from bsrs.agents.member_shaping import EachEta, EachPotential
from bsrs.agents.members import (
    Diagnostics,
    adam_state,
    generators,
    load_adam_state,
    load_network_state,
    network_state,
    stacked,
)
from bsrs.agents.networks import Layers, StackedMLP, Tape, record
from bsrs.agents.replay import ArrayReplay, sample_members
from bsrs.agents.replay import Batch as DrawnBatch
from bsrs.config.actor_critic import ActorCriticConfig
from bsrs.envs import EnvSpec, require_continuous
from bsrs.rng import stream
from bsrs.shaping import Bootstrapped, Potential, RandomDynamic, Shaping, Static, as_scale


@dataclass(frozen=True)
class Batch:
    """What one gradient step learns from, as tensors with the members along the first axis."""

    obs: Tensor  # (P, B, O)
    action: Tensor  # (P, B, A), from -1 to 1
    reward: Tensor  # (P, B)
    next_obs: Tensor  # (P, B, O)
    terminated: Tensor  # (P, B)
    noise: Tensor  # (P, k, B, A): what the step needs of standard normal noise


@dataclass(frozen=True)
class Learner:
    """A stack of networks, how many of them each member has, and who trains them."""

    network: nn.Module
    per_member: int
    optimizer: Adam | None

    def rows(self, member: int) -> slice:
        return slice(member * self.per_member, (member + 1) * self.per_member)


def q_tape(critics: Layers, obs: Tensor, action: Tensor) -> Tape:
    """All critics of every member on (P, B, O) and (P, B, A): its output is (P * n, B, 1)."""
    members, rows, _ = obs.shape
    x = torch.cat((obs, action), dim=-1)  # (P, B, O + A)
    n = critics[0][0].shape[0] // members
    if n > 1:
        x = x.unsqueeze(1).expand(-1, n, -1, -1).reshape(members * n, rows, -1)  # (P * n, B, O + A)
    return record(x, critics)


def q_values(critics: Layers, obs: Tensor, action: Tensor) -> Tensor:
    """All critics of every member: (P, B, O), (P, B, A) -> (P, n, B)."""
    members, rows, _ = obs.shape
    return q_tape(critics, obs, action).output.view(members, -1, rows)


def least(q: Tensor) -> Tensor:
    """The smallest of the critics: (P, n, B) -> (P, B)."""
    return q.amin(dim=1)


class ActorCritic(ABC):
    """P members that differ in `eta` and `seed` only. `shaping` takes the place of what the configs say."""

    noises: int
    """How many draws of noise for a batch of actions one gradient step needs."""
    measures: tuple[str, ...] = ("loss", "value", "advantage", "shaping")
    """What the records hold of each update."""

    def __init__(
        self,
        configs: Sequence[ActorCriticConfig],
        spec: EnvSpec,
        *,
        outputs_per_action: int,
        device: str,
        shaping: Shaping | None,
    ) -> None:
        self.members = len(configs)
        self.device = torch.device(device)
        self._shared = config = configs[0]
        self._seeds = [c.seed for c in configs]
        low, high = (np.array(bound, np.float32) for bound in require_continuous(spec))
        self._centre, self._reach = (high + low) / 2, (high - low) / 2
        self.n_actions, n_obs = len(low), spec.obs_shape[0]
        self.actor = StackedMLP(
            (n_obs, *config.hidden, outputs_per_action * self.n_actions),
            generators(self._seeds, "init", "actor"),
            device=device,
        )
        of_each_critic = [g for g in generators(self._seeds, "init", "critics") for _ in range(config.n_critics)]
        self.critics = StackedMLP((n_obs + self.n_actions, *config.hidden, 1), of_each_critic, device=device)
        self.target_critics = frozen_copy(self.critics)
        self.actor_optimizer = self._adam(self.actor)
        self.critic_optimizer = self._adam(self.critics)
        self._eta = EachEta([as_scale(c.eta) for c in configs])
        self._shaping = shaping or Shaping(self._eta, self._potential())
        self._always_shaped = shaping is not None
        self.replays = [ArrayReplay(spec, config.buffer_size, config.n_envs) for _ in configs]
        self._drawn = DrawnBatch.empty(spec, len(configs), config.batch_size)
        self._exploration = [stream(seed, "exploration") for seed in self._seeds]
        self._batches = [stream(seed, "batches") for seed in self._seeds]
        self._noise = [stream(seed, "noise") for seed in self._seeds]
        self.diagnostics = Diagnostics(self.measures, self.members, config.gamma, device)

    @abstractmethod
    def gradient_step(self, batch: Batch, step: int) -> None:
        """One update of the critics, and of the actor and the targets if they are due."""

    @abstractmethod
    def mean_action(self, actor: Layers, obs: Tensor) -> Tensor:
        """The actors' actions without exploration: (P, B, O) -> (P, B, A)."""

    @abstractmethod
    def explored_action(self, obs: Tensor, noise: Tensor) -> Tensor:
        """The actors' actions with exploration, given standard normal noise (P, B, A)."""

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        shape = (obs.shape[1], self.n_actions)
        if step < self._shared.learning_starts:
            drawn = stacked([rng.uniform(-1, 1, shape).astype(np.float32) for rng in self._exploration])
            return self._in_env_units(drawn)
        noise = stacked([rng.standard_normal(shape, np.float32) for rng in self._exploration])
        with torch.inference_mode():
            action = self.explored_action(self._tensor(obs), self._tensor(noise))
        return self._in_env_units(action.cpu().numpy())

    @torch.inference_mode()
    def greedy(self, obs: Array) -> Array:
        return self._in_env_units(self.mean_action(self.actor.layers, self._tensor(obs)).cpu().numpy())

    def _in_env_units(self, action: Array) -> Array:
        return action * self._reach + self._centre  # (P, n, A)

    # ---- learning

    def observe(self, transition: Transition) -> None:
        self.diagnostics.see_rewards(transition.reward)
        action = (transition.action - self._centre) / self._reach
        for member, replay in enumerate(self.replays):
            replay.add(
                transition.obs[member],
                action[member],
                transition.reward[member],
                transition.next_obs[member],
                transition.terminated[member],
                transition.truncated[member],
            )

    def update(self, step: int) -> None:
        config = self._shared
        if step > config.learning_starts:
            each = config.gradient_steps if config.gradient_steps > 0 else config.train_freq
            for _ in range(times_due(step, config.n_envs, config.train_freq) * each):
                self.gradient_step(self.sample(), step)

    def sample(self) -> Batch:
        """A batch of every member's replay and its noise, drawn from the member's own streams."""
        drawn = sample_members(self.replays, self._batches, self._drawn)
        shape = self.noises, self._shared.batch_size, self.n_actions
        noise = stacked([rng.standard_normal(shape, np.float32) for rng in self._noise])
        return Batch(*(self._tensor(part) for part in (*drawn, noise)))

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def is_shaped(self, step: int) -> bool:
        """Whether the potential matters at `step`: at eta = 0 nothing is spent on it."""
        return self._always_shaped or self._eta.any(step)

    def shape(self, batch: Batch, value: Tensor, next_value: Tensor, step: int) -> Tensor:
        """The shaped reward. Potentials that are not the agent's own take no notice of the values."""
        shaped: Tensor = self._shaping(
            batch.reward,
            value,
            next_value,
            gamma=self._shared.gamma,
            terminated=batch.terminated if self._shared.terminal == "zero" else None,
            state=batch.obs,
            next_state=batch.next_obs,
            step=step,
        )
        return shaped

    @property
    def potential_critics(self) -> Layers:
        """The critics that the potential asks."""
        return (self.critics if self._shared.potential_network == "online" else self.target_critics).layers

    def replayed_values(self, batch: Batch, q: Tensor, next_action: Tensor, next_q: Tensor) -> tuple[Tensor, Tensor]:
        """Q at the replayed action for s and at `next_action` for s', each (P, B), from passes that the loss needs
        anyway where there are any: `q` of the online critics (P, n, B), `next_q` of the target critics (P, B)."""
        if self._shared.potential != "replay":  # a potential that does not ask the critics
            return least(q), next_q
        if self._shared.potential_network == "online":
            return least(q), least(q_values(self.critics.layers, batch.next_obs, next_action))
        return least(q_values(self.target_critics.layers, batch.obs, batch.action)), next_q

    def _potential(self) -> Potential:
        if self._shared.potential == "static":
            actor, critics = frozen_copy(self.actor).layers, frozen_copy(self.critics).layers
            return Static(lambda obs: least(q_values(critics, obs, self.mean_action(actor, obs))))
        if self._shared.potential == "random":
            return EachPotential([RandomDynamic(seed, self._shared.random_period) for seed in self._seeds])
        return Bootstrapped()

    def _adam(self, network: nn.Module) -> Adam:
        return Adam(network.parameters(), self._shared.learning_rate)

    # ---- what the records and the checkpoints need

    def metrics(self) -> list[dict[str, float]]:
        return self.diagnostics.read()

    def findings(self) -> list[Finding | None]:
        return self.diagnostics.findings()

    def learners(self) -> dict[str, Learner]:
        """Every stack of networks that a checkpoint must hold, besides the actor."""
        return {
            "critics": Learner(self.critics, self._shared.n_critics, self.critic_optimizer),
            "target_critics": Learner(self.target_critics, self._shared.n_critics, None),
        }

    def policy(self, member: int) -> State:
        return network_state(self.actor, member)

    def load_policy(self, member: int, state: State) -> None:
        load_network_state(self.actor, member, state)

    def state(self, member: int) -> State:
        state = State()
        state.add("policy", self.policy(member))
        state.add("adam", adam_state(self.actor, member, self.actor_optimizer))
        for name, learner in self.learners().items():
            state.add(name, network_state(learner.network, learner.rows(member)))
            if learner.optimizer is not None:
                state.add(f"{name} adam", adam_state(learner.network, learner.rows(member), learner.optimizer))
        arrays, info = self.replays[member].state()
        state.add("replay", State(arrays=arrays, info=info))
        for name, streams in self._streams().items():
            state.info[name] = streams[member].bit_generator.state
        state.info["diagnostics"] = self.diagnostics.state(member)
        return state

    def load_state(self, member: int, state: State) -> None:
        self.load_policy(member, state.part("policy"))
        load_adam_state(self.actor, member, self.actor_optimizer, state.part("adam"))
        for name, learner in self.learners().items():
            load_network_state(learner.network, learner.rows(member), state.part(name))
            if learner.optimizer is not None:
                adam = state.part(f"{name} adam")
                load_adam_state(learner.network, learner.rows(member), learner.optimizer, adam)
        replay = state.part("replay")
        self.replays[member].load_state(replay.arrays, replay.info)
        for name, streams in self._streams().items():
            streams[member].bit_generator.state = state.info[name]
        self.diagnostics.load_state(member, state.info["diagnostics"])

    def _streams(self) -> dict[str, list[np.random.Generator]]:
        return {"exploration": self._exploration, "batches": self._batches, "noise": self._noise}


def frozen_copy(network: StackedMLP) -> StackedMLP:
    """A network of its own with the same weights, never trained by gradients."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target's weights towards the online ones by the share `tau`."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
