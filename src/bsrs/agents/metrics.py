"""What is measured while members learn: means for the records, and whether their values make sense."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Finding, State

DEAD_NETWORK = "its network gives every state the same value (all units of a layer are off); try a lower learning rate"


class Metrics:
    """Means over updates, per member, and checks that values make sense.

    Sound values stay within r_max / (1 - gamma); a hundred times that is divergence. They differ between states: if
    they do not, the network has died. `spread` is their standard deviation in the last batch.
    """

    SLACK = 100.0
    FLAT = 1e-6

    def __init__(self, names: Sequence[str], members: int, gamma: float, device: torch.device, n_envs: int = 1) -> None:
        self.names = tuple(names)
        self.horizon = 1 / (1 - min(gamma, 0.9999))
        self.largest_reward = np.ones((members, n_envs), np.float32)
        kind = torch.float64 if device.type == "cpu" else torch.float32
        self.sums = torch.zeros(members, len(self.names), dtype=kind, device=device)  # (P, names)
        self.spread = torch.zeros(members, dtype=kind, device=device)  # (P,)
        self.count = 0
        self._last: list[dict[str, float]] = [{} for _ in range(members)]

    @torch.no_grad()
    def add(self, value: Tensor, *means: Tensor) -> None:
        """Add one update: V of the batch (P, B), and a number per member (P,) for every other name."""
        first, *others = (mean.detach() for mean in means)
        self.sums += torch.stack((first, value.mean(dim=-1), *others), dim=1)
        self.spread.copy_(value.std(dim=-1, correction=0))
        self.count += 1

    def read(self) -> list[dict[str, float]]:
        """Return the means since the last call; empty without updates."""
        if not self.count:
            return [{} for _ in self._last]
        means = (self.sums / self.count).tolist()
        self.sums.zero_()
        self.count = 0
        self._last = [
            {**dict(zip(self.names, member, strict=True)), "spread": spread}
            for member, spread in zip(means, self.spread.tolist(), strict=True)
        ]
        return self._last

    def findings(self) -> list[Finding | None]:
        """Return what is wrong with the means read last, for each member."""
        largest = self.largest_reward.max(axis=1).tolist()
        return [self._finding(means, reward) for means, reward in zip(self._last, largest, strict=True)]

    def _finding(self, means: dict[str, float], reward: float) -> Finding | None:
        if not means:
            return None
        for name, mean in means.items():
            if not math.isfinite(mean):
                return Finding(f"mean {name} is {mean}", fatal=True)
        value, limit = means["value"], self.SLACK * reward * self.horizon
        if abs(value) > limit:
            return Finding(f"mean value is {value:.3g}, beyond {limit:.3g}", fatal=True)
        if means["spread"] <= self.FLAT * max(1.0, abs(value)):
            return Finding(DEAD_NETWORK, fatal=False)
        return None

    def state(self, member: int) -> State:
        """Return one member's part, for a checkpoint."""
        return State(
            info={
                "sums": self.sums[member].tolist(),
                "count": self.count,
                "spread": self.spread[member].item(),
                "largest_reward": float(self.largest_reward[member].max()),
            }
        )

    def load_state(self, member: int, state: State) -> None:
        """Load what `state` returned."""
        self.sums[member] = self.sums.new_tensor(state.info["sums"])
        self.count = state.info["count"]
        self.spread[member] = state.info["spread"]
        self.largest_reward[member] = state.info["largest_reward"]
