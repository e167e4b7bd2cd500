"""What a pass keeps so that it can be differentiated: compiled code on a CPU, automatic differentiation elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[Any]


class Compiled(NamedTuple):
    """A pass as `bsrs.agents.compiled` takes it: some of the arguments, in its order."""

    sgemm: int
    spans: Array
    stem: int
    x: Array  # (members, rows to learn from, in)
    each: int
    numbers: Array  # (P, N)
    sizes: Array
    features: Array  # (members, B, in): x and further rows, or what a convolution made of them
    hidden: Array  # (P, numbers of all rows)


@dataclass(frozen=True, slots=True)
class CompiledTape:
    """Of networks that are computed one after the other, in one call."""

    output: Tensor  # (P, B, out)
    more: Tensor | None  # the same of further rows, if there are any
    _pass: Compiled

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        """Of each network's input (P, B, in), given the gradient of the output."""
        from bsrs.agents import compiled  # here, because numba takes a while to import

        sgemm, _, _, _, each, numbers, sizes, features, hidden = self._pass
        found = torch.empty(*grad_output.shape[:2], features.shape[2])
        given = sgemm, features, hidden, each, numbers, sizes, grad_output.contiguous().numpy()
        compiled.input_gradient(*given, found.numpy())
        return found

    def learn(self, grad_output: Tensor, means: Tensor, squares: Tensor, rates: Array, settings: Array) -> None:
        """A step of Adam, given the gradient of the output; see `Adam.learn`."""
        from bsrs.agents import compiled

        given = grad_output.contiguous().numpy(), means.numpy(), squares.numpy()
        compiled.learn(*self._pass, *given, rates, settings)


@dataclass(frozen=True, slots=True)
class RecordedTape:
    """Of networks whose pass PyTorch has recorded."""

    output: Tensor  # (P, B, out)
    more: Tensor | None
    _recorded: Tensor
    _x: Tensor
    _parameters: Sequence[Tensor]
    _arranged: Callable[[Sequence[Tensor]], list[Tensor]]  # gradients as the optimiser has the parameters

    @staticmethod
    def of(
        network: Callable[[Tensor], Tensor],
        x: Tensor,
        parameters: Sequence[Tensor],
        arranged: Callable[[Sequence[Tensor]], list[Tensor]],
        more: Tensor | None = None,
    ) -> RecordedTape:
        """Record a pass of `x`, and compute one of `more`."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            recorded = network(x)
        further = None if more is None else network(more).detach()
        return RecordedTape(recorded.detach(), further, recorded, x, parameters, arranged)

    def input_gradient(self, grad_output: Tensor) -> Tensor:
        return torch.autograd.grad(self._recorded, self._x, grad_output, retain_graph=True)[0]

    def gradients(self, grad_output: Tensor) -> list[Tensor]:
        """Of the parameters, given the gradient of the output."""
        return self._arranged(torch.autograd.grad(self._recorded, self._parameters, grad_output, retain_graph=True))


Tape: TypeAlias = CompiledTape | RecordedTape
