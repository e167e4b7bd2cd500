"""Multilayer perceptrons of many members as one.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both.

On a CPU the many small operations of PyTorch, and recording them for automatic differentiation, would cost a good part
of a gradient step. So a pass is one compiled call there (`bsrs.agents.compiled`), and so are the gradients with Adam's
step, and the parameters of a network lie in one row of numbers. Elsewhere every layer is one batched product.
"""

from __future__ import annotations

import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from bsrs.agents import private_torch
from bsrs.agents.tapes import Array, Compiled, CompiledTape, RecordedTape, Tape

# The (weight, bias) of each layer: (P, in, out) and (P, 1, out).
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]


class Weights:
    """The weights and biases of P networks: a row of numbers for each network, and views of them by name.

    So what is done to all parameters alike (Adam, clipping, target networks) is done to one tensor.
    """

    def __init__(self, named: Mapping[str, Tensor], device: torch.device | str) -> None:
        self.numbers = torch.cat([tensor.flatten(1) for tensor in named.values()], dim=1).to(device)  # (P, N)
        ends = list(itertools.accumulate(tensor[0].numel() for tensor in named.values()))
        self._spans = {
            name: (slice(start, end), tensor.shape[1:])
            for (name, tensor), start, end in zip(named.items(), [0, *ends], ends, strict=False)
        }
        self.names = list(named)

    def view(self, name: str, numbers: Tensor, networks: slice | int = slice(None)) -> Tensor:
        """One parameter of some of the networks, in their own `numbers` or in others that lie alike."""
        span, shape = self._spans[name]
        part = numbers[networks, span]
        return part.view(*part.shape[:-1], *shape)

    def layers(self, numbers: Tensor) -> Layers:
        """Weights and biases, which take turns, as pairs."""
        views = [self.view(name, numbers) for name in self.names]
        return list(zip(views[::2], views[1::2], strict=True))


