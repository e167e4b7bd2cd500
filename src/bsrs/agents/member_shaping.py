"""The members' shape-scales and potentials as one, so that a population is shaped by a single call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bsrs.shaping import Potential, ShapeScale


class EachEta:
    """The members' shape-scales as one: (P, 1) at every step."""

    def __init__(self, scales: Sequence[ShapeScale]) -> None:
        self._scales = scales

    def __call__(self, step: int, state: Tensor | None = None) -> Tensor:
        assert state is not None
        return state.new_tensor([[scale(step)] for scale in self._scales])

    def any(self, step: int) -> bool:
        """Whether any member shapes at `step`."""
        return any(scale(step) != 0 for scale in self._scales)


class EachPotential:
    """The members' potentials as one."""

    def __init__(self, potentials: Sequence[Potential]) -> None:
        self._potentials = potentials

    def __call__(self, state: Tensor, value: Tensor, step: int) -> Tensor:
        each = zip(self._potentials, state, value, strict=True)
        return torch.stack([potential(s, v, step) for potential, s, v in each])
