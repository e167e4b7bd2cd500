"""Multilayer perceptrons of many members as one: every layer is one batched matrix product.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both. One network is the ordinary case and pays nothing for the axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

# The (weight, bias) of each layer: (P, in, out) and (P, 1, out).
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]


def mlp(x: Tensor, layers: Layers) -> Tensor:
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out), ReLU in between."""
    if torch.is_grad_enabled():
        y: Tensor = _MLP.apply(x, *itertools.chain.from_iterable(layers))  # type: ignore[no-untyped-call]
        return y
    return _activations(x, layers)[-1]


def _activations(x: Tensor, layers: Layers) -> list[Tensor]:
    """What goes into each layer, and what comes out of the last."""
    inputs = [x]
    for i, (weight, bias) in enumerate(layers):
        y = _linear(inputs[-1], weight, bias)
        inputs.append(y if i == len(layers) - 1 else y.relu_())
    return inputs


class _MLP(torch.autograd.Function):
    """`mlp` with its gradients by hand: a third of the operations that recording each of its steps would take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        layers = list(zip(parameters[::2], parameters[1::2], strict=True))
        *inputs, y = _activations(x, layers)
        ctx.save_for_backward(*inputs, *(weight for weight, _ in layers))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        depth = len(saved) // 2
        gradients: list[Tensor | None] = [None] * (2 * depth + 1)
        for i in reversed(range(depth)):
            x, weight = saved[i], saved[depth + i]
            if ctx.needs_input_grad[1 + 2 * i]:
                gradients[1 + 2 * i] = _product(x.mT, gradient)
                gradients[2 + 2 * i] = gradient.sum(dim=1, keepdim=True)
            if i > 0:
                gradient = _product(gradient, weight.mT)
                # relu(z) > 0 just where z > 0, so the layer's input tells where the gradient passes
                torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
            elif ctx.needs_input_grad[0]:
                gradients[0] = _product(gradient, weight.mT)
        return tuple(gradients)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.shape[0] == 1:  # the plain product starts quicker than the batched one
        return torch.addmm(bias[0], x[0], weight[0]).unsqueeze(0)
    if weight.shape[2] == 1:
        return _product(x, weight).add_(bias)
    return torch.baddbmm(bias, x, weight)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """`a @ b` for every member: (P, n, k), (P, k, m) -> (P, n, m)."""
    if a.shape[0] == 1:
        return torch.mm(a[0], b[0]).unsqueeze(0)
    if a.shape[2] == 1:
        return a * b
    if b.shape[2] == 1:  # MKL's batched product is several times slower than this where one column comes out
        return (a * b.mT).sum(dim=-1, keepdim=True)
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

    def forward(self, x: Tensor) -> Tensor:
        return mlp(x, self.layers)

    def frozen(self, members: slice = slice(None)) -> Layers:
        """Some of the networks as constants: gradients pass through them to the input, none reach the weights."""
        return [(weight.detach()[members], bias.detach()[members]) for weight, bias in self.layers]

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
