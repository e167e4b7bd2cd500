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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bsrs.agents import private_torch
from bsrs.agents.adam import LARGE

Array: TypeAlias = NDArray[Any]
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


def mlp(x: Tensor, layers: Layers, fused: bool = False) -> Tensor:
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out), or one network on (B, in); ReLU in
    between, in one operation with the layer before it where `fused` and that is large."""
    one = x.ndim == 3 and len(x) == 1
    y, each = (x[0], _of_one(layers)) if one else (x, layers)
    for i, (weight, bias) in enumerate(each, start=1):
        y = _affine(_rows_of(y, weight.shape[-2]), weight, bias, i < len(each), fused)
    return y.unsqueeze(0) if one else y


def _of_one(layers: Layers, network: int = 0) -> Layers:
    """One network is computed without the leading axis: the plain product starts quicker than the batched one."""
    return [(weight[network], bias[network, 0]) for weight, bias in layers]


Gradients: TypeAlias = Iterator[tuple[slice, list[Tensor]]]
"""Which networks, and the gradients of their parameters; what has been read may be written again by the next."""


@dataclass(frozen=True, slots=True)
class StackedTape:
    """One pass through networks that are computed all at once, or its first rows."""

    output: Tensor  # (P, B, out)
    _network: Products
    _inputs: list[Tensor]  # of each layer

    def first(self, rows: int) -> StackedTape:
        """The pass of the first `rows` of each batch."""
        share = self.output.shape[1] // rows
        inputs = [x[..., : x.shape[-2] // share, :] for x in self._inputs]
        return StackedTape(self.output[:, :rows], self._network, inputs)

    def gradients(self, grad_output: Tensor) -> Gradients:
        """Of the weights and biases, given the gradient of the output: one tensor (P, N), as `Weights` has them."""
        network = self._network
        numbers, into = network.gradient
        for i, of_output in self._backward(grad_output):
            weight, bias = into[i]
            torch.sum(of_output, dim=-2, keepdim=bias.ndim == 3, out=bias)
            _product_into(self._inputs[i].mT, of_output, weight)
        yield slice(0, network.networks), [numbers]

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        """Of the input (P, B, in), given the gradient of the output."""
        *_, (_, gradient) = self._backward(grad_output)
        return _stacked(_product(gradient, self._network.unit[0][0].mT))

    def _backward(self, grad_output: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Layer, and the gradient of what it puts out, before its ReLU, from the last layer to the first."""
        layers = self._network.unit
        gradient = grad_output if layers[0][0].ndim == 3 else grad_output[0]
        for i in reversed(range(len(layers))):
            yield i, gradient
            if i > 0:
                # relu(z) > 0 just where z > 0, so the layer's input tells where the gradient passes
                gradient = private_torch.relu_backward_(_product(gradient, layers[i][0].mT), self._inputs[i])
                gradient = _rows_of(gradient, layers[i - 1][0].shape[-1])


