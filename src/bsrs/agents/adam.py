"""Adam for small networks, where its bookkeeping in Python would cost as much as the arithmetic."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents import private_torch

LARGE = 1 << 16
"""How many parameters make a network large: with their gradient they fill much of a core's own cache."""

Part = tuple[slice, list[Tensor]]  # some of the networks, and the gradients of their parameters


class Adam(torch.optim.Adam):
    """PyTorch's Adam with `descend`: the fused update for gradients at hand, and nothing around it.

    The parameters are one tensor with a row for each network, or a list with so many tensors for each. Networks may
    differ in their learning `rates`. The state is PyTorch's own, so that checkpoints and `step` see no difference.
    """

    def __init__(self, parameters: Sequence[Tensor], rates: Sequence[float]) -> None:
        super().__init__(parameters, rates[0], fused=True)
        self._parameters: list[Tensor] = self.param_groups[0]["params"]
        self._rates = rates
        self._one_thread = torch.get_num_threads() == 1  # asked once, so that a run does not change in the middle
        self._views: dict[tuple[int, int], tuple[list[Tensor], ...]] = {}

    @torch.no_grad()
    def descend(self, gradients: Iterable[Part], max_norm: float = math.inf) -> None:
        """One step, given the gradients of every part, which are scaled to a norm of at most `max_norm` a network."""
        betas, eps = self.param_groups[0]["betas"], self.param_groups[0]["eps"]
        private_torch.count_up_(self._view(0, len(self._rates))[-1])
        for start, stop, gradient in itertools.chain.from_iterable(itertools.starmap(self._split, gradients)):
            parameters, means, squares, steps = self._view(start, stop)
            if self._one_thread and _is_large(gradient):
                from bsrs.agents import compiled  # here, because numba takes a while to import

                past = [1 - beta ** steps[0].item() for beta in betas]
                settings = (self._rates[start] / past[0], betas[1], *(1 - beta for beta in betas), past[1] ** -0.5, eps)
                rows = (each[0].view(-1).numpy() for each in (parameters, gradient, means, squares))
                compiled.adam(*rows, max_norm, np.array(settings, np.float32))
                continue
            scale = _clip(gradient, max_norm) if max_norm < math.inf else None
            given = {"learning_rate": self._rates[start], "betas": betas, "eps": eps, "scale": scale}
            private_torch.adam_(parameters, gradient, means, squares, steps, **given)

    def _split(self, networks: slice, gradient: list[Tensor]) -> Iterator[tuple[int, int, list[Tensor]]]:
        """Network by network where their learning rates differ."""
        start, stop = networks.start, networks.stop
        if len(set(self._rates[networks])) == 1:
            yield start, stop, gradient
            return
        for at in range(start, stop):
            yield at, at + 1, [gradient[0][at - start].unsqueeze(0)]

    def _view(self, start: int, stop: int) -> tuple[list[Tensor], ...]:
        """Those networks' parameters, the two means that Adam keeps of them, and the count of steps."""
        if (start, stop) in self._views:
            return self._views[start, stop]
        if len(self._parameters) == 1:
            own, rows = self._parameters, slice(start, stop)
        else:
            each = len(self._parameters) // len(self._rates)
            own, rows = self._parameters[start * each : stop * each], slice(None)
        memories = [self.memory_of(parameter) for parameter in own]
        means = ([memory[key][rows] for memory in memories] for key in ("exp_avg", "exp_avg_sq"))
        view = [parameter[rows] for parameter in own], *means, [memory["step"] for memory in memories]
        self._views[start, stop] = view
        return view

    def memory_of(self, parameter: Tensor) -> dict[str, Tensor]:
        """A parameter's state, as Adam itself makes it at its first step."""
        memory: dict[str, Tensor] = self.state[parameter]
        if not memory:
            memory["step"] = torch.zeros((), device=parameter.device)
            memory["exp_avg"], memory["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return memory


def _is_large(gradient: list[Tensor]) -> bool:
    """Whether it is that of one large network on a CPU."""
    first = gradient[0]
    alone = len(gradient) == len(first) == 1 and first.shape[1] >= LARGE
    return alone and first.device.type == "cpu" and first.dtype == torch.float32


def _clip(gradient: list[Tensor], max_norm: float) -> Tensor | None:
    """As `torch.nn.utils.clip_grad_norm_` does, for each network; or what Adam is to divide by."""
    if len(gradient) == 1:
        (rows,) = gradient  # (n, N)
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # (n, 1)
        rows.mul_(norms.add_(1e-6).reciprocal_().mul_(max_norm).clamp_(max=1.0))
        return None
    norm: Tensor = torch.linalg.vector_norm(torch.stack(private_torch.norms(gradient)))
    return norm.add_(1e-6).div_(max_norm).clamp_(min=1.0)
