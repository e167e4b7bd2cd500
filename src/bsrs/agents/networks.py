"""Multilayer perceptrons of many members as one: every layer is one batched matrix product.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both. One network is the ordinary case and pays nothing for the axis.

These networks are so small that recording them for automatic differentiation would cost a good part of a
gradient step. So `record` keeps what a pass needs to be differentiated, and the `Tape` has the gradients. For the same
reason the parameters of a network lie in one row of numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bsrs.agents import private_torch

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
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out), ReLU in between."""
    return record(x, layers).output


def record(x: Tensor, layers: Layers) -> Tape:
    """`mlp`, with what its gradients need.

    Where a layer takes more numbers than a row has, it takes several rows as one: so a convolution, which is a
    product with one row for each patch, is followed by a layer that takes all patches of an image.
    """
    weights = [_unstacked(weight) for weight, _ in layers]
    y, inputs = _unstacked(x), []
    for i, (weight, (_, bias)) in enumerate(zip(weights, layers, strict=True)):
        inputs.append(_rows_of(y, weight.shape[-2]))
        y = _affine(inputs[i], weight, _unstacked(bias))
        if i < len(layers) - 1:
            y.relu_()
    return Tape(_stacked(y), inputs, weights)


@dataclass(frozen=True, slots=True)
class Tape:
    """One pass through P networks."""

    output: Tensor  # (P, B, out)
    inputs: list[Tensor]
    """What went into each layer."""
    weights: list[Tensor]

    def gradients(self, grad_output: Tensor) -> list[Tensor]:
        """Of the weights and biases, given the gradient of the output: one tensor (P, N), as `Weights` has them."""
        end = sum((weight.shape[-2] + 1) * weight.shape[-1] for weight in self.weights)
        numbers = grad_output.new_empty(len(grad_output), end)
        for i, gradient in self._backward(grad_output):
            n_in, n_out = self.weights[i].shape[-2:]
            bias, end = numbers[:, end - n_out : end].unsqueeze(1), end - n_out
            torch.sum(_stacked(gradient), dim=1, keepdim=True, out=bias)
            weight, end = numbers[:, end - n_in * n_out : end].view(-1, n_in, n_out), end - n_in * n_out
            _product_into(self.inputs[i].mT, gradient, _unstacked(weight))
        return [numbers]

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        """Of the input (P, B, in), given the gradient of the output."""
        for i, gradient in self._backward(grad_output):
            if i == 0:
                grad_input = _product(gradient, self.weights[0].mT)
        return _stacked(grad_input)

    def _backward(self, grad_output: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The gradient of what each layer puts out, before its ReLU, from the last layer to the first."""
        gradient = _unstacked(grad_output)
        for i in reversed(range(len(self.inputs))):
            yield i, gradient
            if i > 0:
                # relu(z) > 0 just where z > 0, so the layer's input tells where the gradient passes
                gradient = private_torch.relu_backward_(_product(gradient, self.weights[i].mT), self.inputs[i])
                gradient = _rows_of(gradient, self.weights[i - 1].shape[-1])


_NARROW = 16
"""Fewer columns than this are few."""

# One network is computed without the leading axis: the plain product starts quicker than the batched one.


def _unstacked(x: Tensor) -> Tensor:
    return x.squeeze(0)


def _stacked(x: Tensor) -> Tensor:
    return x if x.ndim == 3 else x.unsqueeze(0)


def _rows_of(x: Tensor, size: int) -> Tensor:
    """The same numbers in rows of that size."""
    return x if x.shape[-1] == size else x.reshape(*x.shape[:-2], -1, size)


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 2:
        return torch.addmm(bias, x, weight)
    if weight.shape[2] < _NARROW:
        return _product(x, weight).add_(bias)
    return torch.baddbmm(bias, x, weight)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for every network."""
    if a.ndim == 2:
        return torch.mm(a, b)
    if a.shape[2] == 1:
        return a * b
    if b.shape[2] == 1 and a.is_contiguous():
        return torch.stack([torch.mm(a_one, b_one) for a_one, b_one in zip(a, b, strict=True)])
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


class StackedMLP:
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
        self.weights = Weights(named, device)
        self.layers = self.weights.layers(self.weights.numbers)

    def prepare(self, obs: Tensor) -> Tensor:
        """Observations as the network takes them: these networks take them as they are."""
        return obs

    def __call__(self, x: Tensor) -> Tensor:
        return mlp(x, self.layers)

    def record(self, x: Tensor) -> Tape:
        """A pass, with what its gradients need."""
        return record(x, self.layers)

    def rows(self, rows: slice) -> Layers:
        """Some of the networks of the stack."""
        return [(weight[rows], bias[rows]) for weight, bias in self.layers]

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
