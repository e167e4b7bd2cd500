"""Replay: the transitions that P members have seen, and uniform batches of them.

`ArrayReplay` keeps whole observations, of all members in one block. `FrameReplay` (in `frames.py`) is for stacks of
images. Both have one interface: `add` a `Transition`, `sample` a `Sample`, `state` and `load_state` for checkpoints.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import DTypeLike, NDArray

from bsrs.agents.agent import Array, Transition
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput

Arrays = dict[str, NDArray[Any]]


class Sample(NamedTuple):
    """A batch of every member as NumPy arrays, which the next `sample` overwrites."""

    obs: Array  # (P, B, *obs)
    action: Array  # (P, B, *action)
    reward: Array  # (P, B)
    next_obs: Array  # (P, B, *obs)
    terminated: Array  # (P, B)
    steps: Array | None = None
    """(P, B): how many rewards are summed, with n-step returns."""


class Replay(Protocol):
    """The replays of P members."""

    def __len__(self) -> int:
        """Count the transitions of each member."""

    def add(self, transition: Transition) -> None:
        """Store one step of every env of every member."""

    def sample(self, rngs: Sequence[Generator], batch_size: int) -> Sample:
        """Draw a batch for each member from its own stream, uniformly with replacement."""

    def some_obs(self, member: int, rng: Generator, count: int) -> Array:
        """Draw observations of one member: (count, *obs)."""

    def state(self, member: int) -> tuple[Arrays, dict[str, Any]]:
        """Return the filled part of one member's replay, as views."""

    def load_state(self, member: int, arrays: Arrays, meta: dict[str, Any]) -> None:
        """Load what `state` returned."""


def make_replay(spec: EnvSpec, members: int, capacity: int, n_envs: int, n_step: int, gamma: float) -> Replay:
    """Make the kind of replay that suits the env."""
    if capacity < n_envs:
        raise BadInput(f"buffer_size is {capacity}; expected at least one transition per env ({n_envs})")
    if spec.frame_stack == 1:
        return ArrayReplay(spec, members, capacity, n_envs, n_step, gamma)
    if n_step > 1:
        raise BadInput(f"n_step is {n_step} and env {spec.env!r} has stacked frames; expected n_step 1 there")
    from bsrs.agents.frames import FrameReplay  # here, because it imports a compiler

    return FrameReplay(spec, members, capacity, n_envs)


def action_dtype(spec: EnvSpec) -> DTypeLike:
    return np.float32 if spec.n_actions is None else np.int64


