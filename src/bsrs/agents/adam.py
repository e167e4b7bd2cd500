"""Adam for small networks, where its bookkeeping in Python would cost as much as the arithmetic."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents import private_torch
from bsrs.agents.tapes import RecordedTape, Tape


class Adam(torch.optim.Adam):
    """PyTorch's Adam, with steps along gradients at hand or along those of a pass, and nothing around it.

    The parameters are one tensor with a row for each network, or a list with so many tensors for each. Networks may
    differ in their learning `rates`. The state is PyTorch's own, so that checkpoints and `step` see no difference.
    """

    def __init__(self, parameters: Sequence[Tensor], rates: Sequence[float]) -> None:
        super().__init__(parameters, rates[0], fused=True)
        self._parameters: list[Tensor] = self.param_groups[0]["params"]
        self._rates = np.array(rates)  # of each network

    @torch.no_grad()
    def learn(self, tape: Tape, grad_output: Tensor, max_norm: float = math.inf) -> None:
        """One step along the gradients of a pass, given that of its output."""
        if isinstance(tape, RecordedTape):
            self.descend(tape.gradients(grad_output), max_norm)
            return
        memory, group = self.memory_of(self._parameters[0]), self.param_groups[0]
        step = memory["step"].add_(1).item()
        settings = np.array((step, *group["betas"], group["eps"], max_norm))
        tape.learn(grad_output, memory["exp_avg"], memory["exp_avg_sq"], self._rates, settings)

    @torch.no_grad()
    def descend(self, gradients: Sequence[Tensor], max_norm: float = math.inf) -> None:
        """One step along the gradients of the parameters, scaled to a norm of at most `max_norm` a network."""
        group = self.param_groups[0]
        memories = [self.memory_of(parameter) for parameter in self._parameters]
        steps = [memory["step"] for memory in memories]
        private_torch.count_up_(steps)
        moments = ([memory[key] for memory in memories] for key in ("exp_avg", "exp_avg_sq"))
        tensors = [self._parameters, gradients, *moments]
        for rate, (parameters, own, means, squares) in self._networks(tensors):
            scale = _clip(own, max_norm) if max_norm < math.inf else None
            given = parameters, own, means, squares, steps[: len(own)]
            private_torch.adam_(*given, learning_rate=rate, betas=group["betas"], eps=group["eps"], scale=scale)

    def _networks(self, tensors: Sequence[Sequence[Tensor]]) -> Iterator[tuple[float, list[list[Tensor]]]]:
        """A learning rate, and what belongs to it of each list of `tensors`: network by network, or all at once where
        they lie in one tensor and learn alike."""
        in_rows = len(self._parameters) == 1
        if in_rows and len(set(self._rates)) == 1:
            yield self._rates[0], [list(each) for each in tensors]
            return
        size = len(self._parameters) // len(self._rates)
        for i, rate in enumerate(self._rates):
            yield rate, [[each[0][i : i + 1]] if in_rows else list(each[i * size : (i + 1) * size]) for each in tensors]

    def memory_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """A parameter's state, as Adam itself makes it at its first step."""
        memory: dict[str, Tensor] = self.state[parameter]
        if not memory:
            memory["step"] = torch.zeros((), device=parameter.device)
            memory["exp_avg"], memory["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return memory


def _clip(gradient: list[Tensor], max_norm: float) -> Tensor | None:
    """As `torch.nn.utils.clip_grad_norm_` does, for each network; or what Adam is to divide by."""
    if len(gradient) == 1:
        (rows,) = gradient  # (n, N)
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # (n, 1)
        rows.mul_(norms.add_(1e-6).reciprocal_().mul_(max_norm).clamp_(max=1.0))
        return None
    norm: Tensor = torch.linalg.vector_norm(torch.stack(private_torch.norms(gradient)))
    return norm.add_(1e-6).div_(max_norm).clamp_(min=1.0)
