"""Networks: the built-in ones, yours by name, and P members of any of them.

A network is an ordinary `nn.Module` that maps a batch (B, *obs) to (B, outputs); a critic maps (B, *obs) and
(B, actions) to (B, 1). `Members` holds one copy for each member of a population, with the members on axis 0.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bsrs.errors import BadInput
from bsrs.naming import is_object_name, name_of, object_named
from bsrs.rng import stream_seed

Factory: TypeAlias = Callable[..., nn.Module]
"""Makes a network from the shape of an observation and the number of outputs."""

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip


class Members(nn.Module):
    """P independent networks, one for each member: inputs and outputs have the members on axis 0."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.each)

    def forward(self, *inputs: Tensor) -> Tensor:
        """(P, B, ...) -> (P, B, outputs)"""
        if len(self.each) == 1:
            output: Tensor = self.each[0](*(x[0] for x in inputs))
            return output.unsqueeze(0)
        return torch.stack([network(*own) for network, *own in zip(self.each, *inputs, strict=True)])


class Critics(nn.Module):
    """One member's critics: (B, *obs) and (B, actions) -> (critics, B)."""

    def __init__(self, critics: Sequence[nn.Module]) -> None:
        super().__init__()
        self.each = nn.ModuleList(critics)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        return torch.stack([critic(obs, action).flatten() for critic in self.each])


# --------------------------------------------------------------------------------------------------------------
# The built-in networks.


def mlp(
    n_inputs: int, n_outputs: int, hidden: Sequence[int] = (64, 64), activation: str = "relu", layer_norm: bool = False
) -> nn.Sequential:
    """Make a multilayer perceptron."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise((n_inputs, *hidden)):
        norm = [nn.LayerNorm(fan_out)] if layer_norm else []
        layers += [nn.Linear(fan_in, fan_out), *norm, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear((n_inputs, *hidden)[-1], n_outputs))


class Dueling(nn.Module):
    """Q = V + A - mean A (Wang et al., 2016), on top of a network that returns V and the advantages."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor) -> Tensor:
        value, advantage = self.network(obs).tensor_split((1,), dim=-1)  # (B, 1), (B, A)
        q: Tensor = value + advantage - advantage.mean(dim=-1, keepdim=True)
        return q


class MLPCritic(nn.Module):
    """Q(s, a) of flat observations."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        q: Tensor = self.network(torch.cat((obs, action), dim=-1))
        return q


class FlattenChannelsLast(nn.Module):
    """(B, C, H, W) -> (B, H * W * C)"""

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


# Convolutions as (channels, kernel, stride), then the size of one hidden layer.
CONVOLUTIONS: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small": (((16, 8, 4), (32, 4, 2)), 256),
    "minatar": (((16, 3, 1),), 128),
}


def cnn(obs_shape: Sequence[int], n_outputs: int, name: str = "nature") -> nn.Sequential:
    """Make a convolutional network: Mnih et al. (2015, 2013) for Atari, Young and Tian (2019) for MinAtar."""
    convolutions, hidden = CONVOLUTIONS[name]
    channels, height, width = obs_shape
    layers: list[nn.Module] = []
    for out, kernel, stride in convolutions:
        layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU(inplace=True)]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    flatten = FlattenChannelsLast() if name == "minatar" else nn.Flatten()
    layers += [flatten, nn.Linear(channels * height * width, hidden), nn.ReLU(inplace=True)]
    network = nn.Sequential(*layers, nn.Linear(hidden, n_outputs))
    return network.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


def fits(obs_shape: Sequence[int], name: str) -> bool:
    """Whether images of that shape are large enough for the network."""
    side = min(obs_shape[1:])
    for _, kernel, stride in CONVOLUTIONS[name][0]:
        side = (side - kernel) // stride + 1
    return side > 0


def q_network(
    name: str, obs_shape: Sequence[int], hidden: Sequence[int] = (64, 64), activation: str = "relu",
    layer_norm: bool = False,
) -> Factory:  # fmt: skip
    """Find DQN's network by its name; by default the one that suits the observations."""
    if is_object_name(name):
        return own_factory(name)

    def flat(shape: Sequence[int], n_outputs: int) -> nn.Module:
        return mlp(math.prod(shape), n_outputs, hidden, activation, layer_norm)

    def image(shape: Sequence[int], n_outputs: int) -> nn.Module:
        return cnn(shape, n_outputs, next((each for each in wanted if fits(shape, each)), "minatar"))

    wanted = ([name] if name in CONVOLUTIONS else []) + ["nature", "small", "minatar"]
    is_flat = len(obs_shape) == 1
    known = ["mlp", "dueling"] if is_flat else [*CONVOLUTIONS, "dueling"]
    if name and name not in known:
        kind = "flat observations" if is_flat else "images"
        raise BadInput(f"network {name!r} does not take {kind}; expected {', '.join(known)} or MODULE:FACTORY")
    make = flat if is_flat else image
    return (lambda shape, n_outputs: Dueling(make(shape, n_outputs + 1))) if name == "dueling" else make


def seeded(make: Callable[[], nn.Module], seed: int, *stream: str) -> nn.Module:
    """Make a network whose initial weights come from the stream of that name."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, *stream))
        network = make()
    if not isinstance(network, nn.Module):
        raise BadInput(f"the network factory returned a {type(network).__name__}; expected an nn.Module")
    return network


# --------------------------------------------------------------------------------------------------------------
# Networks of your own, by name.


def network_name(factory: str | Factory) -> str:
    """Name a factory as a config holds it, by `bsrs.naming`."""
    if isinstance(factory, str):
        return factory
    if not callable(factory):
        raise BadInput(f"the network is a {type(factory).__name__}; expected a function that makes an nn.Module")
    return name_of(factory)


def own_factory(name: str) -> Factory:
    """Find the factory behind a name of `network_name`."""
    found = object_named(name, "network")
    if not callable(found):
        raise BadInput(f"{name} is a {type(found).__name__}; expected a function that makes a network")
    factory: Factory = found
    return factory