class ArrayReplay:
    """The last `capacity` transitions of each member in plain arrays, (P, capacity, ...)."""

    def __init__(
        self, spec: EnvSpec, members: int, capacity: int, n_envs: int = 1, n_step: int = 1, gamma: float = 1.0
    ) -> None:
        self.capacity, self.n_step = capacity, n_step
        self._n_envs, self._gamma, self._members = n_envs, gamma, members
        self.arrays = _arrays(spec, members, capacity)
        """The members' transitions: rows 0 to `len` are filled, the oldest is overwritten next once all are."""
        self.added = 0
        """Transitions that were ever added."""
        self._flat = [array.reshape(-1, *array.shape[2:]) for array in self.arrays]
        self._spec, self._out, self._uniform = spec, _arrays(spec, members, 0), np.empty((members, 0))

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transition: Transition) -> None:
        row, n = self.added % self.capacity, self._n_envs
        rows = slice(row, row + n) if row + n <= self.capacity else np.arange(row, row + n) % self.capacity
        for array, new in zip(self.arrays, transition, strict=True):
            array[:, rows] = new
        self.added += n

    def draw_rows(self, rngs: Sequence[Generator], batch_size: int) -> NDArray[np.int64]:
        """Draw the rows of a batch: (P, B)."""
        if not self.added:
            raise BadInput("a batch was drawn from an empty replay; expected transitions to be added first")
        if self._uniform.shape[1] != batch_size:
            self._uniform = np.empty((self._members, batch_size))
        for rng, row in zip(rngs, self._uniform, strict=True):
            rng.random(out=row)
        return (self._uniform * len(self)).astype(np.int64)

    def sample(self, rngs: Sequence[Generator], batch_size: int) -> Sample:
        return self.take(self.draw_rows(rngs, batch_size))

    def take(self, rows: NDArray[np.int64]) -> Sample:
        """Return the transitions of these rows, (P, B)."""
        if self._out.reward.shape != rows.shape:
            self._out = _arrays(self._spec, *rows.shape)
        flat_rows = (rows + self.capacity * np.arange(len(rows))[:, None]).reshape(-1)
        for whole, part in zip(self._flat, self._out, strict=True):
            _take_rows(whole, flat_rows, part)
        out = Sample(*self._out[:5])
        return out if self.n_step == 1 else self._sum_rewards(rows, out)

    def _sum_rewards(self, rows: NDArray[np.int64], out: Sample) -> Sample:
        """Make one transition of the next n: fewer at an episode's end, and at the newest."""
        n, flat = self.n_step, Transition(*self._flat)
        path = (rows[..., None] + np.arange(n) * self._n_envs) % self.capacity  # (P, B, n)
        later = (self.added - 1 - rows) % self.capacity  # transitions that came after it
        continues = later[..., None] >= np.arange(n) * self._n_envs  # (P, B, n)
        path += self.capacity * np.arange(len(rows))[:, None, None]
        ended = flat.terminated[path] | flat.truncated[path]
        continues[..., 1:] &= ~np.logical_or.accumulate(ended, axis=-1)[..., :-1]
        steps = continues.sum(axis=-1)  # (P, B)
        last = np.take_along_axis(path, steps[..., None] - 1, axis=-1).reshape(-1)
        rewards = np.where(continues, flat.reward[path], 0)  # the others may not be written yet
        out.reward[:] = rewards @ (self._gamma ** np.arange(n)).astype(np.float32)
        _take_rows(flat.next_obs, last, out.next_obs)
        _take_rows(flat.terminated, last, out.terminated)
        return out._replace(steps=steps.astype(np.float32))

    def some_obs(self, member: int, rng: Generator, count: int) -> Array:
        obs: Array = self.arrays.obs[member, rng.integers(0, len(self), count)]
        return obs

    def state(self, member: int) -> tuple[Arrays, dict[str, Any]]:
        return self._filled(member, self.added), {"added": self.added}

    def load_state(self, member: int, arrays: Arrays, meta: dict[str, Any]) -> None:
        restore(self._filled(member, meta["added"]), arrays)
        self.added = meta["added"]

    def _filled(self, member: int, added: int) -> Arrays:
        return {name: array[member, :added] for name, array in self.arrays._asdict().items()}


def _arrays(spec: EnvSpec, *shape: int) -> Transition:
    """Make arrays for transitions of a `shape` such as (P, capacity)."""
    return Transition(
        np.empty((*shape, *spec.obs_shape), spec.obs_dtype),
        np.empty((*shape, *spec.action_shape), action_dtype(spec)),
        np.empty(shape, np.float32),
        np.empty((*shape, *spec.obs_shape), spec.obs_dtype),
        np.empty(shape, np.bool_),
        np.empty(shape, np.bool_),
    )


def _take_rows(whole: Array, rows: NDArray[np.int64], out: Array) -> None:
    # This mode is the one that does not copy through a buffer.
    np.take(whole, rows, axis=0, out=out.reshape(-1, *out.shape[2:]), mode="clip")


def restore(arrays: Arrays, saved: Arrays) -> None:
    """Copy the saved arrays into those of a replay: all of them or, if one does not fit, none."""
    for name, array in arrays.items():
        found, expected = (f"{a.dtype} {a.shape}" for a in (saved[name], array))
        if found != expected:
            raise BadInput(f"the saved replay's {name!r} is {found}; expected {expected}")
    for name, array in arrays.items():
        array[...] = saved[name]
