"""Adam for small networks, where its bookkeeping in Python would cost as much as the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType

import torch
from torch import Tensor

from bsrs.agents import private_torch

# Part of a list of parameters: which of them, and which rows of it.
Places = Sequence[tuple[int, slice | EllipsisType]]


class Adam(torch.optim.Adam):
    """PyTorch's Adam with `descend`: the fused update for gradients at hand, and nothing around it.

    Parts of the parameters may differ in their learning rates: `rates` has each rate and where it holds. The state is
    PyTorch's own, so that checkpoints and `step` see no difference.
    """

    def __init__(self, parameters: Sequence[Tensor], rates: Sequence[tuple[float, Places]]) -> None:
        super().__init__(parameters, rates[0][0], fused=True)
        self._parameters: list[Tensor] = self.param_groups[0]["params"]
        self._rates = rates
        self._memory: tuple[list[Tensor], list[Tensor], list[Tensor]] | None = None

    @torch.no_grad()
    def descend(self, gradients: Sequence[Tensor]) -> None:
        """One step, given the gradient of every parameter."""
        exp_avg, exp_avg_sq, steps = self._memory = self._memory or self._all_memory()
        group = self.param_groups[0]
        lists = self._parameters, gradients, exp_avg, exp_avg_sq
        if len(self._rates) == 1:
            private_torch.adam_(*lists, steps, learning_rate=group["lr"], betas=group["betas"], eps=group["eps"])
            return
        taken = [step.clone() for step in steps]
        for rate, places in self._rates:
            member_steps = [steps[i] for i, _ in places]
            private_torch.copy_(member_steps, [taken[i] for i, _ in places])  # shared: each part would count it up
            one, gradient, mean, square = ([tensors[i][rows] for i, rows in places] for tensors in lists)
            private_torch.adam_(
                one, gradient, mean, square, member_steps, learning_rate=rate, betas=group["betas"], eps=group["eps"]
            )

    def _all_memory(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The state as lists: zeros, unless a checkpoint was loaded."""
        memories = [self.memory_of(parameter) for parameter in self._parameters]
        exp_avg, exp_avg_sq, steps = ([m[key] for m in memories] for key in ("exp_avg", "exp_avg_sq", "step"))
        return exp_avg, exp_avg_sq, steps

    def memory_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """A parameter's state, as Adam itself makes it at its first step."""
        memory: dict[str, Tensor] = self.state[parameter]
        if not memory:
            memory["step"] = torch.zeros((), device=parameter.device)
            memory["exp_avg"], memory["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return memory
