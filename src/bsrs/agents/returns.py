"""What was really returned: recent episodes, read from a replay, for scales that compare networks with it.

Nothing of this is kept, so nothing needs to be saved: the replay holds it all.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsrs.shaping import Returned

WINDOW = 10_000  # transitions of each env
EPISODES = 30
STATES = 24  # of each episode
LONGEST = 500  # transitions of an episode before it is cut, so that there are several to compare


class Stretch(NamedTuple):
    """The latest transitions of one env in the order of time; (T,) each."""

    rows: Any
    """Where the replay has them."""
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    """Whether the next transition belongs to another episode; true for the last."""


class RecentReturns:
    """Evenly spaced states of the latest episodes, and the discounted rewards that followed.

    What follows a cut, a time limit or the present is left to the value there.
    """

    def __init__(self, stretches: Sequence[Stretch], gamma: float, most: int = EPISODES) -> None:
        each = -(-most // max(len(stretches), 1))
        pieces = [(stretch, *ends) for stretch in stretches for ends in _pieces(stretch.ended, each)]
        parts = [_returns(stretch, start, end, gamma) for stretch, start, end in pieces]
        rows, self.reward, self.tail = (_joined([part[i] for part in parts]) for i in range(3))
        self.episode = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        self.states: NDArray[np.int64] = rows.astype(np.int64)
        """The rows of the states, (N,)."""
        self.ends = np.array([stretch.rows[end - 1] for stretch, _, end in pieces], np.int64)
        """The rows of the transitions after which each episode ends, or the view of it."""

    def judged(self, step: int, value: NDArray[Any], target_value: NDArray[Any]) -> Returned:
        """With both networks' V at the states and, after them, at the ends; there may be more behind them."""
        n = len(self.episode)
        end_value = (value[n:] + target_value[n:])[self.episode] / 2
        return Returned(step, self.episode, self.reward, self.tail, value[:n], target_value[:n], end_value)


def _returns(stretch: Stretch, start: int, end: int, gamma: float) -> tuple[NDArray[Any], ...]:
    """Of one episode: rows of states, the discounted rewards from each on, and the discount of what comes after."""
    from scipy.signal import lfilter  # here, because it takes a second to import

    length = end - start
    at = np.linspace(0, length - 1, min(STATES, length)).astype(int)
    summed = lfilter([1.0], [1.0, -gamma], stretch.reward[start:end][::-1].astype(float))[::-1]
    tail = gamma ** (length - at).astype(float) * (not stretch.terminated[end - 1])
    return stretch.rows[start:end][at], summed[at], tail


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def _pieces(ended: NDArray[np.bool_], most: int) -> list[tuple[int, int]]:
    """The latest `most` episodes as (first, after the last), cut where they are long."""
    ends = [int(end) for end in np.flatnonzero(ended) + 1]
    pieces: list[tuple[int, int]] = []
    for start, end in zip([0, *ends], ends, strict=False):
        pieces += [(cut, min(cut + LONGEST, end)) for cut in range(start, end, LONGEST)]
    return pieces[-most:] if most else []
