"""Adam for small networks, where its bookkeeping in Python would cost as much as the arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Adam(torch.optim.Adam):
    """PyTorch's Adam with `descend`: the fused update for gradients at hand, and nothing around it.

    The state is PyTorch's own, so that checkpoints and `step` see no difference.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, learning_rate, fused=True)
        self._parameters: list[Tensor] = self.param_groups[0]["params"]
        self._memory: tuple[list[Tensor], list[Tensor], list[Tensor]] | None = None

    @torch.no_grad()
    def descend(self, gradients: list[Tensor]) -> None:
        """One step, given the gradient of every parameter."""
        exp_avg, exp_avg_sq, steps = self._memory = self._memory or self._all_memory()
        group = self.param_groups[0]
        beta1, beta2 = group["betas"]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            list[Tensor](self._parameters),
            list(gradients),
            exp_avg,
            exp_avg_sq,
            [],
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def _all_memory(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The state as lists: zeros, unless a checkpoint was loaded."""
        for parameter in self._parameters:
            memory = self.state[parameter]
            if not memory:
                memory["step"] = torch.zeros((), device=parameter.device)
                memory["exp_avg"], memory["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        memories = [self.state[parameter] for parameter in self._parameters]
        exp_avg, exp_avg_sq, steps = ([m[key] for m in memories] for key in ("exp_avg", "exp_avg_sq", "step"))
        return exp_avg, exp_avg_sq, steps
