"""Replay for stacks of images: each frame is stored once, which takes an eighth of the memory.

The stacks are put together again when a batch is drawn, with the frames innermost, as convolutions on a CPU like them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bsrs.agents.agent import Array, Transition
from bsrs.agents.replay import Arrays, Sample, restore
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput
from bsrs.kernels.frames import gather_stacks


class FrameReplay:
    """The last `capacity` transitions of each of P members."""

    def __init__(self, spec: EnvSpec, members: int, capacity: int, n_envs: int = 1) -> None:
        self.each = [MemberFrames(spec, capacity, n_envs) for _ in range(members)]
        self._spec, self._out = spec, _empty(spec, members, 0)

    def __len__(self) -> int:
        return min(map(len, self.each))

    def add(self, transition: Transition) -> None:
        for member, frames in enumerate(self.each):
            frames.add(*(array[member] for array in transition))

    def sample(self, rngs: Sequence[Generator], batch_size: int) -> Sample:
        if self._out.reward.shape[1] != batch_size:
            self._out = _empty(self._spec, len(self.each), batch_size)
        for member, (frames, rng) in enumerate(zip(self.each, rngs, strict=True)):
            frames.take(frames.draw(batch_size, rng), Sample(*(array[member] for array in self._out[:5])))
        return self._out

    def some_obs(self, member: int, rng: Generator, count: int) -> Array:
        own = _empty(self._spec, 1, count)
        self.each[member].take(self.each[member].draw(count, rng), Sample(*(array[0] for array in own[:5])))
        obs: Array = own.obs[0]
        return obs

    def state(self, member: int) -> tuple[Arrays, dict[str, Any]]:
        return self.each[member].state()

    def load_state(self, member: int, arrays: Arrays, meta: dict[str, Any]) -> None:
        self.each[member].load_state(arrays, meta)


def _empty(spec: EnvSpec, members: int, batch_size: int) -> Sample:
    shape = members, batch_size
    frames, height, width = spec.obs_shape
    obs, next_obs = (np.moveaxis(np.empty((*shape, height, width, frames), np.uint8), -1, -3) for _ in range(2))
    return Sample(obs, np.empty(shape, np.int64), np.empty(shape, np.float32), next_obs, np.empty(shape, np.bool_))


class _Slots(NamedTuple):
    """What goes with each frame of a `FrameReplay`."""

    starts: NDArray[np.bool_]  # (n, slots)
    """A transition that may be drawn starts from this frame."""
    age: NDArray[np.uint8]  # (n, slots)
    """How many earlier frames of its episode belong to its stack."""
    action: NDArray[np.int64]  # (n, slots)
    reward: NDArray[np.float32]  # (n, slots)
    terminated: NDArray[np.bool_]  # (n, slots)

    @staticmethod
    def zeros(shape: tuple[int, int]) -> "_Slots":
        return _Slots(
            starts=np.zeros(shape, np.bool_),
            age=np.zeros(shape, np.uint8),
            action=np.zeros(shape, np.int64),
            reward=np.zeros(shape, np.float32),
            terminated=np.zeros(shape, np.bool_),
        )


class MemberFrames:
    """One member's last `capacity` transitions of stacked images, each frame stored once.

    Every env has a ring of slots, one per frame in the order of time. A slot holds a frame and the transition that
    starts from it; the last frame of an episode starts none. A stack is a frame and its predecessors in its own
    episode, with zeros before them, as the env makes it.
    Last frames take slots too, so there are 5% more slots than transitions. Where episodes are so short that this
    does not suffice, the oldest transitions go earlier.
    """

    def __init__(self, spec: EnvSpec, capacity: int, n: int = 1) -> None:
        self.capacity = capacity
        self._spec = spec
        self._stack = spec.frame_stack
        if self._stack != 4:
            raise BadInput(f"env {spec.env!r} stacks {self._stack} frames; expected 4")
        self._per_env = -(-capacity // n)
        self._n, self._n_slots = n, self._per_env + self._per_env // 20 + self._stack + 1
        shape = (n, self._n_slots)
        # The first row stays zero: it stands for what was before an episode.
        self._rows = np.zeros((1 + n * self._n_slots, *spec.obs_shape[1:]), np.uint8)
        self._frames = self._rows[1:].reshape(*shape, *spec.obs_shape[1:])
        self._slots = _Slots.zeros(shape)
        # Counted per env from the beginning; the slot of count c is c % n_slots.
        self._end = [0] * n  # frames written
        self._tail = [0] * n  # the oldest frame that a transition may start from
        self._size = [0] * n  # transitions that start between the two
        self._open = [False] * n  # the last frame written is the current observation of an unfinished episode

    def __len__(self) -> int:
        return sum(self._size)

    def add(
        self, obs: Array, action: Array, reward: Array, next_obs: Array, terminated: Array, truncated: Array
    ) -> None:
        """Store one step of n envs."""
        slots = self._slots
        for i in range(self._n):
            if not self._open[i]:
                if obs[i, :-1].any():
                    raise BadInput("an episode's first observation has older frames that are not zero")
                self._write(i, obs[i, -1], 0)
            at = i, (self._end[i] - 1) % self._n_slots
            slots.starts[at] = True
            slots.action[at], slots.reward[at], slots.terminated[at] = action[i], reward[i], terminated[i]
            self._size[i] += 1
            self._write(i, next_obs[i, -1], min(int(slots.age[at]) + 1, self._stack - 1))
            self._open[i] = not (terminated[i] or truncated[i])

    def _write(self, i: int, frame: NDArray[np.uint8], age: int) -> None:
        """Append a frame, once the transitions that would lose one of theirs by it are given up."""
        self._end[i] += 1
        oldest = self._end[i] - self._n_slots + self._stack - 1
        while self._size[i] > self._per_env or self._tail[i] < oldest:
            at = i, self._tail[i] % self._n_slots
            self._size[i] -= int(self._slots.starts[at])
            self._slots.starts[at] = False
            self._tail[i] += 1
        at = i, (self._end[i] - 1) % self._n_slots
        self._frames[at] = frame
        self._slots.age[at] = age

    def take(self, rows: NDArray[np.int64], out: Sample) -> None:
        """Put the transitions of these rows (env times slots, plus slot) into `out`."""
        at = env, slot = divmod(rows, self._n_slots)
        back = np.arange(self._stack - 1, -2, -1)  # how far each frame is before the newest of obs; -1: the next
        row = 1 + env[:, None] * self._n_slots + (slot[:, None] - back) % self._n_slots  # (B, stack + 1)
        row[back > self._slots.age[at][:, None]] = 0
        gather_stacks(self._rows, row, out.obs, out.next_obs)
        out.action[:], out.reward[:] = self._slots.action[at], self._slots.reward[at]
        out.terminated[:] = self._slots.terminated[at]

    def draw(self, batch_size: int, rng: Generator) -> NDArray[np.int64]:
        """Draw rows uniformly from the used slots of all envs, again where no transition starts."""
        if not len(self):
            raise BadInput("a batch was drawn from an empty replay; expected transitions to be added first")
        used = min(max(self._end), self._n_slots)  # slots that some env has written to
        drawn = rng.integers(0, self._n * used, batch_size)
        while (missing := ~self._slots.starts[divmod(drawn, used)]).any():
            drawn[missing] = rng.integers(0, self._n * used, np.count_nonzero(missing))
        env, slot = divmod(drawn, used)
        return np.asarray(env * self._n_slots + slot)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the filled part, as views."""
        end, tail, size = list(self._end), list(self._tail), list(self._size)
        return self._filled(end), {"end": end, "tail": tail, "size": size, "open": list(self._open)}

    def load_state(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        restore(self._filled(meta["end"]), arrays)
        self._end, self._tail = list(meta["end"]), list(meta["tail"])
        self._size, self._open = list(meta["size"]), list(meta["open"])

    def _filled(self, end: list[int]) -> Arrays:
        arrays = {"frame": self._frames, **self._slots._asdict()}
        return {name: array[:, : max(end)] for name, array in arrays.items()}
