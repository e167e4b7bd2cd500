"""Replay: the transitions an agent has seen, and uniform batches of them.

`ArrayReplay` keeps whole observations. `FrameReplay` is for stacks of images: it keeps each frame once, which takes an
eighth of the memory, and puts the stacks together again when a batch is drawn.

Both have one interface: `add` one step of n envs, `sample` a batch, `state` and `load_state` for checkpoints. The
arrays of a batch are used again by the next `sample`, unless others are given as `out`.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import DTypeLike, NDArray

from bsrs.agents.returns import Stretch
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput

Arrays = dict[str, NDArray[Any]]
take_rows = partial(np.take, axis=0, mode="clip")  # the one mode that does not copy through a buffer
EMPTY = "a batch was asked of an empty replay; expected transitions to be added first"


class Batch(NamedTuple):
    """B transitions, or (P, B) of P members: arrays where they are drawn, tensors where they are learnt from.

    `terminated` is false at a time limit: values bootstrap there.
    """

    obs: Any  # (B, *obs_shape)
    action: Any  # (B, *action_shape); continuous ones from -1 to 1
    reward: Any  # (B,)
    next_obs: Any  # (B, *obs_shape)
    terminated: Any  # (B,)
    noise: Any = None
    """(P, k, B, A): the standard normal noise that a gradient step of an actor-critic needs."""
    steps: Any = None
    """(B,): over how many steps the reward is summed, where it is over several."""

    @property
    def transitions(self) -> tuple[Any, ...]:
        """Without the noise: what a replay holds."""
        return self[:5]

    def of(self, member: int) -> "Batch":
        """The transitions of one member, as views."""
        return Batch(*(array[member] for array in self.transitions))

    @staticmethod
    def empty(spec: EnvSpec, *shape: int) -> "Batch":
        """Arrays to be filled by `sample(..., out=...)`: of `shape` (B,), or (P, B) for P members."""
        return Batch(
            _empty_obs(spec, shape),
            np.empty((*shape, *spec.action_shape), action_dtype(spec)),
            np.empty(shape, np.float32),
            _empty_obs(spec, shape),
            np.empty(shape, np.bool_),
        )


def _empty_obs(spec: EnvSpec, shape: tuple[int, ...]) -> NDArray[Any]:
    """Stacks of frames lie with the frames innermost; see bsrs.agents.interleave."""
    if spec.frame_stack == 1:
        return np.empty((*shape, *spec.obs_shape), spec.obs_dtype)
    frames, height, width = spec.obs_shape
    return np.moveaxis(np.empty((*shape, height, width, frames), spec.obs_dtype), -1, -3)


def action_dtype(spec: EnvSpec) -> DTypeLike:
    return np.float32 if spec.n_actions is None else np.int64


class NStep(NamedTuple):
    """Rewards of `n` steps, discounted by `gamma`, as one transition."""

    n: int
    gamma: float


class ArrayReplay:
    """The last `capacity` transitions in plain arrays, which may be given as `data`."""

    def __init__(self, spec: EnvSpec, capacity: int, n: int = 1, *, data: Batch | None = None) -> None:
        self.capacity = capacity
        self._spec, self._n = spec, n
        self._data = Batch.empty(spec, capacity) if data is None else data
        self._added = 0
        self._out = Batch.empty(spec, 0)

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._data.transitions)

    def add(self, *step: Any) -> None:
        """One step of n envs, the arrays of a `Transition`; its `next_obs` is the true one (`Step.final_obs`)."""
        obs, action, reward, next_obs, terminated, _ = step
        for i in range(len(reward)):
            row = self._added % self.capacity
            data = self._data
            data.obs[row], data.action[row], data.reward[row] = obs[i], action[i], reward[i]
            data.next_obs[row], data.terminated[row] = next_obs[i], terminated[i]
            self._added += 1

    def sample(self, batch_size: int, rng: Generator, out: Batch | None = None) -> Batch:
        """Transitions drawn uniformly, with replacement."""
        if not len(self):
            raise BadInput(EMPTY)
        out = self._out = out or _batch_of(self._out, self._spec, batch_size)
        return self.take(rng.integers(0, len(self), batch_size), out)

    def take(self, rows: NDArray[np.int64], out: Batch | None = None) -> Batch:
        """The transitions of these rows."""
        out = out or Batch.empty(self._spec, len(rows))
        for whole, part in zip(self._data.transitions, out.transitions, strict=True):
            take_rows(whole, rows, out=part)
        return out

    def sum_rewards(self, rows: NDArray[np.int64], returns: NStep, out: Batch) -> Batch:
        """The batch `out` of these rows with the next n transitions as one: fewer at an end, and at the newest."""
        data, n = self._data, returns.n
        path = (rows[:, None] + np.arange(n) * self._n) % self.capacity  # (B, n)
        later = (self._added - 1 - rows) % self.capacity  # transitions that came after it
        goes_on = later[:, None] >= np.arange(n) * self._n  # (B, n)
        for k in range(1, n):
            before, row = path[:, k - 1], path[:, k]
            follows = (data.next_obs[before] == data.obs[row]).reshape(len(rows), -1).all(axis=1)
            goes_on[:, k] &= goes_on[:, k - 1] & follows & ~data.terminated[before]
        steps = goes_on.sum(axis=1)
        last = path[np.arange(len(rows)), steps - 1]
        out.reward[:] = (data.reward[path] * goes_on) @ (returns.gamma ** np.arange(n)).astype(np.float32)
        take_rows(data.next_obs, last, out=out.next_obs)
        take_rows(data.terminated, last, out=out.terminated)
        return out._replace(steps=steps.astype(np.float32))

    def latest(self, most: int) -> list[Stretch]:
        """At most `most` transitions for each env. An episode goes on where the next state is the next one's state."""
        count = min(len(self) // self._n, most)
        rows = np.arange(self._added - count * self._n, self._added).reshape(count, self._n).T % self.capacity  # (n, T)
        data, found = self._data, []
        for row in rows:
            follows = (data.next_obs[row[:-1]] == data.obs[row[1:]]).reshape(max(count - 1, 0), -1).all(axis=1)
            ended = np.append(~follows, True)[-count:] | data.terminated[row]
            found.append(Stretch(row, data.reward[row], data.terminated[row], ended))
        return found

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """The filled part, as views."""
        return self._filled(self._added), {"added": self._added}

    def load_state(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        _restore(self._filled(meta["added"]), arrays)
        self._added = meta["added"]

    def _filled(self, added: int) -> Arrays:
        names = self._data._fields
        return {name: array[:added] for name, array in zip(names, self._data.transitions, strict=False)}


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


class FrameReplay:
    """The last `capacity` transitions of stacked images, each frame stored once.

    Every env has a ring of slots, one per frame in the order of time. A slot holds a frame and the transition that
    starts from it; the last frame of an episode starts none. A stack is a frame and its predecessors in its own
    episode, with zeros before them, as the env makes it.
    Last frames take slots too, so there are 5 % more slots than transitions. Where episodes are so short that this
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
        self._out = Batch.empty(spec, 0)

    def __len__(self) -> int:
        return sum(self._size)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + sum(array.nbytes for array in self._slots)

    def add(self, *step: Any) -> None:
        """One step of n envs, the arrays of a `Transition`; its `next_obs` is the true one (`Step.final_obs`)."""
        obs, action, reward, next_obs, terminated, truncated = step
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

    def sample(self, batch_size: int, rng: Generator, out: Batch | None = None) -> Batch:
        """Transitions drawn uniformly, with replacement."""
        out = self._out = out or _batch_of(self._out, self._spec, batch_size)
        env, slot = self._draw(batch_size, rng)
        return self.take(env * self._n_slots + slot, out)

    def take(self, rows: NDArray[np.int64], out: Batch | None = None) -> Batch:
        """The transitions of these rows: env times slots, plus slot."""
        from bsrs.agents.interleave import gather_stacks  # here, because numba takes a while to import

        out = out or Batch.empty(self._spec, len(rows))
        at = env, slot = divmod(rows, self._n_slots)
        back = np.arange(self._stack - 1, -2, -1)  # how far each frame is before the newest of obs; -1: the next
        row = 1 + env[:, None] * self._n_slots + (slot[:, None] - back) % self._n_slots  # (B, stack + 1)
        row[back > self._slots.age[at][:, None]] = 0
        gather_stacks(self._rows, row, out.obs, out.next_obs)
        out.action[:], out.reward[:] = self._slots.action[at], self._slots.reward[at]
        out.terminated[:] = self._slots.terminated[at]
        return out

    def latest(self, most: int) -> list[Stretch]:
        """At most `most` transitions for each env."""
        slots, found = self._slots, []
        for i in range(self._n):
            slot = np.arange(max(self._tail[i], self._end[i] - most - most // 20), self._end[i]) % self._n_slots
            starts = slots.starts[i, slot]
            ended = np.append(~starts[1:], True)[starts]
            slot = slot[starts]
            ended = ended | slots.terminated[i, slot]
            row = (i * self._n_slots + slot)[-most:]
            found.append(Stretch(row, slots.reward[i, slot][-most:], slots.terminated[i, slot][-most:], ended[-most:]))
        return found

    def _draw(self, batch_size: int, rng: Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where transitions start: used slots of all envs drawn alike, and again where none starts."""
        if not len(self):
            raise BadInput(EMPTY)
        used = min(max(self._end), self._n_slots)  # slots that some env has written to
        drawn = rng.integers(0, self._n * used, batch_size)
        while (missing := ~self._slots.starts[divmod(drawn, used)]).any():
            drawn[missing] = rng.integers(0, self._n * used, np.count_nonzero(missing))
        return divmod(drawn, used)

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """The filled part, as views."""
        end, tail, size = list(self._end), list(self._tail), list(self._size)
        return self._filled(end), {"end": end, "tail": tail, "size": size, "open": list(self._open)}

    def load_state(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        _restore(self._filled(meta["end"]), arrays)
        self._end, self._tail = list(meta["end"]), list(meta["tail"])
        self._size, self._open = list(meta["size"]), list(meta["open"])

    def _filled(self, end: list[int]) -> Arrays:
        arrays = {"frame": self._frames, **self._slots._asdict()}
        return {name: array[:, : max(end)] for name, array in arrays.items()}


def _batch_of(batch: Batch, spec: EnvSpec, batch_size: int) -> Batch:
    """The same arrays again, if they are of that size."""
    return batch if len(batch.reward) == batch_size else Batch.empty(spec, batch_size)


def _restore(arrays: Arrays, saved: Arrays) -> None:
    """Copy the saved arrays into those of a replay: all of them, or none."""
    for name, array in arrays.items():
        found, expected = (f"{a.dtype} {a.shape}" for a in (saved[name], array))
        if found != expected:
            raise BadInput(f"the saved replay's {name!r} is {found}; expected {expected}")
    for name, array in arrays.items():
        array[...] = saved[name]
