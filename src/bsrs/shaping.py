"""Bootstrapped reward shaping, the whole idea: read this file first.

Potential-based shaping (Ng, Harada and Russell, 1999) adds `gamma * phi(s') - phi(s)` to the reward and
leaves the optimal policy as it was. Bootstrapped shaping (BSRS) takes for `phi` what the agent has anyway,
its own current value estimate, times one number: `phi(s) = eta * V(s)`. So the shaped reward is

    r~ = r + eta * (gamma * V(s') - V(s))        and nothing after a true end: V(s') counts as zero there.

`shaped_reward` is that line. Every algorithm of the project calls it, tables and networks alike.
Around it stand two kinds of small values:

- a *potential* says what takes the place of `V`: the estimate itself (`Bootstrapped`), a fixed function
  (`Static`), or noise redrawn over time (`RandomDynamic`);
- a *shape-scale* says what `eta` is: `Constant`, scheduled over training (`Linear`, `Cosine`, `Piecewise`),
  or a function of the state (`PerState`).

`Shaping` joins one of each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bsrs.errors import BadInput, unknown

# A Python float or an array of NumPy, PyTorch or JAX: the functions below use only what these share.
Array = Any


def shaped_reward(
    reward: Array,
    value: Array,
    next_value: Array,
    *,
    eta: Array,
    gamma: Array,
    terminated: Array | None = None,
    next_eta: Array | None = None,
) -> Array:
    """`reward + eta * (gamma * next_value - value)`, with `next_value` zero where the episode terminated.

    Works on Python floats and on NumPy, PyTorch and JAX arrays; the inputs are left as they are. `eta` and
    `gamma` broadcast: a number, one per transition, or one per member of a population. A time limit is not
    termination: leave `terminated` false there.

    Where the scale depends on the state, the potential is `eta(s) * V(s)`: give `eta` at the state and
    `next_eta` at the next state, or policy invariance is lost.
    """
    _check_same_shape(reward=reward, value=value, next_value=next_value, terminated=terminated)
    next_potential = gamma * next_value
    if terminated is not None:
        # A comparison, because `1 - terminated` is refused for booleans and would widen float32.
        next_potential = next_potential * (terminated == 0)
    if next_eta is None:
        return reward + eta * (next_potential - value)
    return reward + (next_eta * next_potential - eta * value)


def _check_same_shape(**arrays: Array) -> None:
    """(B,) against (B, 1) would broadcast to (B, B) without a word: the classic silent bug of TD targets."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if getattr(array, "shape", ())}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise BadInput(f"shaped_reward got arrays of different shapes ({found}); expected one shape for all")


# --------------------------------------------------------------------------------------------------------------
# Potentials: what takes the place of V.


class Potential(Protocol):
    """The potential of each state in a batch, before it is scaled by eta.

    `value` is the agent's current estimate for the same states, `step` the training step.
    """

    def __call__(self, state: Array, value: Array, step: int) -> Array: ...


@dataclass(frozen=True)
class Bootstrapped:
    """The agent's own current value estimate: BSRS."""

    def __call__(self, state: Array, value: Array, step: int) -> Array:
        return value


@dataclass(frozen=True)
class Static:
    """A fixed potential, Ng et al.'s PBRS: a function of the state, or a vector indexed by it."""

    of: Callable[[Array], Array] | Sequence[float] | Array

    def __call__(self, state: Array, value: Array, step: int) -> Array:
        return self.of(state) if callable(self.of) else _look_up(self.of, state, value)


@dataclass(frozen=True)
class RandomDynamic:
    """Noise that is redrawn every `period` steps (Devlin and Kudenko, 2012): the control for "any potential".

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
            return _look_up(self.scale * _noise(self.seed, epoch, self.n_states, "uniform"), state, value)
        features = (state * (0 * value.reshape(-1)[:1] + 1)).reshape(*value.shape, -1)  # in value's kind and float type
        direction = _noise(self.seed, epoch, features.shape[-1], "normal") / math.sqrt(features.shape[-1])
        projected = features @ _like(direction, value)
        return self.scale * projected / (1 + abs(projected))


@functools.lru_cache(maxsize=4)
def _noise(seed: int, epoch: int, size: int, kind: str) -> Array:
    from bsrs.rng import stream  # here, because it brings NumPy

    draw = stream(seed, "random potential", epoch)
    return draw.uniform(-1.0, 1.0, size) if kind == "uniform" else draw.standard_normal(size)


def _look_up(table: Array, state: Array, like: Array) -> Array:
    return _like(table, like)[state]


def _like(array: Array, reference: Array) -> Array:
    """`array` as the kind of array that `reference` is, with its float type."""
    import numpy as np

    table = np.asarray(array)
    if hasattr(reference, "new_tensor"):  # PyTorch, which has no array namespace of its own
        return reference.new_tensor(table)
    if hasattr(reference, "__array_namespace__"):  # JAX, NumPy 2
        return reference.__array_namespace__().asarray(table, dtype=reference.dtype)
    return table


# --------------------------------------------------------------------------------------------------------------
# Shape-scales: what eta is.


class ShapeScale(Protocol):
    """eta at a training step and, where it depends on them, for a batch of states."""

    def __call__(self, step: int, state: Array = None) -> Array: ...


@dataclass(frozen=True)
class Constant:
    """The paper's choice: one number (or an array that broadcasts, one per member)."""

    eta: Array

    def __call__(self, step: int, state: Array = None) -> Array:
        return self.eta


