"""From what DQN's networks put out to Q: dueling heads and PopArt, or nothing at all."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bsrs.agents.nature import PatchConv, StackedConv
from bsrs.agents.networks import StackedMLP, Weights
from bsrs.agents.stack import Stack
from bsrs.config.agents import DQNConfig

POPART_RATE = 1e-4
SMALLEST_SPREAD = 1e-2


class Statistics:
    """Each member's running mean of the targets and of their squares."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.weights = Weights({"mean": torch.zeros(members, 1), "square": torch.ones(members, 1)}, device)
        self.mean, self.square = (
            self.weights.view(name, self.weights.numbers) for name in ("mean", "square")
        )  # (P, 1)

    @property
    def spread(self) -> Tensor:
        """The standard deviation, (P, 1)."""
        return (self.square - self.mean.square()).clamp(min=SMALLEST_SPREAD**2).sqrt()


class Heads:
    """Q from a network's outputs, and a gradient in Q as one in the outputs.

    Dueling (Wang et al., 2016, arXiv:1511.06581): the first output is V, the others are advantages, and
    Q = V + A - mean A; both heads stand on the last hidden layer.
    PopArt (van Hasselt et al., 2016, arXiv:1602.07714): networks put out Q in units of the targets' spread from their
    mean; when these move, the last layers move with them, so that every Q stays.
    """

    def __init__(self, configs: Sequence[DQNConfig], device: torch.device) -> None:
        self.dueling = configs[0].dueling
        popart = [config.comparator == "popart" for config in configs]
        self._popart = torch.tensor(popart, device=device).unsqueeze(1) if any(popart) else None  # (P, 1)
        self._statistics = Statistics(len(configs), device)
        self.stacks = {} if self._popart is None else {"popart": Stack(self._statistics, len(configs))}

    def outputs(self, n_actions: int) -> int:
        """How many numbers a network puts out."""
        return n_actions + 1 if self.dueling else n_actions

    def q(self, output: Tensor) -> Tensor:
        """(P, B, outputs) -> (P, B, A)"""
        if self.dueling:
            advantage = output[..., 1:]
            output = output[..., :1] + advantage - advantage.mean(dim=-1, keepdim=True)
        if self._popart is None:
            return output
        mean, spread = self._units()
        return output * spread.unsqueeze(-1) + mean.unsqueeze(-1)

    def error(self, error: Tensor) -> Tensor:
        """A TD error (P, B) in the units that the networks learn in."""
        return error if self._popart is None else error / self._units()[1]

    def gradient(self, grad_q: Tensor) -> Tensor:
        """Of the outputs, given the gradient of Q in those units: (P, B, A) -> (P, B, outputs)."""
        if not self.dueling:
            return grad_q
        total = grad_q.sum(dim=-1, keepdim=True)
        return torch.cat((total, grad_q - total / grad_q.shape[-1]), dim=-1)

    def learn(self, target: Tensor, *networks: StackedMLP | StackedConv | PatchConv) -> None:
        """From the targets (P, B) of one gradient step: new units for PopArt's members."""
        if self._popart is None:
            return
        old_mean, old_spread = self._units()
        for running, seen in ((self._statistics.mean, target), (self._statistics.square, target.square())):
            running.lerp_(seen.mean(dim=1, keepdim=True), POPART_RATE)
        mean, spread = self._units()
        for network in networks:
            assert isinstance(network, StackedMLP)
            weight, bias = network.layers[-1]
            weight.mul_((old_spread / spread).unsqueeze(-1))
            bias.copy_((bias * old_spread.unsqueeze(-1) + (old_mean - mean).unsqueeze(-1)) / spread.unsqueeze(-1))

    def _units(self) -> tuple[Tensor, Tensor]:
        """Mean and spread, (P, 1) each: zero and one without PopArt."""
        mean, spread = self._statistics.mean, self._statistics.spread
        assert self._popart is not None
        return mean * self._popart, torch.where(self._popart, spread, 1.0)
