"""Probe observations: what `eta="auto"` watches V on, for each member."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Array, times_due
from bsrs.agents.replay import Replay
from bsrs.rng import stream
from bsrs.shaping import Shaper

REPLACED_AFTER = 100
"""Looks after which the observations are drawn again."""


class Probes:
    """Observations drawn from the members' replays, for the scales that ask for them; the same for many looks."""

    def __init__(self, shaper: Shaper, seeds: Sequence[int]) -> None:
        self._shaper, self._wanted = shaper, max(shaper.probes)
        self._rngs = [stream(seed, "probes") for seed in seeds]
        self._obs: list[Array | None] = [None] * len(seeds)
        self._looks = [0] * len(seeds)

    def due(self, step: int, stride: int, period: int) -> bool:
        """Whether a period of the target network has ended in the last `stride` steps."""
        return self._wanted > 0 and times_due(step, stride, period) > 0

    def look(self, replay: Replay, value: Callable[[Array], Tensor]) -> None:
        """Show each member's scale V of its probes; `value` maps (P, N, *obs) to (P, N)."""
        for member, rng in enumerate(self._rngs):
            if self._looks[member] % REPLACED_AFTER == 0:
                self._obs[member] = replay.some_obs(member, rng, self._wanted).copy()
                self._shaper.forget(member)
            self._looks[member] += 1
        values = value(np.stack([obs for obs in self._obs if obs is not None])).double().cpu().numpy()
        for member, wanted in enumerate(self._shaper.probes):
            if wanted:
                self._shaper.look(values[member], member)

    def state(self, member: int) -> tuple[dict[str, torch.Tensor], dict[str, Array], dict[str, Any]]:
        obs = self._obs[member]
        arrays = {} if obs is None else {"obs": obs}
        return {}, arrays, {"looks": self._looks[member], "stream": self._rngs[member].bit_generator.state}

    def load_state(self, member: int, arrays: dict[str, Array], info: dict[str, Any]) -> None:
        self._obs[member], self._looks[member] = arrays.get("obs"), info["looks"]
        self._rngs[member].bit_generator.state = info["stream"]
