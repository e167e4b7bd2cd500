"""Potentials: what takes the place of V in `eta * V(s)`. `bsrs.shaping` explains what they are for."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bsrs.errors import BadInput
from bsrs.naming import is_object_name, name_of, object_named
from bsrs.scales import Array, like_array, takes


class Potential(Protocol):
    """The potential of each state in a batch, before it is scaled by eta.

    `value` is the agent's current estimate for the same states, `step` the training step.
    """

    def __call__(self, state: Array, value: Array, step: int) -> Array: ...


@dataclass(frozen=True)
class Bootstrapped:
    """The agent's own current value estimate, as in BSRS."""

    def __call__(self, state: Array, value: Array, step: int) -> Array:
        return value


@dataclass(frozen=True)
class Static:
    """A fixed potential (Ng et al., 1999): a function of the state, or a vector indexed by it."""

    of: Callable[[Array], Array] | Sequence[float] | Array

    def __call__(self, state: Array, value: Array, step: int) -> Array:
        return self.of(state) if callable(self.of) else like_array(self.of, value)[state]


@dataclass(frozen=True)
class RandomDynamic:
    """A random potential, redrawn every `period` steps (Devlin and Kudenko, 2012). Use it as a control.

    With `n_states` the potential is a table of uniform numbers in [-scale, scale]; without, it is a random
    direction in observation space, squashed to the same range.
    """

    seed: int
    period: int = 1
    scale: float = 1.0
    n_states: int | None = None

    def __call__(self, state: Array, value: Array, step: int) -> Array:
        epoch = step // self.period
        if self.n_states is not None:
            return like_array(self.scale * _noise(self.seed, epoch, self.n_states, "uniform"), value)[state]
        features = (state * (0 * value.reshape(-1)[:1] + 1)).reshape(*value.shape, -1)  # in value's kind and float type
        direction = _noise(self.seed, epoch, features.shape[-1], "normal") / math.sqrt(features.shape[-1])
        projected = features @ like_array(direction, value)
        return self.scale * projected / (1 + abs(projected))


BOOTSTRAPPED = "bootstrapped"


def as_potential(potential: Any) -> Potential:
    """Return the potential for a potential or its class, a function of the state, or MODULE:NAME."""
    if isinstance(potential, (Bootstrapped, Static, RandomDynamic)):
        return potential
    if potential in (None, "", BOOTSTRAPPED):
        return Bootstrapped()
    if is_object_name(potential):
        return as_potential(object_named(potential, "potential"))
    if isinstance(potential, type):
        return as_potential(potential())
    if not callable(potential):
        raise BadInput(f"the potential is {str(potential)[:80]!r}; expected a function of the state, or MODULE:NAME")
    if takes(potential, 1):
        return Static(potential)
    if not takes(potential, 3):
        found = inspect.signature(potential)
        raise BadInput(f"the potential takes {found}; expected a function of (state), or of (state, value, step)")
    own: Potential = potential
    return own


def potential_setting(potential: Any) -> str:
    """Return a potential as a config holds it: text."""
    if isinstance(potential, str):
        return potential
    if isinstance(as_potential(potential), Bootstrapped):
        return BOOTSTRAPPED
    return name_of(potential)


@functools.lru_cache(maxsize=4)
def _noise(seed: int, epoch: int, size: int, kind: str) -> Array:
    from bsrs.rng import stream  # here, because it imports NumPy

    draw = stream(seed, "random potential", epoch)
    return draw.uniform(-1.0, 1.0, size) if kind == "uniform" else draw.standard_normal(size)
