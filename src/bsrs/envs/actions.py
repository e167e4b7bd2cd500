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
        leaves = _leaves(space)
        if leaves and all(isinstance(leaf, Box) and leaf.dtype.kind == "f" for leaf in leaves):
            low, high = (tuple(x for leaf in leaves for x in getattr(leaf, end).flat) for end in ("low", "high"))
            return cls(env, space, low=tuple(map(float, low)), high=tuple(map(float, high)))
        counts = [_counts(leaf) for leaf in leaves]
        if not counts or None in counts:
            raise BadInput(
                f"env {env!r} has the action space {_short(space)}; expected discrete actions or a vector of numbers:"
                " gymnasium.wrappers.TransformAction can make such a space"
            )
        n = math.prod(count for part in counts for count in part or ())
        if isinstance(space, Discrete) or n <= MOST_COMBINATIONS:
            return cls(env, space, n=n)
        raise BadInput(
            f"env {env!r} has the actions {_short(space)} with {n:,} combinations; expected at most"
            f" {MOST_COMBINATIONS}: gymnasium.wrappers.TransformAction can offer fewer"
        )

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
            return _assembled(self.space, iter(np.asarray(action).flat))
        counts = [count for leaf in _leaves(self.space) for count in _counts(leaf) or ()]
        return _assembled(self.space, iter(np.unravel_index(int(action), counts)))

    def own_batch(self, actions: NDArray[Any]) -> Any:
        """Several actions: an array where the env's actions are arrays, else a list."""
        if isinstance(self.space, Discrete):
            return actions + int(self.space.start)
        each = [self.own(action) for action in actions]
        return np.stack(each) if self.space.shape is not None else each


def _leaves(space: Any) -> list[Any]:
    """The spaces inside a Dict or a Tuple, or else the space itself."""
    if not isinstance(space, (Dict, Tuple)):
        return [space]
    return [leaf for part in (space.values() if isinstance(space, Dict) else space) for leaf in _leaves(part)]


def _counts(leaf: Any) -> list[int] | None:
    """How many choices each number of a discrete action has; None if it is continuous or without end."""
    if isinstance(leaf, Discrete):
        return [int(leaf.n)]
    if isinstance(leaf, MultiDiscrete):
        return [int(n) for n in leaf.nvec.flat]
    if isinstance(leaf, MultiBinary):
        return [2] * math.prod(leaf.shape)
    if isinstance(leaf, Box) and leaf.dtype.kind in "iub":
        return [int(high) - int(low) + 1 for low, high in zip(leaf.low.flat, leaf.high.flat, strict=True)]
    return None


def _assembled(space: Any, numbers: Iterator[Any]) -> Any:
    """The action that these numbers are: floats, or the number of each choice."""
    if isinstance(space, Dict):
        return {name: _assembled(part, numbers) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(_assembled(part, numbers) for part in space)
    if isinstance(space, Discrete):
        return int(next(numbers)) + int(space.start)
    taken = np.array([next(numbers) for _ in range(math.prod(space.shape))]).reshape(space.shape)
    if space.dtype.kind == "f":  # float32 may round beyond the env's bounds
        return np.asarray(np.minimum(np.maximum(taken.astype(space.dtype), space.low), space.high))
    first = space.start if isinstance(space, MultiDiscrete) else space.low if isinstance(space, Box) else 0
    return (taken + first).astype(space.dtype)


def _short(space: Any) -> str:
    text = str(space)
    return text if len(text) <= 80 else f"{type(space).__name__}(...)"
