"""Multilayer perceptrons of many members as one, differentiated by hand.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both. Every layer is one batched matrix product, or one for each network where these are large.

Recording them for automatic differentiation would cost a good part of a gradient step. So `record` keeps what a pass
needs to be differentiated, and the `Tape` has the gradients. For the same reason the parameters of a network lie in
one row of numbers.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from torch import Tensor, nn

from bsrs.agents import private_torch

# The (weight, bias) of each layer: (P, in, out) and (P, 1, out), or (in, out) and (out,) of one network.
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
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out), ReLU in between."""
    if len(x) > 1:
        return _pass(x, layers)[-1]
    return _pass(x[0], _of_one(layers, 0))[-1].unsqueeze(0)


def _of_one(layers: Layers, network: int) -> Layers:
    """One network is computed without the leading axis: the plain product starts quicker than the batched one."""
    return [(weight[network], bias[network, 0]) for weight, bias in layers]


def _pass(x: Tensor, layers: Layers, fused: bool = False) -> list[Tensor]:
    """What goes into each layer, and what comes out of the last.

    Where a layer takes more numbers than a row has, it takes several rows as one: so a convolution, which is a
    product with one row for each patch, is followed by a layer that takes all patches of an image.
    """
    passed = []
    for i, (weight, bias) in enumerate(layers, start=1):
        x = _rows_of(x, weight.shape[-2])
        passed.append(x)
        x = _affine(x, weight, bias, i < len(layers), fused)
    return [*passed, x]


