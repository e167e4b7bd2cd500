"""Multilayer perceptrons of many members as one: every layer is one batched matrix product.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both. One network is the ordinary case and pays nothing for the axis.

These networks are so small that recording them for automatic differentiation would cost a good part of a
gradient step. So `record` keeps what a pass needs to be differentiated, and the `Tape` has the gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bsrs.agents import private_torch

# The (weight, bias) of each layer: (P, in, out) and (P, 1, out).
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]


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
        """Of the weights and biases, layer by layer, given the gradient of the output."""
        gradients: list[Tensor] = []
        for i, gradient in self._backward(grad_output):
            gradients += [_stacked(gradient.sum(dim=-2, keepdim=True)), _stacked(_product(self.inputs[i].mT, gradient))]
        return gradients[::-1]

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
        return torch.bmm(b.mT.contiguous(), a.mT).mT.contiguous()  # Adam takes gradients in the layout of the weights
    return torch.bmm(a, b)


class StackedMLP(nn.Module):
    """P independent multilayer perceptrons, (P, B, sizes[0]) -> (P, B, sizes[-1]).

    Member `p` is drawn from `generators[p]` alone, so its weights do not depend on its company; the
    distribution is that of `torch.nn.Linear`.
    """

    def __init__(
        self, sizes: Sequence[int], generators: Sequence[torch.Generator], *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        layers = []
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            weight = _uniform((fan_in, fan_out), fan_in, generators, device)
            bias = _uniform((1, fan_out), fan_in, generators, device)
            self.register_parameter(f"weight_{i}", weight)
            self.register_parameter(f"bias_{i}", bias)
            layers.append((weight, bias))
        self.layers = tuple(layers)

    def prepare(self, obs: Tensor) -> Tensor:
        """Observations as `forward` and `record` take them: these networks take them as they are."""
        return obs

    def forward(self, x: Tensor) -> Tensor:
        return mlp(x, self.layers)

    def record(self, x: Tensor) -> Tape:
        """`forward`, with what its gradients need; those come in the order of `parameters`."""
        return record(x, self.layers)

    def rows(self, rows: slice) -> Layers:
        """Some of the networks of the stack."""
        return [(weight[rows], bias[rows]) for weight, bias in self.layers]

    @torch.no_grad()
    def copy_from(self, member: int, linears: Sequence[nn.Linear]) -> None:
        """Take member `member`'s weights from ordinary linear layers."""
        for (weight, bias), linear in zip(self.layers, linears, strict=True):
            weight[member].copy_(linear.weight.T)
            bias[member, 0].copy_(linear.bias)

    @torch.no_grad()
    def to_linears(self, member: int) -> list[nn.Linear]:
        """Member `member` as ordinary linear layers, copied."""
        linears = []
        for weight, bias in self.layers:
            linear = nn.Linear(weight.shape[1], weight.shape[2], device="meta")
            linear.weight = nn.Parameter(weight[member].T.clone())
            linear.bias = nn.Parameter(bias[member, 0].clone())
            linears.append(linear)
        return linears


def _uniform(
    shape: tuple[int, int], fan_in: int, generators: Sequence[torch.Generator], device: torch.device | str
) -> nn.Parameter:
    """The start of `torch.nn.Linear`: uniform within 1/sqrt(fan_in), one draw per member from its own stream."""
    bound = 1 / math.sqrt(fan_in)
    drawn = [torch.empty(shape).uniform_(-bound, bound, generator=generator) for generator in generators]
    return nn.Parameter(torch.stack(drawn).to(device))
