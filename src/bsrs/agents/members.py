"""What agents do member by member although their members train together: clip, watch, save and load.

A stacked network keeps its members in one of two ways: as rows of shared tensors (`StackedMLP`) or as networks
of their own (`StackedConv`). The functions here are the only ones that care.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bsrs.agents.agent import Array, Finding, State
from bsrs.agents.nature import PatchConv, StackedConv
from bsrs.rng import stream_seed

Rows = int | slice | EllipsisType

DEAD_NETWORK = (
    "its network gives every state the same value (all units of a layer are off); a lower learning rate may help"
)


def generators(seeds: Sequence[int], *names: str) -> list[torch.Generator]:
    """PyTorch's form of the stream `names`, one for each member's seed."""
    return [torch.Generator().manual_seed(stream_seed(seed, *names)) for seed in seeds]


def stacked(arrays: Sequence[Array]) -> Array:
    """The members' arrays along a leading axis; a view where there is one member."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def clip_gradients(network: nn.Module, gradients: list[Tensor], max_norm: float) -> None:
    """Scale each member's part of `gradients`, those of `network.parameters()`, to a norm of at most `max_norm`."""
    if isinstance(network, StackedConv):
        each = len(gradients) // len(network.members)
        for start in range(0, len(gradients), each):
            _clip(gradients[start : start + each], max_norm)
    elif gradients[0].shape[0] == 1:
        _clip(gradients, max_norm)
    else:
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)  # (P,)
        factor = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


def _clip(gradients: list[Tensor], max_norm: float) -> None:
    """As `torch.nn.utils.clip_grad_norm_` does."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp_(max=1.0))


def network_state(network: nn.Module, rows: int | slice) -> State:
    """One member's weights."""
    return State({name: parameter.detach()[where].clone() for name, parameter, where in _parameters(network, rows)})


@torch.no_grad()
def load_network_state(network: nn.Module, rows: int | slice, state: State) -> None:
    """What `network_state` took out, put back."""
    tensors = _todays(network, state.tensors)
    for name, parameter, where in _parameters(network, rows):
        parameter[where].copy_(tensors[name])


def adam_state(network: nn.Module, rows: int | slice, optimizer: torch.optim.Adam) -> State:
    """The optimiser's memory of one member's weights; empty before the first step."""
    state = State()
    for name, parameter, where in _parameters(network, rows):
        for key, memory in optimizer.state[parameter].items():
            state.tensors[f"{name}/{key}"] = (memory[where] if memory.ndim else memory).clone()
    return state


@torch.no_grad()
def load_adam_state(network: nn.Module, rows: int | slice, optimizer: torch.optim.Adam, state: State) -> None:
    """What `adam_state` took out, put back."""
    if not state.tensors:
        return
    tensors = _todays(network, state.tensors)
    for name, parameter, where in _parameters(network, rows):
        memory = optimizer.state[parameter]
        if not memory:  # as Adam itself does at its first step
            memory["step"] = torch.zeros((), device=parameter.device if optimizer.defaults["fused"] else "cpu")
            memory["exp_avg"], memory["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        for key, tensor in memory.items():
            (tensor[where] if tensor.ndim else tensor).copy_(tensors[f"{name}/{key}"])


def _todays(network: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Saved tensors in the layout that the network has today."""
    return network.converted(tensors) if isinstance(network, PatchConv) else tensors


def _parameters(network: nn.Module, rows: int | slice) -> Iterator[tuple[str, nn.Parameter, Rows]]:
    """A member's parameters by name, and where in each of them the member lives."""
    if isinstance(network, StackedConv):
        assert isinstance(rows, int)
        yield from ((name, parameter, ...) for name, parameter in network.members[rows].named_parameters())
    else:
        yield from ((name, parameter, rows) for name, parameter in network.named_parameters())


class Diagnostics:
    """Running means per member of what the updates see, and the checks that values make sense.

    Sums stay on the device until they are read. The values of a sound agent lie within r_max / (1 - gamma);
    a hundred times that is divergence. They differ between states: if they do not, the network has died, that is, all
    units of a layer are off for whatever it is shown. `spread` is their standard deviation in the last batch.
    """

    SLACK = 100.0
    FLAT = 1e-6

    def __init__(self, names: Sequence[str], members: int, gamma: float, device: torch.device | str = "cpu") -> None:
        self.names = tuple(names)
        self.horizon = 1 / (1 - min(gamma, 0.9999))
        self.largest_reward = np.ones(members)
        self._sums = torch.zeros(len(self.names), members, device=device)
        self._count = 0
        self._values: Tensor | None = None  # (P, B), of the last update
        self._spread = [0.0] * members
        self._last: list[dict[str, float]] = [{} for _ in range(members)]

    def see_rewards(self, reward: Array) -> None:
        """Learn the scale of the rewards (P, n), by which values are judged."""
        np.maximum(self.largest_reward, np.abs(reward).max(axis=1), out=self.largest_reward)

    def add(self, *values: Tensor) -> None:
        """What one update saw, each (P, B), in the order of the names."""
        self._sums += torch.stack(values).mean(dim=-1)
        self._count += 1
        self._values = values[self.names.index("value")]

    def read(self) -> list[dict[str, float]]:
        """The means since the last reading; empty if there was no update."""
        if not self._count:
            return [{} for _ in self._last]
        means = (self._sums / self._count).T.tolist()  # (P, names)
        self._sums.zero_()
        self._count = 0
        self._last = [
            {**dict(zip(self.names, member, strict=True)), "spread": spread}
            for member, spread in zip(means, self._spreads(), strict=True)
        ]
        return self._last

    def _spreads(self) -> list[float]:
        if self._values is not None:
            self._spread, self._values = self._values.std(dim=-1, correction=0).tolist(), None
        return self._spread

    def findings(self) -> list[Finding | None]:
        """Per member, what is wrong with the means read last, if anything."""
        return [self._finding(means, reward) for means, reward in zip(self._last, self.largest_reward, strict=True)]

    def _finding(self, means: dict[str, float], reward: float) -> Finding | None:
        if not means:
            return None
        for name, mean in means.items():
            if not math.isfinite(mean):
                return Finding(f"mean {name} is {mean}", fatal=True)
        value, limit = means["value"], self.SLACK * reward * self.horizon
        if abs(value) > limit:
            return Finding(f"mean value is {value:.3g}, beyond {limit:.3g}", fatal=True)
        if means["spread"] <= self.FLAT * max(1.0, abs(value)):
            return Finding(DEAD_NETWORK, fatal=False)
        return None

    def state(self, member: int) -> dict[str, Any]:
        return {
            "sums": self._sums[:, member].tolist(),
            "count": self._count,
            "spread": self._spreads()[member],
            "largest_reward": float(self.largest_reward[member]),
        }

    def load_state(self, member: int, state: dict[str, Any]) -> None:
        self._sums[:, member] = self._sums.new_tensor(state["sums"])
        self._count = state["count"]
        self._values, self._spread[member] = None, state.get("spread", 0.0)
        self.largest_reward[member] = state["largest_reward"]
