"""What was really returned: recent episodes, read from the replay, for scales that compare networks with it.

Nothing of this is kept, so nothing needs to be saved: the replay holds it all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from bsrs.agents.replay import ArrayReplay, FrameReplay
from bsrs.shaping import Returned


class RecentReturns:
    """Evenly spaced states of the latest episodes, and the discounted rewards that followed.

    Long episodes are cut, so that there are several to compare; what follows a cut is left to the value there.
    """

    WINDOW = 10_000  # transitions
    EPISODES = 30
    STATES = 24
    LONGEST = 500

    def __init__(self, replay: ArrayReplay | FrameReplay, gamma: float, most: int = EPISODES) -> None:
        stretches = replay.latest(self.WINDOW)
        pieces = [(stretch, *ends) for stretch in stretches for ends in _pieces(stretch.ended, self.LONGEST, most)]
        rows, ends, parts = [], [], []
        for episode, (stretch, start, end) in enumerate(pieces):
            length = end - start
            at = np.linspace(0, length - 1, min(self.STATES, length)).astype(int)
            summed = lfilter([1.0], [1.0, -gamma], stretch.reward[start:end][::-1].astype(float))[::-1]
            tail = np.zeros(len(at)) if stretch.terminated[end - 1] else gamma ** (length - at).astype(float)
            rows.append(stretch.rows[start:end][at])
            ends.append(stretch.rows[end - 1])
            parts.append((np.full(len(at), episode), summed[at], tail))
        joined: Any = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.zeros(0, int)] * 3
        self.episode, self.reward, self.tail = joined
        where = np.concatenate([*rows, np.array(ends, int)]).astype(int) if parts else np.zeros(0, int)
        batch = replay.take(where)
        last = where.size - len(ends)
        self.obs: NDArray[Any] = np.concatenate((batch.obs[:last], batch.next_obs[last:]))
        """The states, and after them the ends of the episodes: (N + episodes, *obs)."""

    def judged(self, step: int, value: NDArray[Any], target_value: NDArray[Any]) -> Returned:
        """With both networks' V at `obs`; there may be more behind them."""
        n = len(self.episode)
        end_value = (value[n:] + target_value[n:])[self.episode] / 2
        return Returned(step, self.episode, self.reward, self.tail, value[:n], target_value[:n], end_value)


def _pieces(ended: NDArray[np.bool_], longest: int, most: int) -> list[tuple[int, int]]:
    """The latest `most` episodes as (first, after the last), cut where they are longer."""
    ends = [int(end) for end in np.flatnonzero(ended) + 1]
    pieces: list[tuple[int, int]] = []
    for start, end in zip([0, *ends], ends, strict=False):
        pieces += [(cut, min(cut + longest, end)) for cut in range(start, end, longest)]
    return pieces[-most:] if most else []
