"""Convolutional Q-networks: Mnih et al. (2015, 2013) for Atari, Young and Tian (2019) for MinAtar.

Convolutions of P members are a loop over P ordinary networks: on a CPU the arithmetic is the limit, and one
member pays nothing. Weights and activations are channels-last, which is what the fast kernels want.
"""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ConvShape:
    """Convolutions as (channels, kernel, stride), then one hidden layer."""

    convolutions: tuple[tuple[int, int, int], ...]
    hidden: int


NATURE = ConvShape(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512)
SMALL = ConvShape(((16, 8, 4), (32, 4, 2)), 256)
MINATAR = ConvShape(((16, 3, 1),), 128)


def keep_freed_memory() -> None:
    """Let the C library keep what an update frees, because the next one asks for the same again.

    By default glibc gives it back to the system, and an update spends a tenth of its time on page faults.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, 512 << 20)
        libc.mallopt(m_top_pad, 32 << 20)


@dataclass(frozen=True)
class ConvTape:
    """One pass through P networks, and the gradients of their parameters, in that order, for one of its output."""

    output: Tensor  # (P, B, outputs)
    _recorded: Tensor
    _parameters: list[nn.Parameter]

    def gradients(self, grad_output: Tensor) -> list[Tensor]:
        return [
            gradient.contiguous(memory_format=torch.channels_last) if gradient.ndim == 4 else gradient.contiguous()
            for gradient in torch.autograd.grad(self._recorded, self._parameters, grad_output)
        ]


class StackedConv(nn.Module):
    """P independent convolutional networks, (P, B, C, H, W) -> (P, B, outputs)."""

    def __init__(
        self,
        shape: ConvShape,
        obs_shape: Sequence[int],
        outputs: int,
        generators: Sequence[torch.Generator],
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        keep_freed_memory()
        self.members = nn.ModuleList(_network(shape, obs_shape, outputs, generator) for generator in generators)
        self.to(device)
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)

    def forward(self, obs: Tensor) -> Tensor:
        if len(self.members) == 1:
            return self.members[0](obs[0]).unsqueeze(0)  # type: ignore[no-any-return]
        return torch.stack([member(x) for member, x in zip(self.members, obs, strict=True)])

    def record(self, obs: Tensor) -> ConvTape:
        """`forward`, with what its gradients need."""
        with torch.enable_grad():
            q = self(obs)
        return ConvTape(q.detach(), q, list(self.parameters()))


def _network(shape: ConvShape, obs_shape: Sequence[int], outputs: int, generator: torch.Generator) -> nn.Sequential:
    channels, height, width = obs_shape
    layers: list[nn.Module] = []
    for out, kernel, stride in shape.convolutions:
        layers += [_drawn(nn.Conv2d(channels, out, kernel, stride), generator), nn.ReLU(inplace=True)]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    flat = channels * height * width
    layers += [nn.Flatten(), _drawn(nn.Linear(flat, shape.hidden), generator), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, _drawn(nn.Linear(shape.hidden, outputs), generator))


@torch.no_grad()
def _drawn(layer: nn.Conv2d | nn.Linear, generator: torch.Generator) -> nn.Module:
    """The layer with PyTorch's own start, uniform within 1/sqrt(fan_in), drawn from the member's stream."""
    bound = 1 / math.sqrt(layer.weight[0].numel())
    layer.weight.uniform_(-bound, bound, generator=generator)
    assert layer.bias is not None
    layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