@dataclass(frozen=True, slots=True)
class Tape:
    """One pass through networks, or its first rows."""

    output: Tensor  # (P, B, out)
    _network: Products
    _passes: list[list[Tensor]]
    """Of each unit, what went into each layer, and what came out of the last."""
    _apart: bool

    def first(self, rows: int) -> Tape:
        """The pass of the first `rows` of each batch."""
        share = self.output.shape[1] // rows
        passes = [[x[..., : x.shape[-2] // share, :] for x in passed] for passed in self._passes]
        return Tape(self.output[:, :rows], self._network, passes, self._apart)

    def gradients(self, grad_output: Tensor) -> list[Tensor]:
        """Of the weights and biases, given the gradient of the output: one tensor (P, N), as `Weights` has them; it is
        written again by the next tape of these networks."""
        gradient, into = self._network.gradient(self._apart)
        for unit, i, of_output in self._backward(grad_output):
            weight, bias = into[unit][i]
            torch.sum(of_output, dim=-2, keepdim=bias.ndim == 3, out=bias)
            _product_into(self._passes[unit][i].mT, of_output, weight)
        return [gradient]

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        """Of the input (P, B, in), given the gradient of the output."""
        units = self._network.units(self._apart)
        found = [_product(g, units[unit][0][0].mT) for unit, i, g in self._backward(grad_output) if i == 0]
        return _stacked(found)

    def _backward(self, grad_output: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Unit, layer, and the gradient of what it puts out, before its ReLU, from the last layer to the first."""
        units = self._network.units(self._apart)
        for unit, gradient in enumerate(grad_output.unbind() if self._apart else (grad_output,)):
            inputs, layers = self._passes[unit], units[unit]
            for i in reversed(range(len(layers))):
                yield unit, i, gradient
                if i > 0:
                    # relu(z) > 0 just where z > 0, so the layer's input tells where the gradient passes
                    gradient = private_torch.relu_backward_(_product(gradient, layers[i][0].mT), inputs[i])
                    gradient = _rows_of(gradient, layers[i - 1][0].shape[-1])


class Products(ABC):
    """P networks whose passes and gradients are matrix products.

    A unit is what is computed at once: all networks, or each by itself where its products are so large that the
    arithmetic is all that counts.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._arrange(weights.layers(weights.numbers))

    def _arrange(self, layers: Layers) -> None:
        self.layers, self.networks = layers, len(layers[0][0])
        self._many = _many_rows(layers)
        self._units = _units(layers)

    def part(self, networks: slice) -> Self:
        """Some of the networks, for passes only."""
        part = copy.copy(self)
        part._arrange([(weight[networks], bias[networks]) for weight, bias in self.layers])
        return part

    @functools.cached_property
    def _gradient(self) -> tuple[Tensor, dict[bool, list[Layers]]]:
        numbers = torch.empty_like(self.weights.numbers)
        return numbers, _units(self.weights.layers(numbers))

    def units(self, apart: bool) -> list[Layers]:
        """The layers of each unit."""
        return self._units[apart]

    def gradient(self, apart: bool) -> tuple[Tensor, list[Layers]]:
        """Where tapes put gradients: (P, N), and the same as the layers of each unit."""
        numbers, units = self._gradient
        return numbers, units[apart]

    @abstractmethod
    def prepare(self, obs: Tensor) -> Tensor:
        """Observations (P, B, *obs) as the first layer takes them; what is prepared already stays as it is."""

    def __call__(self, x: Tensor) -> Tensor:
        """(P, B, ...) -> (P, B, out)"""
        return self.record(x).output

    def record(self, x: Tensor) -> Tape:
        """A pass, with what its gradients need. Where there are n networks for every batch, each of them takes it."""
        x = self.prepare(x)
        members, rows, _ = x.shape
        large, n = rows >= self._many, self.networks // members
        apart = large or self.networks == 1
        if apart:
            batches = [batch for batch in x.unbind() for _ in range(n)]
        else:
            batches = [x if n == 1 else x.repeat_interleave(n, dim=0)]
        passes = [_pass(*each, large) for each in zip(batches, self._units[apart], strict=True)]
        return Tape(_stacked([passed[-1] for passed in passes]), self, passes, apart)


def _many_rows(layers: Layers) -> float:
    """How many rows of input make the largest product so large that each network is computed by itself."""
    weights = [weight[0] for weight, _ in layers]
    joined = [1, *(after.shape[0] / before.shape[1] for before, after in itertools.pairwise(weights))]  # see `_pass`
    at, largest = max(enumerate(weights), key=lambda each: each[1].numel())
    fits = largest.device.type == "cpu" and largest.dtype == torch.float32
    return private_torch.LINEAR_RELU_PAYS / largest.numel() * math.prod(joined[: at + 1]) if fits else math.inf


def _units(layers: Layers) -> dict[bool, list[Layers]]:
    """The layers of all networks at once, and (`True`) of each apart."""
    return {False: [layers], True: [_of_one(layers, network) for network in range(len(layers[0][0]))]}


def _stacked(units: list[Tensor]) -> Tensor:
    """What units put out, (P, B, ...)."""
    if len(units) > 1:
        return torch.stack(units)
    return units[0] if units[0].ndim == 3 else units[0].unsqueeze(0)


def _rows_of(x: Tensor, size: int) -> Tensor:
    """The same numbers in rows of that size."""
    return x if x.shape[-1] == size else x.reshape(*x.shape[:-2], -1, size)


_NARROW = 16
"""Fewer columns than this are few."""


def _affine(x: Tensor, weight: Tensor, bias: Tensor, relu: bool, fused: bool) -> Tensor:
    if weight.ndim == 2:
        if relu and fused and len(x) * weight.numel() >= private_torch.LINEAR_RELU_PAYS:
            return private_torch.linear_relu(x, weight, bias)
        y = torch.addmm(bias, x, weight)
    elif weight.shape[2] < _NARROW:
        y = _product(x, weight).add_(bias)
    else:
        y = torch.baddbmm(bias, x, weight)
    return y.relu_() if relu else y


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for every network."""
    if a.ndim == 2:
        return torch.mm(a, b)
    if a.shape[2] == 1:
        return a * b
    if b.shape[2] < _NARROW:  # MKL's batched product is several times quicker at few rows than at few columns
        return torch.bmm(b.mT.contiguous(), a.mT).mT.contiguous()
    return torch.bmm(a, b)


def _product_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`a @ b` for every network, into `out`."""
    if a.ndim == 2:
        torch.mm(a, b, out=out)
    elif b.shape[2] < _NARROW:
        out.copy_(_product(a, b))
    else:
        torch.bmm(a, b, out=out)


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
