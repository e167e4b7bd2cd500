"""Functions of PyTorch that are not public: each saves a good part of a small update.

Every use is in this file, so that a new PyTorch is checked in one place. Tested with PyTorch 2.13; the same names and
arguments have been there since 2.4, the oldest that the project takes. They are what `torch.optim.Adam(fused=True)` and
`torch.nn.utils.clip_grad_norm_(foreach=True)` call themselves.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor


@functools.cache
def sgemm() -> int:
    """Where the matrix product of the library that PyTorch comes with is in memory; zero where it is not to be had."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not torch._C.has_mkl or not library.exists():
        return 0
    function = getattr(ctypes.CDLL(str(library)), "sgemm_", None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0  # not every build shows it


def norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The Euclidean norm of each tensor."""
    return list(torch._foreach_norm(list(tensors)))


def copy_(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each source into its target."""
    torch._foreach_copy_(list(targets), list(sources))


def count_up_(steps: Sequence[Tensor]) -> None:
    """Add one to each."""
    torch._foreach_add_(list(steps), 1)


def adam_(
    parameters: list[Tensor],
    gradients: list[Tensor],
    exp_avg: list[Tensor],
    exp_avg_sq: list[Tensor],
    steps: list[Tensor],
    *,
    learning_rate: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    scale: Tensor | None = None,
) -> None:
    """One step of Adam on all parameters at once, for gradients divided by `scale`; `steps` are counted already."""
    torch._fused_adam_(
        parameters,
        gradients,
        exp_avg,
        exp_avg_sq,
        [],
        steps,
        lr=learning_rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=eps,
        amsgrad=False,
        maximize=False,
        grad_scale=scale,
    )
