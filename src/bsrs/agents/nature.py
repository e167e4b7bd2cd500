"""Convolutional Q-networks: Mnih et al. (2015, 2013) for Atari and other images, Young and Tian (2019) for MinAtar
and small ones.

Atari's convolutions of P members are a loop over P ordinary networks: on a CPU the arithmetic is the limit, and one
member pays nothing. Weights and activations are channels-last, which is what the fast kernels want.

MinAtar's are so small that a convolution's own kernels cost more than its arithmetic. On a CPU only pixels that are not
zero are computed; elsewhere the patches of all images are gathered once for a batch, and then every pass of every
member is a stack of matrix products.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bsrs.agents.networks import Products, Weights
from bsrs.agents.tapes import RecordedTape


@dataclass(frozen=True)
class ConvShape:
    """Convolutions as (channels, kernel, stride), then one hidden layer."""

    convolutions: tuple[tuple[int, int, int], ...]
    hidden: int

    def fits(self, obs_shape: Sequence[int]) -> bool:
        """Whether images of that size, (channels, height, width), are large enough."""
        side = min(obs_shape[1:])
        for _, kernel, stride in self.convolutions:
            side = (side - kernel) // stride + 1
        return side > 0


NATURE = ConvShape(((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512)
SMALL = ConvShape(((16, 8, 4), (32, 4, 2)), 256)
MINATAR = ConvShape(((16, 3, 1),), 128)


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
        self.members = nn.ModuleList(_network(shape, obs_shape, outputs, generator) for generator in generators)
        self.to(device)
        for weight in self.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)

    def prepare(self, obs: Tensor) -> Tensor:
        """Observations as `forward` and `record` take them: these networks take them as they are."""
        return obs

    def forward(self, obs: Tensor) -> Tensor:
        if len(self.members) == 1:
            return self.members[0](obs[0]).unsqueeze(0)  # type: ignore[no-any-return]
        return torch.stack([member(x) for member, x in zip(self.members, obs, strict=True)])

    def record(self, obs: Tensor, more: Tensor | None = None) -> RecordedTape:
        """`forward` of `obs`, with what its gradients need, and of `more`."""
        return RecordedTape.of(self, obs, list(self.parameters()), _channels_last, more)


def _channels_last(gradients: Sequence[Tensor]) -> list[Tensor]:
    return [
        gradient.contiguous(memory_format=torch.channels_last) if gradient.ndim == 4 else gradient.contiguous()
        for gradient in gradients
    ]


class PatchConv(Products):
    """P independent networks with one small convolution: (P, B, C, H, W) -> (P, B, outputs).

    Their weights start as those of `StackedConv` do, in the order that the products want: the inputs of the first layer
    are (row, column, channel) of a patch, those of the second (row, column) of the patch and the channel.
    """

    def __init__(
        self,
        shape: ConvShape,
        obs_shape: Sequence[int],
        outputs: int,
        generators: Sequence[torch.Generator],
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        from bsrs.agents import sparse_conv  # here, because numba takes a while to import

        ((self._channels, kernel, stride),) = shape.convolutions
        pixels = torch.arange(math.prod(obs_shape), device=device).view(*obs_shape)  # (C, H, W)
        windows = pixels.unfold(1, kernel, stride).unfold(2, kernel, stride)  # (C, rows, columns, kernel, kernel)
        self._pixels = windows.movedim(0, -1).flatten()  # of all patches, in the order of the products
        self._patch_size = kernel**2 * obs_shape[0]
        self.stem, self.spans = (self._patch_size + 1) * self._channels, sparse_conv.row_spans(obs_shape)
        networks = [_network(shape, obs_shape, outputs, generator) for generator in generators]
        each = [self.converted(network.state_dict()) for network in networks]
        super().__init__(Weights({name: torch.stack([one[name] for one in each]) for name in each[0]}, device))

    def prepare(self, obs: Tensor) -> Tensor:
        if obs.ndim == 3:
            return obs
        return obs.flatten(2) if self.compiled else self.patches(obs)

    def patches(self, obs: Tensor) -> Tensor:
        """The patches of all images, (P, B * patches of an image, kernel * kernel * C)."""
        members, rows = obs.shape[:2]
        patches = obs.reshape(members * rows, -1).index_select(1, self._pixels)
        return patches.view(members, -1, self._patch_size)

    def converted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One member's weights, or Adam's memory of them, from the layout of ordinary layers, which runs were saved in
        before there were patches; what has today's layout stays as it is."""
        return dict(self._converted(*item) for item in tensors.items())

    def _converted(self, name: str, tensor: Tensor) -> tuple[str, Tensor]:
        if name.startswith(("weight_", "bias_")):
            return name, tensor
        layer, kind = name[0], name[2:]  # for example 3.weight/exp_avg: the layers are 0, 3 and 5 of an nn.Sequential
        which, slash, memory = kind.partition("/")
        if tensor.ndim == 4:
            tensor = tensor.permute(2, 3, 1, 0).flatten(0, 2)
        elif tensor.ndim == 2 and layer == "3":
            tensor = tensor.reshape(len(tensor), self._channels, -1).permute(2, 1, 0).flatten(0, 1)
        elif tensor.ndim == 2:
            tensor = tensor.T
        elif tensor.ndim == 1:
            tensor = tensor.unsqueeze(0)
        return f"{which}_{'035'.index(layer)}{slash}{memory}", tensor.contiguous()


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