@dataclass(frozen=True)
class Linear:
    """From `start` to `end` over the first `steps` steps, `end` afterwards."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int, state: Array = None) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Cosine:
    """From `start` to `end` over `steps` steps along half a cosine: slow, fast, slow."""

    start: float
    end: float
    steps: int

    def __call__(self, step: int, state: Array = None) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1 + math.cos(math.pi * min(step / self.steps, 1.0)))


@dataclass(frozen=True)
class Piecewise:
    """Constant pieces: `points` are (from step, eta), in order of their steps."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps[0] != 0 or steps != sorted(set(steps)):
            raise BadInput(f"piecewise eta has steps {steps}; expected them to start at 0 and to increase")

    def __call__(self, step: int, state: Array = None) -> float:
        return next(eta for start, eta in reversed(self.points) if step >= start)


@dataclass(frozen=True)
class PerState:
    """eta(s): a function of the state, or a vector indexed by it."""

    of: Callable[[Array], Array] | Sequence[float] | Array

    def __call__(self, step: int, state: Array = None) -> Array:
        if state is None:
            raise BadInput("a state-dependent eta needs the states it is asked for, and none were given")
        if callable(self.of):
            return self.of(state)
        if hasattr(state, "new_tensor"):  # PyTorch: the table becomes floats of the states' kind
            return _look_up(self.of, state, state.float())
        return (_like(self.of, None) if isinstance(self.of, (list, tuple)) else self.of)[state]


_NAMED_SCALES: dict[str, type[Linear] | type[Cosine]] = {"linear": Linear, "cosine": Cosine}


def as_scale(eta: ShapeScale | float | str | Array) -> ShapeScale:
    """The shape-scale that `eta` names: a number, an array of them, a shape-scale, or text.

    Text is a number (`2`), `linear:START:END:STEPS`, `cosine:START:END:STEPS`, or
    `piecewise:STEP=ETA,STEP=ETA,...`: the form that configs and command lines use.
    """
    if isinstance(eta, str):
        return _parse_scale(eta)
    if isinstance(eta, (int, float)):
        if not math.isfinite(eta):
            raise BadInput(f"eta is {eta}; expected a finite number")
        return Constant(float(eta))
    return eta if callable(eta) else Constant(eta)


def _parse_scale(text: str) -> ShapeScale:
    kind, _, rest = text.partition(":")
    try:
        if not rest:
            return as_scale(float(kind))
        if kind == "piecewise":
            pairs = [point.split("=") for point in rest.split(",")]
            return Piecewise(tuple((int(step), float(eta)) for step, eta in pairs))
        if kind in _NAMED_SCALES:
            start, end, steps = rest.split(":")
            return _NAMED_SCALES[kind](float(start), float(end), int(steps))
    except BadInput:
        raise
    except ValueError:
        raise BadInput(
            f"eta {text!r} cannot be read; expected a number, linear:START:END:STEPS, cosine:START:END:STEPS"
            " or piecewise:STEP=ETA,STEP=ETA"
        ) from None
    raise unknown("shape-scale", kind, [*_NAMED_SCALES, "piecewise"])


# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shaping:
    """A potential and its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | float | str
    potential: Potential = field(default_factory=Bootstrapped)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """The scaled potential itself. V + phi estimates the value in the unshaped problem."""
        return as_scale(self.eta)(step, state) * self.potential(state, value, step)

    def __call__(
        self,
        reward: Array,
        value: Array,
        next_value: Array,
        *,
        gamma: Array,
        terminated: Array | None = None,
        state: Array = None,
        next_state: Array = None,
        step: int = 0,
    ) -> Array:
        """The shaped reward of a batch of transitions. The states are needed only by what depends on them."""
        scale = as_scale(self.eta)
        per_state = isinstance(scale, PerState)
        return shaped_reward(
            reward,
            self.potential(state, value, step),
            self.potential(next_state, next_value, step),
            eta=scale(step, state),
            next_eta=scale(step, next_state) if per_state else None,
            gamma=gamma,
            terminated=terminated,
        )


__all__ = [
    "Bootstrapped",
    "Constant",
    "Cosine",
    "Linear",
    "PerState",
    "Piecewise",
    "Potential",
    "RandomDynamic",
    "ShapeScale",
    "Shaping",
    "Static",
    "as_scale",
    "shaped_reward",
]
