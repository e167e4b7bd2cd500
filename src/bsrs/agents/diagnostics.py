"""What is seen while members learn: running means for the records, and whether their values make sense."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Finding, State

DEAD_NETWORK = (
    "its network gives every state the same value (all units of a layer are off); a lower learning rate may help"
)


class Diagnostics:
    """Running means per member of what the updates see, and the checks that values make sense.

    Sums stay on the device until they are read. The values of a sound agent lie within r_max / (1 - gamma);
    a hundred times that is divergence. They differ between states: if they do not, the network has died, that is, all
    units of a layer are off for whatever it is shown. `spread` is their standard deviation in the last batch.
    """

    SLACK = 100.0
    FLAT = 1e-6

    SUMMED_EVERY = 32  # updates: what they saw is kept until then, because small operations cost more than numbers

    def __init__(
        self,
        names: Sequence[str],
        measure: Callable[..., tuple[Tensor, ...]],
        members: int,
        gamma: float,
        device: torch.device | str = "cpu",
    ) -> None:
        """`measure` makes (..., P, B) of each name from what `add` is given, (..., P, B) or (..., P, n, B) each."""
        self.names, self._measure = tuple(names), measure
        self.horizon = 1 / (1 - min(gamma, 0.9999))
        self.largest_reward = np.ones(members)
        self._sums = torch.zeros(len(self.names), members, device=device)
        self._count = 0
        self._seen: list[tuple[Tensor, ...]] = []  # by the updates that are not in the sums yet
        self._values: Tensor | None = None  # (P, B), of the last update
        self._spread = [0.0] * members
        self._last: list[dict[str, float]] = [{} for _ in range(members)]

    def add(self, values: Tensor, *others: Tensor) -> None:
        """What one update saw; the first is V of the batch, (P, B)."""
        self._seen.append((values, *others))
        self._values = values
        self._count += 1
        if len(self._seen) == self.SUMMED_EVERY:
            self._sum_up()

    def _sum_up(self) -> None:
        if self._seen:
            measured = self._measure(*map(torch.stack, zip(*self._seen, strict=True)))  # (k, P, B) each
            self._sums += torch.stack([each.mean(dim=-1).sum(dim=0) for each in measured])
            self._seen.clear()

    def read(self) -> list[dict[str, float]]:
        """The means since the last reading; empty if there was no update."""
        if not self._count:
            return [{} for _ in self._last]
        self._sum_up()
        means = (self._sums / self._count).T.tolist()  # (P, names)
        self._sums.zero_()
        self._count = 0
        self._last = [
            {**dict(zip(self.names, member, strict=True)), "spread": spread}
            for member, spread in zip(means, self._spreads(), strict=True)
        ]
        return self._last

    def _spreads(self) -> list[float]:
        if self._values is not None:
            self._spread, self._values = self._values.std(dim=-1, correction=0).tolist(), None
        return self._spread

    def findings(self) -> list[Finding | None]:
        """Per member, what is wrong with the means read last, if anything."""
        return [self._finding(means, reward) for means, reward in zip(self._last, self.largest_reward, strict=True)]

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
        """One member's part. What is not summed up yet stays so: else the sums would depend on when this is called."""
        seen = zip(*self._seen, strict=True)
        return State(
            tensors={str(i): torch.stack([each[member] for each in tensors]) for i, tensors in enumerate(seen)},
            info={
                "sums": self._sums[:, member].tolist(),
                "count": self._count,
                "spread": self._spreads()[member],
                "largest_reward": float(self.largest_reward[member]),
            },
        )

    def load_state(self, member: int, state: State) -> None:
        info, seen = state.info, [state.tensors[str(i)] for i in range(len(state.tensors))]  # (k, ...) each
        self._sums[:, member] = self._sums.new_tensor(info["sums"])
        self._count = info["count"]
        self._values, self._spread[member] = None, info.get("spread", 0.0)
        self.largest_reward[member] = info["largest_reward"]
        if len(self._seen) != (len(seen[0]) if seen else 0):
            empty = [tensor.new_empty(len(tensor), len(self._last), *tensor.shape[1:]) for tensor in seen]
            self._seen = list(zip(*empty, strict=True))
        for i, tensors in enumerate(zip(*seen, strict=True)):
            for mine, saved in zip(self._seen[i], tensors, strict=True):
                mine[member] = saved
