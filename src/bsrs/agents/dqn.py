"""DQN that shapes its own reward. Everything the paper changes is in `DQNAgent._target`.

V(s) comes from the forward pass that the loss needs anyway; V(s') costs one more pass without gradients, and
only where eta is not zero: at eta = 0 this is plain DQN, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bsrs.agents import targets
from bsrs.agents.adam import Adam
from bsrs.agents.agent import Array, Finding, State, Transition, times_due
from bsrs.agents.member_shaping import EachEta, EachPotential
from bsrs.agents.members import (
    Diagnostics,
    adam_state,
    clip_gradients,
    generators,
    load_adam_state,
    load_network_state,
    network_state,
    stacked,
)
from bsrs.agents.nature import MINATAR, NATURE, SMALL, PatchConv, StackedConv
from bsrs.agents.networks import StackedMLP
from bsrs.agents.replay import ArrayReplay, FrameReplay, make_replay, sample_members
from bsrs.agents.replay import Batch as DrawnBatch
from bsrs.config.dqn import DQNConfig
from bsrs.envs import EnvSpec, require_discrete
from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.shaping import Bootstrapped, Potential, RandomDynamic, Shaping, Static, as_scale

QNetworks = StackedMLP | StackedConv | PatchConv


@dataclass(frozen=True)
class Batch:
    """What one gradient step learns from, as tensors with the members along the first axis."""

    obs: Tensor  # (P, B, *obs), float
    action: Tensor  # (P, B)
    reward: Tensor  # (P, B)
    next_obs: Tensor  # (P, B, *obs), float
    terminated: Tensor  # (P, B)


class DQNAgent:
    """P members that differ in `eta` and `seed` only. `shaping` takes the place of what the configs say."""

    def __init__(
        self,
        configs: Sequence[DQNConfig],
        spec: EnvSpec,
        *,
        device: str = "cpu",
        shaping: Shaping | None = None,
    ) -> None:
        self.members = len(configs)
        self.config = config = configs[0]
        self.device = torch.device(device)
        self.n_actions = require_discrete(spec)
        self._seeds = [c.seed for c in configs]
        self._obs_factor = 1 / spec.obs_scale
        self.online, self.target = (_network(config, spec, self._seeds, self.device) for _ in range(2))
        rescale = _rescaling(configs)
        self._reward_factor = 1 / rescale
        self.optimizer = Adam(self.online.parameters(), config.learning_rate * rescale)
        self._eta = EachEta([as_scale(c.eta) for c in configs])
        self._shaping = shaping or Shaping(self._eta, self._potential(spec))
        self._always_shaped = shaping is not None
        self.replays: list[ArrayReplay | FrameReplay] = [
            make_replay(spec, config.buffer_size, config.n_envs) for _ in configs
        ]
        self._drawn = DrawnBatch.empty(spec, self.members, config.batch_size)
        self._exploration = [stream(seed, "exploration") for seed in self._seeds]
        self._batches = [stream(seed, "batches") for seed in self._seeds]
        self.diagnostics = Diagnostics(("loss", "value", "advantage", "shaping"), self.members, config.gamma, device)

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        n: int = obs.shape[1]
        epsilon = self.epsilon(step)
        explore = stacked([rng.random(n) for rng in self._exploration]) < epsilon  # (P, n)
        random_action = stacked([rng.integers(0, self.n_actions, n) for rng in self._exploration])  # (P, n)
        if explore.all():
            return random_action
        return np.where(explore, random_action, self.greedy(obs))

    def epsilon(self, step: int) -> float:
        """The share of random actions at `step`."""
        config = self.config
        if step < config.learning_starts:
            return 1.0
        fall = config.exploration_fraction * config.steps
        progress = min(step / fall, 1.0) if fall > 0 else 1.0
        return config.exploration_initial_eps + progress * (
            config.exploration_final_eps - config.exploration_initial_eps
        )

    @torch.inference_mode()
    def greedy(self, obs: Array) -> Array:
        return self.online(self._as_input(torch.from_numpy(obs))).argmax(dim=-1).cpu().numpy()  # type: ignore[no-any-return]

    # ---- learning

    def observe(self, transition: Transition) -> None:
        self.diagnostics.see_rewards(transition.reward)
        for member, replay in enumerate(self.replays):
            replay.add(
                transition.obs[member],
                transition.action[member],
                transition.reward[member],
                transition.next_obs[member],
                transition.terminated[member],
                transition.truncated[member],
            )

    def update(self, step: int) -> None:
        config = self.config
        if times_due(step, config.n_envs, config.target_update_interval):
            self.target.load_state_dict(self.online.state_dict())
        if step > config.learning_starts:
            for _ in range(times_due(step, config.n_envs, config.train_freq) * config.gradient_steps):
                self.gradient_step(self.sample(), step)

    def sample(self) -> Batch:
        """A batch of every member's replay, drawn from its own stream."""
        drawn = sample_members(self.replays, self._batches, self._drawn)
        obs, action, reward, next_obs, terminated = (torch.from_numpy(part).to(self.device) for part in drawn)
        return Batch(self._as_input(obs), action, reward, self._as_input(next_obs), terminated)

    @torch.no_grad()
    def gradient_step(self, batch: Batch, step: int) -> None:
        """One step of Adam on the Huber loss of the shaped TD error."""
        tape = self.online.record(batch.obs)
        q = tape.output  # (P, B, A)
        target, shaping_term = self._target(batch, q, step)  # (P, B), (P, B)
        q_chosen = targets.chosen(q, batch.action)  # (P, B)
        of_chosen = (q_chosen - target).clamp_(-1, 1).div_(self.config.batch_size)  # of the mean Huber loss
        of_q = torch.zeros_like(q).scatter_(-1, batch.action.unsqueeze(-1), of_chosen.unsqueeze(-1))  # (P, B, A)
        gradients = tape.gradients(of_q)
        clip_gradients(self.online, gradients, self.config.max_grad_norm)
        self.optimizer.descend(gradients)
        value = q.amax(dim=-1)  # (P, B)
        loss = F.smooth_l1_loss(q_chosen, target, reduction="none")  # (P, B)
        self.diagnostics.add(loss, value, value - q_chosen, shaping_term)  # the third is |A|

    def _target(self, batch: Batch, q: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The TD target of the shaped reward, and the shaping term in it. `q` is the online network's at s."""
        config = self.config
        shaped = self._is_shaped(step)
        potential_is_online = config.potential == "bootstrapped" and config.potential_network == "online"
        next_q_target = self.target(batch.next_obs)  # (P, B, A)
        needs_online = config.double or (shaped and potential_is_online)
        next_q = self.online(batch.next_obs) if needs_online else next_q_target  # (P, B, A)
        if config.double:
            next_value = targets.double_value(next_q, next_q_target)  # (P, B)
        else:
            next_value = targets.value_of(next_q_target, config.temperature)  # (P, B)
        plain = batch.reward * self._reward_factor if self._reward_factor != 1 else batch.reward
        reward = plain
        if shaped and config.potential_network == "online":
            reward = self._shape(plain, batch, q, next_q, step)
        elif shaped:
            reward = self._shape(plain, batch, self.target(batch.obs), next_q_target, step)
        return targets.td_target(reward, next_value, batch.terminated, config.gamma), reward - plain

    def _shape(self, reward: Tensor, batch: Batch, q: Tensor, next_q: Tensor, step: int) -> Tensor:
        config = self.config
        shaped: Tensor = self._shaping(
            reward,
            targets.value_of(q, config.temperature),
            targets.value_of(next_q, config.temperature),
            gamma=config.gamma,
            terminated=batch.terminated if config.terminal == "zero" else None,
            state=batch.obs,
            next_state=batch.next_obs,
            step=step,
        )
        return shaped

    def _is_shaped(self, step: int) -> bool:
        if self.config.potential == "rescaled":
            return False
        return self._always_shaped or self._eta.any(step)

    def _potential(self, spec: EnvSpec) -> Potential:
        if self.config.potential == "static":
            untrained = _network(self.config, spec, self._seeds, self.device)
            return Static(lambda obs: targets.value_of(untrained(obs), self.config.temperature))
        if self.config.potential == "random":
            return EachPotential([RandomDynamic(seed, self.config.random_period) for seed in self._seeds])
        return Bootstrapped()

    def _as_input(self, obs: Tensor) -> Tensor:
        """Observations as the network takes them: float, bytes of brightness scaled to 0..1."""
        inputs = obs.to(self.device, torch.float32)  # (P, B, *obs)
        return inputs.mul_(self._obs_factor) if self._obs_factor != 1 else inputs

    # ---- what the records and the checkpoints need

    def metrics(self) -> list[dict[str, float]]:
        return self.diagnostics.read()

    def findings(self) -> list[Finding | None]:
        return self.diagnostics.findings()

    def policy(self, member: int) -> State:
        return network_state(self.online, member)

    def load_policy(self, member: int, state: State) -> None:
        load_network_state(self.online, member, state)

    def state(self, member: int) -> State:
        replay_arrays, replay_info = self.replays[member].state()
        state = State()
        state.add("policy", self.policy(member))
        state.add("adam", adam_state(self.online, member, self.optimizer))
        state.add("target", network_state(self.target, member))
        state.add("replay", State(arrays=replay_arrays, info=replay_info))
        state.info["exploration"] = self._exploration[member].bit_generator.state
        state.info["batches"] = self._batches[member].bit_generator.state
        state.info["diagnostics"] = self.diagnostics.state(member)
        return state

    def load_state(self, member: int, state: State) -> None:
        self.load_policy(member, state.part("policy"))
        load_adam_state(self.online, member, self.optimizer, state.part("adam"))
        load_network_state(self.target, member, state.part("target"))
        replay = state.part("replay")
        self.replays[member].load_state(replay.arrays, replay.info)
        self._exploration[member].bit_generator.state = state.info["exploration"]
        self._batches[member].bit_generator.state = state.info["batches"]
        self.diagnostics.load_state(member, state.info["diagnostics"])


def _network(config: DQNConfig, spec: EnvSpec, seeds: Sequence[int], device: torch.device) -> QNetworks:
    """The Q-networks of the members, each drawn from its own stream: the same ones at every call."""
    init = generators(seeds, "init")
    n_actions = require_discrete(spec)
    if spec.kind == "minatar":
        return PatchConv(MINATAR, spec.obs_shape, n_actions, init, device=device)
    if spec.is_image:
        shape = _CONVOLUTIONS[config.atari_network]
        return StackedConv(shape, spec.obs_shape, n_actions, init, device=device)
    return StackedMLP((spec.obs_shape[0], *config.hidden, n_actions), init, device=device)


_CONVOLUTIONS = {"nature": NATURE, "small": SMALL}


def _rescaling(configs: Sequence[DQNConfig]) -> float:
    """1 + eta for the control that rescales instead of shaping, 1 otherwise."""
    if configs[0].potential != "rescaled":
        return 1.0
    etas = {float(config.eta) for config in configs}
    if len(etas) > 1:
        raise BadInput(f"potential rescaled has etas {sorted(etas)}; expected one, members share the learning rate")
    return 1 + etas.pop()
