"""Probe observations: what `eta="auto"` watches V on, for each member."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Array
from bsrs.agents.replay import Replay
from bsrs.rng import stream
from bsrs.shaping import Shaper

REPLACED_AFTER = 100
"""Looks after which the observations are drawn again."""


class Probes:
    """Observations drawn from the members' replays, for the scales that ask for them; the same for many looks."""

    def __init__(self, shapers: Sequence[Shaper], seeds: Sequence[int]) -> None:
        self._shapers = shapers
        self.wanted = max(shaper.scale.probes for shaper in shapers)
        """Number of observations."""
        self._rngs = [stream(seed, "probes") for seed in seeds]
        self._obs: list[Array | None] = [None] * len(seeds)
        self._looks = [0] * len(seeds)

    def look(self, replay: Replay, value: Callable[[Array], Tensor]) -> None:
        """Show each member's scale V of its probes; `value` maps (P, N, *obs) to (P, N)."""
        for member, (shaper, rng) in enumerate(zip(self._shapers, self._rngs, strict=True)):
            if self._looks[member] % REPLACED_AFTER == 0:
                self._obs[member] = replay.some_obs(member, rng, self.wanted).copy()
                shaper.forget()
            self._looks[member] += 1
        values = value(np.stack([obs for obs in self._obs if obs is not None])).double().cpu().numpy()
        for shaper, seen in zip(self._shapers, values, strict=True):
            if shaper.scale.probes:
                shaper.look(seen)

    def state(self, member: int) -> tuple[dict[str, torch.Tensor], dict[str, Array], dict[str, Any]]:
        obs = self._obs[member]
        arrays = {} if obs is None else {"obs": obs}
        return {}, arrays, {"looks": self._looks[member], "stream": self._rngs[member].bit_generator.state}

    def load_state(self, member: int, arrays: dict[str, Array], info: dict[str, Any]) -> None:
        self._obs[member], self._looks[member] = arrays.get("obs"), info["looks"]
        self._rngs[member].bit_generator.state = info["stream"]