@dataclass(frozen=True, slots=True)
class CompiledTape:
    """The same of networks that are computed one after the other, so that what one has in the cache is used until its
    step is done; see bsrs.agents.compiled."""

    output: Tensor  # (P, B, out)
    _network: Products
    _x: Tensor  # (members, B, in)
    _features: Tensor  # the same, or what a convolution made of it
    _hidden: Tensor  # (P, numbers of all rows)
    _all_rows: int

    def first(self, rows: int) -> CompiledTape:
        x, features = self._x[:, :rows], self._features[:, :rows]
        return CompiledTape(self.output[:, :rows], self._network, x, features, self._hidden, self._all_rows)

    def gradients(self, grad_output: Tensor) -> Gradients:
        network, (numbers, _) = self._network, self._network.gradient
        x, features, into, stem = self._x.numpy(), self._features.numpy(), numbers[0].numpy(), network.stem
        grad = torch.empty(features.shape[1:] if stem else (0, 0)).numpy()
        for i, _ in self._backward(grad_output, into[stem:], itertools.repeat(grad)):
            if stem:
                network.stem_gradient(x[i], features[i], grad, into[:stem])
            yield slice(i, i + 1), [numbers]

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        found = torch.empty(len(grad_output), *self._features.shape[1:])
        for _ in self._backward(grad_output, np.empty(0, np.float32), found.numpy()):
            pass
        return found

    def _backward(self, grad_output: Tensor, into: Array, grads: Iterable[Array]) -> Iterator[tuple[int, Array]]:
        """Network by network: the gradients of its numbers are in `into`, those of its features in its `grads`."""
        from bsrs.agents import compiled

        network, features, grad_output = self._network, self._features.numpy(), grad_output.contiguous()
        rows, each = network.rows.numpy()[:, network.stem :], network.networks // len(features)
        arrays = zip(rows, self._hidden.numpy(), grad_output.numpy(), grads, strict=False)
        for i, (row, hidden, of_output, grad) in enumerate(arrays):
            given = features[i // each], hidden, self._all_rows, row, network.sizes, of_output
            compiled.backward(private_torch.sgemm(), *given, into, grad)
            yield i, grad


class Products(ABC):
    """P networks whose passes and gradients are matrix products."""

    stem = 0
    """How many numbers come before the layers, if what these take is made by a convolution."""

    def __init__(self, weights: Weights) -> None:
        self.weights, numbers = weights, weights.numbers
        on_cpu = numbers.device.type == "cpu" and numbers.dtype == torch.float32
        pays = self.stem > 0 or (numbers.shape[1] >= LARGE and torch.get_num_threads() == 1)
        self.compiled = on_cpu and pays and private_torch.sgemm() != 0
        """Whether each network is computed by itself, in compiled calls, which use one thread between their products.
        It depends on PyTorch's threads when the networks are made, so that a run does not change in the middle."""
        self._arrange(slice(None))

    def _arrange(self, networks: slice) -> None:
        self.rows = self.weights.numbers[networks]
        self.layers = [(weight[networks], bias[networks]) for weight, bias in self.weights.layers(self.weights.numbers)]
        self.networks = len(self.rows)
        self.unit = _of_one(self.layers) if self.networks == 1 else self.layers
        self.layers_of_each = [_of_one(self.layers, network) for network in range(self.networks)]
        largest = max(weight[0].numel() for weight, _ in self.layers)
        fuses = self.compiled and not self.stem
        self._many_rows = private_torch.LINEAR_RELU_PAYS / largest if fuses else math.inf
        behind = [weight.shape[1:] for weight, _ in self.layers[1 if self.stem else 0 :]]
        self.sizes = np.array([behind[0][0], *(fan_out for _, fan_out in behind)])
        self._hidden, self._outputs = int(self.sizes[1:-1].sum()), int(self.sizes[-1])

    def part(self, networks: slice) -> Self:
        """Some of the networks, for passes only."""
        part = copy.copy(self)
        part._arrange(networks)
        return part

    @functools.cached_property
    def gradient(self) -> tuple[Tensor, Layers]:
        """Where tapes put gradients: (P, N), or (1, N) of one network after the other, and the same as layers."""
        numbers = torch.empty_like(self.rows[:1] if self.compiled else self.rows)
        layers = self.weights.layers(numbers)
        return numbers, _of_one(layers) if len(numbers) == 1 else layers

    @abstractmethod
    def prepare(self, obs: Tensor) -> Tensor:
        """Observations (P, B, *obs) as the first layer takes them; what is prepared already stays as it is."""

    def __call__(self, x: Tensor) -> Tensor:
        """(P, B, ...) -> (P, B, out)"""
        if x.shape[1] < self._many_rows:
            return self.record(x, keep=False).output
        each = zip(x.repeat_interleave(self.networks // len(x), dim=0), self.layers_of_each, strict=True)
        return torch.stack([mlp(one, layers, fused=True) for one, layers in each])

    def record(self, x: Tensor, *, keep: bool = True) -> Tape:
        """A pass, with what its gradients need. Where there are n networks for every batch, each of them takes it."""
        x = self.prepare(x)
        if self.compiled:
            return self._record_compiled(x.contiguous(), keep)
        n = self.networks // len(x)
        x = x[0] if self.networks == 1 else x if n == 1 else x.repeat_interleave(n, dim=0)
        inputs = []
        for i, (weight, bias) in enumerate(self.unit, start=1):
            x = _rows_of(x, weight.shape[-2])
            inputs.append(x)
            x = _affine(x, weight, bias, i < len(self.unit))
        return StackedTape(_stacked(x), self, inputs)

    def _record_compiled(self, x: Tensor, keep: bool) -> CompiledTape:
        from bsrs.agents import compiled  # here, because numba takes a while to import

        features = self.stem_pass(x) if self.stem else x
        members, rows, _ = x.shape
        hidden = torch.empty(self.networks if keep else 1, rows * self._hidden)
        output = torch.empty(self.networks, rows, self._outputs)
        given = features.numpy(), self.networks // members, self.rows[:, self.stem :].numpy(), self.sizes
        compiled.forward(private_torch.sgemm(), *given, hidden.numpy(), output.numpy())
        return CompiledTape(output, self, x, features, hidden, rows)

    def stem_pass(self, x: Tensor) -> Tensor:
        """What a convolution makes of (P, B, in), where there is one."""
        raise NotImplementedError

    def stem_gradient(self, x: Array, features: Array, grad_features: Array, into: Array) -> None:
        """Of its numbers, for one network."""
        raise NotImplementedError


Tape: TypeAlias = StackedTape | CompiledTape


def _stacked(x: Tensor) -> Tensor:
    """(P, B, ...), also of one network."""
    return x if x.ndim == 3 else x.unsqueeze(0)


def _rows_of(x: Tensor, size: int) -> Tensor:
    """The same numbers in rows of that size.

    Where a layer takes more numbers than a row has, it takes several rows as one: so a convolution, which is a
    product with one row for each patch, is followed by a layer that takes all patches of an image.
    """
    return x if x.shape[-1] == size else x.reshape(*x.shape[:-2], -1, size)


_NARROW = 16
"""Fewer columns than this are few."""


def _affine(x: Tensor, weight: Tensor, bias: Tensor, relu: bool, fused: bool = False) -> Tensor:
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
