"""What the members of any off-policy agent have, whatever the algorithm: random streams, replays, records, checkpoints.

Agents hold a `Population` and name their networks to it as `Stack`s; nothing here knows what they learn.
"""

import ctypes
import platform
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Array, State, Transition, times_due
from bsrs.agents.diagnostics import Diagnostics
from bsrs.agents.members import shaper_eta
from bsrs.agents.replay import Batch, NStep
from bsrs.agents.replays import Replays
from bsrs.agents.returns import WINDOW, RecentReturns
from bsrs.agents.stack import Stack
from bsrs.config.training import OffPolicyConfig
from bsrs.envs import EnvSpec
from bsrs.rng import stream, stream_seed
from bsrs.shaping import Potential, Shaper, Shaping


def keep_freed_memory() -> None:
    """Let the C library keep what an update frees, because the next one asks for the same again.

    By default glibc gives it back to the system, and an update spends a tenth of its time on page faults.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, 512 << 20)
        libc.mallopt(m_top_pad, 32 << 20)


class Population:
    """The members' streams, replays, shaper and diagnostics."""

    def __init__(
        self,
        configs: Sequence[OffPolicyConfig],
        spec: EnvSpec,
        *,
        streams: Sequence[str],
        measures: Sequence[str],
        measure: Callable[..., tuple[Tensor, ...]],
        potentials: Sequence[Potential],
        shaping: Shaping | None,
        device: torch.device,
    ) -> None:
        keep_freed_memory()
        self.size = len(configs)
        self.device = device
        self.config = config = configs[0]
        shapings = [Shaping(shaper_eta(c), potential) for c, potential in zip(configs, potentials, strict=True)]
        self.shaper = Shaper(shapings if shaping is None else [shaping] * self.size)
        returns = [NStep(c.n_step, c.gamma) for c in configs]
        self.replays = Replays(spec, config.buffer_size, config.n_envs, self.size, returns)
        self.streams = {name: [stream(c.seed, name) for c in configs] for name in streams}
        self.diagnostics = Diagnostics(measures, measure, self.size, config.gamma, device)
        self._drawn = Batch.empty(spec, self.size, config.batch_size)
        self._tensors = Batch(*map(torch.from_numpy, self._drawn.transitions))  # in the same memory
        self.stacks: Mapping[str, Stack] = {}
        """The agent's networks, `policy` among them: set by the agent, kept in checkpoints."""
        self.updates = 0
        """Gradient steps so far, where the algorithm counts them."""
        self.reviews = any(self.shaper.reviews_returns)
        self._step = 0

    def observe(self, transition: Transition) -> None:
        """Store one vector step in the members' replays; its actions are as the networks have them."""
        largest = self.diagnostics.largest_reward  # by which values are judged
        np.maximum(largest, np.abs(transition.reward).max(axis=1), out=largest)
        for member, replay in enumerate(self.replays.each):
            replay.add(*(array[member] for array in transition))

    def gradient_steps_due(self, step: int) -> int:
        """How many gradient steps to take now that `step` transitions have been seen."""
        self._step, config = step, self.config
        if step <= config.learning_starts:
            return 0
        each = config.gradient_steps if config.gradient_steps > 0 else config.train_freq
        return times_due(step, config.n_envs, config.train_freq) * each

    def draw(self) -> Batch:
        """A batch of every member's replay, drawn from its own stream, as tensors of the replay's types."""
        steps = self.replays.sample(self.streams["batches"], self._drawn).steps
        batch = self._tensors if steps is None else self._tensors._replace(steps=torch.from_numpy(steps))
        return batch if self.device.type == "cpu" else Batch(*(None if x is None else self.sent(x) for x in batch))

    def noise(self, name: str, *shape: int) -> Tensor:
        """Standard normal noise of each member's stream `name`: (P, *shape)."""
        each = [rng.standard_normal(shape, np.float32) for rng in self.streams[name]]
        noise = torch.from_numpy(stacked(each))
        return noise if self.device.type == "cpu" else self.sent(noise)

    def sent(self, tensor: Tensor) -> Tensor:
        """On the device."""
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def review(self, step: int, period: float, values: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        """Once in a `period` of the target network, show recent returns to the scales that ask for them.

        `values` has V of the online and of the target network for states (P, N, *obs).
        """
        wanted, config = self.shaper.reviews_returns, self.config
        if step <= config.learning_starts or not times_due(step, config.n_envs, max(round(period), 1)):
            return
        recent = [
            RecentReturns(replay.latest(WINDOW) if want else [], config.gamma)
            for replay, want in zip(self.replays.each, wanted, strict=True)
        ]
        obs = padded(
            [  # the states, and after them the ends: (N + episodes, *obs)
                np.concatenate((replay.take(each.states).obs, replay.take(each.ends).next_obs))
                for replay, each in zip(self.replays.each, recent, strict=True)
            ]
        )
        if obs.shape[1]:
            value, target_value = (v.double().cpu().numpy() for v in values(self.sent(torch.from_numpy(obs))))
            for member in np.flatnonzero(wanted).tolist():
                returned = recent[member].judged(step, value[member], target_value[member])
                self.shaper.review(returned, member)

    def metrics(self) -> list[dict[str, float]]:
        """Per member, the means of what was learnt with since the last call, and the eta in force."""
        means = self.diagnostics.read()
        each = zip(means, self.shaper.in_force(self._step), self.shaper.shares(self._step), strict=True)
        named = [(mean, {"eta": eta} if share is None else {"eta": eta, "share": share}) for mean, eta, share in each]
        return [{**mean, **in_force} if mean else {} for mean, in_force in named]

    def state(self, member: int) -> State:
        """Everything of one member, its networks included."""
        state = State(info={"updates": self.updates})
        for name, stack in self.stacks.items():
            state.add(name, stack.weights(member))
            if stack.optimizer is not None:
                state.add(_adam_name(name), stack.adam_state(member))
        arrays, info = self.replays[member].state()
        state.add("replay", State(arrays=arrays, info=info))
        for name, streams in self.streams.items():
            state.info[name] = streams[member].bit_generator.state
        state.add("diagnostics", self.diagnostics.state(member))
        state.info["shaping"] = self.shaper.state(member)
        return state

    def load_state(self, member: int, state: State) -> None:
        """What `state` took out, put back."""
        for name, stack in self.stacks.items():
            stack.load_weights(member, state.part(name))
            if stack.optimizer is not None:
                stack.load_adam_state(member, state.part(_adam_name(name)))
        replay = state.part("replay")
        self.replays[member].load_state(replay.arrays, replay.info)
        for name, streams in self.streams.items():
            streams[member].bit_generator.state = state.info[name]
        self.diagnostics.load_state(member, state.part("diagnostics"))
        self.updates = state.info.get("updates", 0)  # checkpoints of older versions lack this or that
        if "shaping" in state.info:
            self.shaper.load_state(state.info["shaping"], member)

    def policy(self, member: int) -> State:
        """What was trained of one member: the policy's weights, and those of other networks as `critics/...`."""
        trained = {name: stack.weights(member) for name, stack in self.stacks.items() if not stack.copy_of}
        return State(
            {_model_name(name) + key: tensor for name, part in trained.items() for key, tensor in part.tensors.items()}
        )

    def load_policy(self, member: int, state: State) -> None:
        """What `policy` took out, put back, also into the target networks. A policy without its critics will do."""
        for name, stack in self.stacks.items():
            prefix = _model_name(stack.copy_of or name)
            named = {
                key.removeprefix(prefix): tensor for key, tensor in state.tensors.items() if key.startswith(prefix)
            }
            own = State({key: tensor for key, tensor in named.items() if "/" not in key})
            if own.tensors:
                stack.load_weights(member, own)


def _model_name(name: str) -> str:
    return "" if name == "policy" else f"{name}/"


def _adam_name(name: str) -> str:
    return "adam" if name == "policy" else f"{name} adam"


def generators(seeds: Sequence[int], *names: str) -> list[torch.Generator]:
    """PyTorch's form of the stream `names`, one for each member's seed."""
    return [torch.Generator().manual_seed(stream_seed(seed, *names)) for seed in seeds]


def stacked(arrays: Sequence[Array]) -> Array:
    """The members' arrays along a leading axis; a view where there is one member."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def padded(obs: Sequence[Array]) -> Array:
    """The members' observations (k, *obs), k differing between them, as one (P, largest k, *obs) with zeros."""
    most = max(len(each) for each in obs)
    if all(len(each) == most for each in obs):
        return stacked(obs)
    padded = np.zeros((len(obs), most, *obs[0].shape[1:]), obs[0].dtype)
    for row, each in zip(padded, obs, strict=True):
        row[: len(each)] = each
    return padded