def mlp(x: Tensor, layers: Layers) -> Tensor:
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out); ReLU in between."""
    for i, (weight, bias) in enumerate(layers, start=1):
        x = torch.baddbmm(bias, _rows_of(x, weight.shape[1]), weight)
        x = x.relu() if i < len(layers) else x
    return x


def _rows_of(x: Tensor, size: int) -> Tensor:
    """The same numbers in rows of that size.

    Where a layer takes more numbers than a row has, it takes several rows as one: so a convolution, which is a
    product with one row for each patch, is followed by a layer that takes all patches of an image.
    """
    return x if x.shape[-1] == size else x.reshape(len(x), -1, size)


ROWS_AT_ONCE = 256
"""Where nothing is kept of a pass, so many rows go through all layers before the next: they stay in the cache."""


class Products(ABC):
    """P networks whose passes and gradients are matrix products."""

    stem = 0
    """How many numbers come before the layers, if what these take is made by a convolution."""
    spans: Array = np.empty((0, 0, 0), np.uint32)
    """What compiled code needs to know of it."""

    def __init__(self, weights: Weights) -> None:
        self.weights, numbers = weights, weights.numbers
        on_cpu = numbers.device.type == "cpu" and numbers.dtype == torch.float32
        self.compiled = on_cpu and private_torch.sgemm() != 0
        """Whether passes are compiled calls, or operations of PyTorch."""
        self._arrange(slice(None))

    def _arrange(self, networks: slice) -> None:
        self.rows = self.weights.numbers[networks]
        self.layers = [(weight[networks], bias[networks]) for weight, bias in self.weights.layers(self.weights.numbers)]
        self.networks = len(self.rows)
        behind = [weight.shape[1:] for weight, _ in self.layers[1 if self.stem else 0 :]]
        self.sizes = np.array([behind[0][0], *(fan_out for _, fan_out in behind)])
        self._hidden, self._outputs = int(self.sizes[1:-1].sum()), int(self.sizes[-1])

    def part(self, networks: slice) -> Self:
        """Some of the networks, for passes only."""
        part = copy.copy(self)
        part._arrange(networks)
        return part

    @abstractmethod
    def prepare(self, obs: Tensor) -> Tensor:
        """Observations (P, B, *obs) as the first layer takes them; what is prepared already stays as it is."""

    def __call__(self, x: Tensor) -> Tensor:
        """(P, B, ...) -> (P, B, out)"""
        x = self.prepare(x)
        return self._compiled_pass(x, None, keep=False).output if self.compiled else mlp(self._for_each(x), self.layers)

    def record(self, x: Tensor, more: Tensor | None = None) -> Tape:
        """A pass of `x`, with what its gradients need, and of `more`, which is cheaper in the same call.

        Where there are n networks for every batch, each of them takes it.
        """
        x, more = self.prepare(x), None if more is None else self.prepare(more)
        if self.compiled:
            return self._compiled_pass(x, more, keep=True)
        layers = [(weight.detach().requires_grad_(), bias.detach().requires_grad_()) for weight, bias in self.layers]
        return RecordedTape.of(
            lambda x: mlp(x, layers),
            self._for_each(x),
            [parameter for layer in layers for parameter in layer],
            lambda gradients: [torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)],
            None if more is None else self._for_each(more),
        )

    def _for_each(self, x: Tensor) -> Tensor:
        """The batch of every network, where several take the same."""
        return x if len(x) == self.networks else x.repeat_interleave(self.networks // len(x), dim=0)

    def _compiled_pass(self, x: Tensor, more: Tensor | None, keep: bool) -> CompiledTape:
        from bsrs.agents import compiled  # here, because numba takes a while to import

        first = x.contiguous().numpy()
        further = first[:, :0] if more is None else more.contiguous().numpy()
        members, split, _ = first.shape
        rows = split + further.shape[1]
        if self.stem:
            features = np.empty((members, rows, self.sizes[0]), np.float32)
        else:
            features = first if more is None else np.concatenate((first, further), axis=1)
        kept = (self.networks, rows) if keep else (1, min(rows, ROWS_AT_ONCE))
        hidden = np.empty((kept[0], kept[1] * self._hidden), np.float32)
        output = np.empty((self.networks, rows, self._outputs), np.float32)
        each, numbers = self.networks // members, self.rows.numpy()
        given = Compiled(
            private_torch.sgemm(), self.spans, self.stem, first, each, numbers, self.sizes, features, hidden
        )
        compiled.forward(*given, further, output)
        found = torch.from_numpy(output)
        return CompiledTape(
            found if more is None else found[:, :split], None if more is None else found[:, split:], given
        )


class StackedMLP(Products):
    """P independent multilayer perceptrons, (P, B, sizes[0]) -> (P, B, sizes[-1]).

    Member `p` is drawn from `generators[p]` alone, so its weights do not depend on its company; the
    distribution is that of `torch.nn.Linear`.
    """

    def __init__(
        self, sizes: Sequence[int], generators: Sequence[torch.Generator], *, device: torch.device | str = "cpu"
    ) -> None:
        named = {}
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            named[f"weight_{i}"] = _uniform((fan_in, fan_out), fan_in, generators)
            named[f"bias_{i}"] = _uniform((1, fan_out), fan_in, generators)
        super().__init__(Weights(named, device))

    def prepare(self, obs: Tensor) -> Tensor:
        return obs

    def copy_from(self, member: int, linears: Sequence[nn.Linear]) -> None:
        """Take member `member`'s weights from ordinary linear layers."""
        for (weight, bias), linear in zip(self.layers, linears, strict=True):
            weight[member].copy_(linear.weight.detach().T)
            bias[member, 0].copy_(linear.bias.detach())

    def to_linears(self, member: int) -> list[nn.Linear]:
        """Member `member` as ordinary linear layers, copied."""
        linears = []
        for weight, bias in self.layers:
            linear = nn.Linear(weight.shape[1], weight.shape[2], device="meta")
            linear.weight = nn.Parameter(weight[member].T.clone())
            linear.bias = nn.Parameter(bias[member, 0].clone())
            linears.append(linear)
        return linears


def _uniform(shape: tuple[int, int], fan_in: int, generators: Sequence[torch.Generator]) -> Tensor:
    """The start of `torch.nn.Linear`: uniform within 1/sqrt(fan_in), one draw per member from its own stream."""
    bound = 1 / math.sqrt(fan_in)
    return torch.stack([torch.empty(shape).uniform_(-bound, bound, generator=generator) for generator in generators])
