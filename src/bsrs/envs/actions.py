"""An env's own actions as agents choose them: a number from 0 to n - 1, or a vector of floats."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from bsrs.errors import BadInput

MOST_COMBINATIONS = 256
"""Up to so many combinations of several discrete actions are numbered; beyond, a Q-network has too many outputs."""


@dataclass(frozen=True)
class Actions:
    """How to say an agent's action in the env's own terms. Exactly one of `n` and `low`/`high` is given."""

    env: str
    space: Space[Any]
    n: int | None = None
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @classmethod
    def of(cls, env: str, space: Any) -> Self:
        """Read the action space of `env`; BadInput where no agent can act in it."""
        counts = _counts(space)
        if counts is not None:
            n = math.prod(counts)
            if isinstance(space, Discrete) or n <= MOST_COMBINATIONS:
                return cls(env, space, n=n)
            raise BadInput(
                f"env {env!r} has the actions {_short(space)} with {n:,} combinations; expected at most"
                f" {MOST_COMBINATIONS}: gymnasium.wrappers.TransformAction can offer fewer"
            )
        bounds = _bounds(space)
        if bounds is None:
            raise BadInput(
                f"env {env!r} has the action space {_short(space)}; expected discrete actions or a vector of numbers:"
                " gymnasium.wrappers.TransformAction can make such a space"
            )
        low, high = (tuple(map(float, end)) for end in bounds)
        return cls(env, space, low=low, high=high)

    @property
    def is_plain(self) -> bool:
        """Whether the env takes what agents choose: one number, or one vector."""
        return isinstance(self.space, Discrete) or (isinstance(self.space, Box) and len(self.space.shape) == 1)

    @property
    def note(self) -> str:
        """What a user should know about it, if anything."""
        if self.is_plain and (self.n is None or isinstance(self.space, Discrete)):
            return ""
        how = f"numbered 0 to {self.n - 1}" if self.n else f"one vector of {len(self.low or ())} numbers"
        return f"env {self.env!r}: the actions {_short(self.space)} are {how}"

    def own(self, action: Any) -> Any:
        """One action in the env's own form, within the env's own bounds."""
        if isinstance(self.space, Discrete):
            return int(action) + int(self.space.start)
        if self.n is None:
            return _from_numbers(self.space, iter(np.asarray(action).reshape(-1)))
        counts = _counts(self.space)
        return _from_digits(self.space, iter(np.unravel_index(int(action), counts or [])))

    def own_batch(self, actions: NDArray[Any]) -> Any:
        """Several actions: an array where the env's actions are arrays, else a list."""
        if isinstance(self.space, Discrete):
            return actions + int(self.space.start)
        each = [self.own(action) for action in actions]
        return np.stack(each) if self.space.shape is not None else each


def _parts(space: Any) -> list[Any] | None:
    """The spaces inside a Dict or a Tuple."""
    return list(space.spaces.values()) if isinstance(space, Dict) else list(space) if isinstance(space, Tuple) else None


def _counts(space: Any) -> list[int] | None:
    """How many choices each part of a discrete action has; None where some part is continuous or without end."""
    if isinstance(space, Discrete):
        return [int(space.n)]
    if isinstance(space, MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    if isinstance(space, MultiBinary):
        return [2] * math.prod(space.shape)
    if isinstance(space, Box) and space.dtype is not None and np.dtype(space.dtype).kind in "iub":
        return [int(high) - int(low) + 1 for low, high in zip(space.low.flat, space.high.flat, strict=True)]
    parts = _parts(space)
    found = [_counts(part) for part in parts] if parts else [None]
    return None if None in found else [count for counts in found for count in counts or []]


def _bounds(space: Any) -> tuple[list[float], list[float]] | None:
    """The lowest and highest value of each number of a continuous action."""
    if isinstance(space, Box) and np.dtype(space.dtype).kind == "f":
        return space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist()
    parts = _parts(space)
    found = [_bounds(part) for part in parts] if parts else [None]
    if None in found:
        return None
    lows, highs = zip(*[bounds for bounds in found if bounds], strict=True)
    return [x for low in lows for x in low], [x for high in highs for x in high]


def _from_digits(space: Any, digits: Iterator[Any]) -> Any:
    if isinstance(space, Discrete):
        return int(next(digits)) + int(space.start)
    if isinstance(space, Dict):
        return {name: _from_digits(part, digits) for name, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_from_digits(part, digits) for part in space)
    taken = np.array([int(next(digits)) for _ in range(math.prod(space.shape))]).reshape(space.shape)
    first = space.start if isinstance(space, MultiDiscrete) else space.low if isinstance(space, Box) else 0
    return (taken + first).astype(space.dtype)


def _from_numbers(space: Any, numbers: Iterator[Any]) -> Any:
    if isinstance(space, Dict):
        return {name: _from_numbers(part, numbers) for name, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_from_numbers(part, numbers) for part in space)
    taken = np.array([next(numbers) for _ in range(math.prod(space.shape))], space.dtype).reshape(space.shape)
    return np.asarray(np.minimum(np.maximum(taken, space.low), space.high))  # float32 may round beyond the env's bounds


def _short(space: Any) -> str:
    text = str(space)
    return text if len(text) <= 80 else f"{type(space).__name__}(...)"
