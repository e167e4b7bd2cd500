"""Weights and Adam's state as rows of numbers that PyTorch and compiled code see in the same memory."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam

from bsrs.agents.networks import Critics, FlattenChannelsLast, Members, MLPCritic

Floats = NDArray[np.float32]
_LINE = 16  # floats of a cache line


def aligned(*shape: int) -> Floats:
    """Make an array of zeros at the start of a cache line: the results of products may depend on it."""
    size = math.prod(shape)
    block = np.zeros(size + _LINE, np.float32)
    first = (-block.ctypes.data // 4) % _LINE
    return block[first : first + size].reshape(shape)


def padded(size: int) -> int:
    """Round up to whole cache lines."""
    return -(-size // _LINE) * _LINE


def mlp_sizes(network: nn.Module) -> list[int] | None:
    """Return the layer sizes of an MLP that kernels know: linear layers with ReLU in between; None for all others."""
    network = network.network if type(network) is MLPCritic else network
    if type(network) is not nn.Sequential:
        return None
    kinds = [type(layer) for layer in network]
    linears = [layer for layer in network if isinstance(layer, nn.Linear)]
    expected = [nn.Linear, *[nn.ReLU, nn.Linear] * (len(linears) - 1)]
    if kinds != expected or any(linear.bias is None for linear in linears):
        return None
    return [linears[0].in_features, *(linear.out_features for linear in linears)]


def minatar_sizes(network: nn.Module) -> tuple[int, list[int]] | None:
    """Return the number of the convolution's parameters and the sizes of the layers after it; None for all others."""
    if type(network) is not nn.Sequential or len(network) != 6:
        return None
    convolution, _, flatten, first, _, last = network
    if not (isinstance(convolution, nn.Conv2d) and isinstance(flatten, FlattenChannelsLast)):
        return None
    if not (isinstance(first, nn.Linear) and isinstance(last, nn.Linear)):
        return None
    if convolution.kernel_size != (3, 3) or convolution.stride != (1, 1) or convolution.out_channels != 16:
        return None
    stem = convolution.weight.numel() + 16
    return stem, [first.in_features, first.out_features, last.out_features]


def parameter_views(network: nn.Module, row: Tensor) -> list[Tensor]:
    """Return views of a row in the shapes of the network's parameters, in the kernels' order within the row."""
    views, at = [], 0
    for parameter in network.parameters():
        part = row[at : at + parameter.numel()]
        at += parameter.numel()
        if parameter.ndim == 4:  # (out, in, height, width) as (height, width, in, out)
            out, channels, height, width = parameter.shape
            views.append(part.view(height, width, channels, out).permute(3, 2, 0, 1))
        elif parameter.ndim == 2:
            views.append(part.view(parameter.shape[1], parameter.shape[0]).T)
        else:
            views.append(part)
    return views


class FlatNetworks:
    """The parameters of many networks of one shape: `params` has a row for each, padded to whole cache lines."""

    def __init__(self, members: Members, optimizer: Adam | None) -> None:
        networks = [each for member in members for each in (member.each if isinstance(member, Critics) else [member])]
        size = sum(parameter.numel() for parameter in networks[0].parameters())
        self.params, *moments = (aligned(len(networks), padded(size)) for _ in range(3 if optimizer else 1))
        parameters = [parameter for network in networks for parameter in network.parameters()]
        self.steps = np.zeros(len(parameters), np.float32)
        self._bind(networks, self.params)
        self.exp_avg = self.exp_avg_sq = self.params[:0]
        self.settings = np.zeros(5)
        if optimizer:
            self.exp_avg, self.exp_avg_sq = moments
            self._bind_optimizer(networks, optimizer)
            group = optimizer.param_groups[0]
            self.learning_rate = float(group["lr"])
            self.settings[1:4] = (*group["betas"], group["eps"])

    def _bind(self, networks: Sequence[nn.Module], rows: Floats) -> None:
        """Move the networks' parameters into the rows."""
        for network, row in zip(networks, torch.from_numpy(rows), strict=True):
            views = parameter_views(network, row)
            for parameter, view in zip(network.parameters(), views, strict=True):
                view.copy_(parameter.data)
                parameter.data = view

    def _bind_optimizer(self, networks: Sequence[nn.Module], optimizer: Adam) -> None:
        """Make Adam's state views of the rows, so that checkpoints see it."""
        steps, i = torch.from_numpy(self.steps), 0
        each = zip(networks, torch.from_numpy(self.exp_avg), torch.from_numpy(self.exp_avg_sq), strict=True)
        for network, mean, square in each:
            views = zip(
                network.parameters(), parameter_views(network, mean), parameter_views(network, square), strict=True
            )
            for parameter, exp_avg, exp_avg_sq in views:
                optimizer.state[parameter] = {"step": steps[i], "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
                i += 1

    def adam_settings(self, max_norm: float = math.inf) -> NDArray[np.float64]:
        """Count one step, and return what compiled code needs to know of Adam."""
        self.steps += 1
        self.settings[0], self.settings[4] = self.steps[0], max_norm
        return self.settings
