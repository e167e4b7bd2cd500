"""The replays of a whole population: a batch of every member, drawn in one gathering where their arrays allow it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bsrs.agents.replay import EMPTY, ArrayReplay, Batch, FrameReplay, NStep, take_rows
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput


class Replays:
    """The replays of P members, of the kind that suits the env: the last `capacity` transitions of n copies of it.

    Plain arrays of all members lie in one block, so that a batch of every member is one gathering. `returns` sums the
    rewards of each member over some steps.
    """

    def __init__(self, spec: EnvSpec, capacity: int, n: int, members: int, returns: Sequence[NStep] = ()) -> None:
        if capacity < n:
            raise BadInput(f"the replay's capacity is {capacity}; expected at least one transition per env ({n})")
        self._returns = returns if any(each.n > 1 for each in returns) else ()
        if self._returns and spec.frame_stack > 1:
            raise BadInput(f"n_step is above 1 and env {spec.env!r} has stacked frames; expected n_step 1 there")
        self.each: list[ArrayReplay | FrameReplay]
        self._block: tuple[NDArray[Any], ...] | None = None
        if spec.frame_stack > 1:
            self.each = [FrameReplay(spec, capacity, n) for _ in range(members)]
            return
        block = Batch.empty(spec, members, capacity)
        self.each = [ArrayReplay(spec, capacity, n, data=block.of(member)) for member in range(members)]
        self._block = tuple(array.reshape(-1, *array.shape[2:]) for array in block.transitions)

    def __getitem__(self, member: int) -> ArrayReplay | FrameReplay:
        return self.each[member]

    def sample(self, rngs: Sequence[Generator], out: Batch) -> Batch:
        """A batch of every replay, drawn from the member's own stream into its part of `out`, which is (P, B)."""
        members, batch_size = out.reward.shape
        if self._block is None:
            for member, (replay, rng) in enumerate(zip(self.each, rngs, strict=True)):
                replay.sample(batch_size, rng, out=out.of(member))
            return out
        if not min(map(len, self.each)):
            raise BadInput(EMPTY)
        rows = np.concatenate(
            [
                rng.integers(0, len(replay), batch_size) + member * replay.capacity
                for member, (replay, rng) in enumerate(zip(self.each, rngs, strict=True))
            ]
        )
        for whole, part in zip(self._block, out, strict=False):
            take_rows(whole, rows, out=part.reshape(-1, *part.shape[2:]))
        return self._summed(rows.reshape(members, batch_size), out) if self._returns else out

    def _summed(self, rows: NDArray[np.int64], out: Batch) -> Batch:
        """The batch `out` of these rows of the block, with the members' returns."""
        steps = np.ones(out.reward.shape, np.float32)
        for member, (replay, returns) in enumerate(zip(self.each, self._returns, strict=True)):
            if isinstance(replay, ArrayReplay) and returns.n > 1:
                own = rows[member] - member * replay.capacity
                steps[member] = replay.sum_rewards(own, returns, out.of(member)).steps
        return out._replace(steps=steps)
