"""Multilayer perceptrons of many members as one: every layer is one batched matrix product.

The leading axis holds networks that know nothing of each other: the members of a population, TD3's twin
critics, or both. One network is the ordinary case and pays nothing for the axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

# The (weight, bias) of each layer: (P, in, out) and (P, 1, out).
Layers: TypeAlias = Sequence[tuple[Tensor, Tensor]]


def mlp(x: Tensor, layers: Layers) -> Tensor:
    """The P networks `layers`, each on its own batch: (P, B, in) -> (P, B, out), ReLU in between."""
    for i, (weight, bias) in enumerate(layers):
        x = _linear(x if i == 0 else x.relu_(), weight, bias)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.shape[0] == 1:  # the plain product starts quicker than the batched one
        return torch.addmm(bias.squeeze(0), x.squeeze(0), weight.squeeze(0)).unsqueeze(0)
    if weight.shape[2] == 1:  # MKL's batched product is several times slower than this where one column comes out
        return (x * weight.mT).sum(dim=-1, keepdim=True) + bias
    return torch.baddbmm(bias, x, weight)


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
