"""What DQN, TD3 and SAC share: random streams, replay, shaping, records and checkpoints of P members.

Nothing here knows how an agent learns. A subclass makes its networks in `build`, and writes `train_on`, one gradient
step on a batch.
"""

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam

from bsrs import kernels
from bsrs.agents.agent import Array, Batch, Finding, State, Transition, times_due
from bsrs.agents.metrics import Metrics
from bsrs.agents.networks import Members
from bsrs.agents.old_models import renamed
from bsrs.agents.probes import Probes
from bsrs.agents.replay import Replay, make_replay
from bsrs.agents.targets import discount_of
from bsrs.agents.weights import adam_state_of, check_weights, load_adam_state, load_weights, weights_of
from bsrs.config.training import OffPolicyConfig
from bsrs.envs import EnvSpec
from bsrs.rng import stream
from bsrs.shaping import Shaper, Shaping

Config = TypeVar("Config", bound=OffPolicyConfig)


class OffPolicyAgent(Generic[Config]):
    """P members that differ in eta and seed. `shaping` replaces what their configs say."""

    streams: ClassVar[tuple[str, ...]] = ("exploration", "batches")
    metric_names: ClassVar[tuple[str, ...]] = ("loss", "value", "advantage", "shaping")

    def __init__(
        self,
        configs: Sequence[Config],
        spec: EnvSpec,
        *,
        device: str = "cpu",
        shaping: Shaping | None = None,
        use_kernels: bool = True,
    ) -> None:
        self.config: Config = configs[0]
        self.members, self.spec, self.device = len(configs), spec, torch.device(device)
        self.seeds = [config.seed for config in configs]
        self.rngs = {name: [stream(seed, name) for seed in self.seeds] for name in self.streams}
        shapings = [config.shaping() if shaping is None else shaping for config in configs]
        split = self.config.potential_network == "split"
        self.shapers = [Shaper(shaping, split=split) for shaping in shapings]
        self.probes = Probes(self.shapers, self.seeds)
        config = self.config
        self.replay: Replay = make_replay(
            spec, self.members, config.buffer_size, config.n_envs, config.n_step, config.gamma
        )
        self.records = Metrics(self.metric_names, self.members, config.gamma, self.device, config.n_envs)
        self.gradient_steps = config.gradient_steps if config.gradient_steps > 0 else config.train_freq
        """Gradient steps per `train_freq` env steps; -1 in the config means one for each."""
        self.updates = 0
        """Gradient steps so far."""
        self.networks: dict[str, Members] = {}
        """Every network by name; `policy` is the one that acts."""
        self.optimizers: dict[str, Adam] = {}
        """The optimizers of those that are trained."""
        self.targets: dict[str, str] = {}
        """Target network -> the network that it follows."""
        self._step = 0
        self.build(configs)
        kernels.keep_freed_memory()
        self.kernel: Any = kernels.kernel_for(self) if use_kernels else None
        """The compiled version of `train_on` and of acting, where there is one."""

    # ---- for subclasses

    def build(self, configs: Sequence[Config]) -> None:
        """Make the networks with `add_network` and `add_target`."""
        raise NotImplementedError

    def train_on(self, batch: Batch, step: int) -> None:
        """Take one gradient step for every member."""
        raise NotImplementedError

    def value(self, obs: Tensor) -> Tensor:
        """V(s) of the online networks: (P, B, *obs) -> (P, B)."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """Env steps in which the target network catches up with the online network."""
        raise NotImplementedError

    def add_network(self, name: str, modules: Sequence[nn.Module], *, train: bool = True) -> Members:
        """Register one network per member, with an Adam of its own if it is trained."""
        network = self.networks[name] = Members(modules).to(self.device)
        if train:
            fused = self.device.type in ("cpu", "cuda")
            self.optimizers[name] = Adam(network.parameters(), self.config.learning_rate, fused=fused)
        return network

    def add_target(self, name: str, of: str) -> Members:
        """Register a target network that starts as a copy."""
        target = self.networks[name] = copy.deepcopy(self.networks[of]).requires_grad_(False)
        self.targets[name] = of
        return target

    # ---- the training loop's side

    def observe(self, transition: Transition) -> None:
        """Store one vector step; continuous actions span -1 to 1 here."""
        largest = self.records.largest_reward  # (P, n)
        np.maximum(largest, np.abs(transition.reward), out=largest)
        self.replay.add(transition)

    def update(self, step: int) -> None:
        """Take the gradient steps that are due after `step` transitions."""
        self._step, config = step, self.config
        if step <= config.learning_starts:
            return
        for _ in range(times_due(step, config.n_envs, config.train_freq) * self.gradient_steps):
            self.updates += 1
            if self.kernel is not None:
                self.kernel.train(step)
            else:
                self.train_on(self.sample(), step)
        if self.probes.wanted and times_due(step, config.n_envs, self.period):
            self.probes.look(self.replay, lambda obs: self.value(self.as_input(obs)))

    def sample(self) -> Batch:
        """Draw a batch for every member from its own stream."""
        drawn = self.replay.sample(self.rngs["batches"], self.config.batch_size)
        obs, action, reward, next_obs, terminated, steps = (
            None if array is None else self.as_tensor(array) for array in drawn
        )
        return Batch(self.as_input(obs), action, reward, self.as_input(next_obs), terminated, steps)  # type: ignore[arg-type]

    def as_tensor(self, array: Array) -> Tensor:
        """Put an array on the device."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def as_input(self, obs: Any) -> Tensor:
        """Turn observations into what networks take: floats, images scaled to 0..1."""
        given: Tensor = obs if isinstance(obs, Tensor) else self.as_tensor(obs)
        tensor = given.to(torch.float32)
        if self.spec.obs_scale == 1:
            return tensor
        scale = 1 / self.spec.obs_scale
        return tensor * scale if tensor is given else tensor.mul_(scale)  # in place where this is a copy

    # ---- the TD target

    def plain_target(self, batch: Batch, bootstrap: Tensor) -> Tensor:
        """Return the TD target of the batch's rewards, (P, B). `bootstrap` is the target network's V(s')."""
        return batch.reward + discount_of(batch.terminated, self.config.gamma, batch.steps) * bootstrap

    def is_shaped(self, step: int) -> bool:
        """Return whether any member is shaped at `step`."""
        return any(shaper.is_active(step) for shaper in self.shapers)

    def shaped_target(self, batch: Batch, bootstrap: Tensor, value: Tensor, next_value: Tensor, step: int) -> Tensor:
        """Return the TD target of the shaped rewards, (P, B). `value` and `next_value` are the potential's V."""
        config, rewards = self.config, []
        gamma = [config.gamma] * self.members if batch.steps is None else config.gamma**batch.steps
        for p, shaper in enumerate(self.shapers):
            own = Batch(*(None if tensor is None else tensor[p] for tensor in batch))  # type: ignore[arg-type]
            shaped = shaper(
                own.reward, value[p], next_value[p], gamma=gamma[p],
                terminated=None if config.terminal == "keep" else own.terminated,
                bootstrap=None if config.potential_network == "target" else bootstrap[p],
                state=own.obs, next_state=own.next_obs, step=step,
            )  # fmt: skip
            if shaper.learns:
                seen = {"terminated": own.terminated, "obs": own.obs, "next_obs": own.next_obs}
                shaper.update(own.reward, value[p], next_value[p], **seen, step=step)
            rewards.append(shaped)
        return self.plain_target(batch._replace(reward=torch.stack(rewards)), bootstrap)

    # ---- records

    def metrics(self) -> list[dict[str, float]]:
        """Return each member's means since the last call, and the eta in force."""
        each = zip(self.records.read(), self.shapers, strict=True)
        return [{**means, **shaper.in_force(self._step)} if means else {} for means, shaper in each]

    def findings(self) -> list[Finding | None]:
        return self.records.findings()

    # ---- checkpoints and models

    def state(self, member: int) -> State:
        state = State(info={"updates": self.updates})
        for name, network in self.networks.items():
            state.add(name, State(weights_of(network.each[member])))
            if name in self.optimizers:
                state.add(f"{name} adam", State(adam_state_of(self.optimizers[name], network.each[member])))
        arrays, info = self.replay.state(member)
        state.add("replay", State(arrays=arrays, info=info))
        for name, rngs in self.rngs.items():
            state.info[name] = rngs[member].bit_generator.state
        state.add("records", self.records.state(member))
        state.info["shaping"] = self.shapers[member].state()
        state.add("probes", State(*self.probes.state(member)))
        return state

    def load_state(self, member: int, state: State) -> None:
        for name, network in self.networks.items():
            load_weights(network.each[member], state.part(name).tensors)
            if name in self.optimizers:
                load_adam_state(self.optimizers[name], network.each[member], state.part(f"{name} adam").tensors)
        replay = state.part("replay")
        self.replay.load_state(member, replay.arrays, replay.info)
        for name, rngs in self.rngs.items():
            rngs[member].bit_generator.state = state.info[name]
        self.records.load_state(member, state.part("records"))
        self.updates = state.info["updates"]
        self.shapers[member].load_state(state.info["shaping"])
        probes = state.part("probes")
        self.probes.load_state(member, probes.arrays, probes.info)

    def policy(self, member: int) -> State:
        """Return the trained networks: the policy's weights by name, those of other networks as `critics/...`.

        With them goes what a scale that learns remembers, so that training can continue.
        """
        trained = {name: network for name, network in self.networks.items() if name not in self.targets}
        return State(
            {
                _prefix(name) + key: tensor
                for name, network in trained.items()
                for key, tensor in weights_of(network.each[member]).items()
            },
            info={"shaping": self.shapers[member].state()} if self.shapers[member].has_memory else {},
        )

    def load_policy(self, member: int, state: State) -> None:
        """Load what `policy` returned, also into the target networks. A policy without its critics will do."""
        tensors, found = renamed(state.tensors), {}
        for name, network in self.networks.items():
            prefix = _prefix(self.targets.get(name, name))
            named = {key.removeprefix(prefix): key for key in tensors if key.startswith(prefix)}
            own = {inner: tensors[key] for inner, key in named.items() if "/" not in inner}
            if own:
                check_weights(network.each[member], own)
                found[name] = own
        for name, own in found.items():  # only now, so that nothing is loaded half-way
            load_weights(self.networks[name].each[member], own)
        if "shaping" in state.info:
            self.shapers[member].load_state(state.info["shaping"])


def _prefix(name: str) -> str:
    return "" if name == "policy" else f"{name}/"


@torch.no_grad()
def clip_grad_norm_per_member(network: Members, max_norm: float) -> None:
    """Scale each member's gradient to a norm of at most `max_norm`."""
    for member in network:
        norm = nn.utils.get_total_norm([p.grad for p in member.parameters() if p.grad is not None])
        if norm.device.type != "cpu" or not norm <= max_norm:  # on a GPU the comparison would wait for the result
            nn.utils.clip_grads_with_norm_(member.parameters(), max_norm, norm)


@torch.no_grad()
def polyak_update(online: Members, target: Members, tau: float) -> None:
    """Move the target network towards the online network by a share `tau`; 1 copies it."""
    for weight, target_weight in zip(online.parameters(), target.parameters(), strict=True):
        target_weight.lerp_(weight, tau)
    for buffer, target_buffer in zip(online.buffers(), target.buffers(), strict=True):
        target_buffer.copy_(buffer)
