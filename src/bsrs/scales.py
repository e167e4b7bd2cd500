"""Shape-scales: what eta is, as a number, a schedule, a function of the state, or something that learns.

`bsrs.shaping` says what eta does; its `Shaper` asks the scales, shows them the batches and keeps what they remember.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bsrs.errors import BadInput, unknown

# A Python float or an array of NumPy, PyTorch or JAX: only what these share is used.
Array = Any

Memory = dict[str, Any]
"""What a scale that learns remembers: numbers, strings, lists and dicts of them, so that JSON can hold it."""


@dataclass(frozen=True)
class Seen:
    """One member's batch, as a scale that learns is shown it: every array is (B,)."""

    step: int
    eta: float
    reward: Array
    value: Array
    next_value: Array
    terminated: Array


@dataclass(frozen=True)
class Returned:
    """States of one member's recent episodes: what was really returned from there, and what its networks predict.

    An episode that has not terminated, or was cut, is seen up to some end: the value there counts by `tail`, which is
    gamma to the power of the steps to it, and zero after a true end. All are NumPy arrays of shape (N,).
    """

    step: int
    episode: Array
    """To which episode each state belongs: 0, 1, ..."""
    reward: Array
    """The discounted sum of the rewards from the state to the end of what was seen."""
    tail: Array
    value: Array
    """V of the online network."""
    target_value: Array
    """V of the target network."""
    end_value: Array
    """The mean of both networks' V at the end of what was seen."""


class ShapeScale:
    """What eta is. A scale of your own writes `__call__`; one that learns writes `init`, `at` and `update` as well.

    The potential is `eta(s) * V(s)` at each end of a transition, so policy invariance holds whatever `__call__` does
    with the state. A scale that says `depends_on_state = False` is asked once instead of twice.
    """

    depends_on_state: bool = True
    update_every: int = 0
    """Batches between two calls of `update`; 0 for a scale that does not learn from batches."""
    reviews_returns: bool = False
    """Whether `review` is called once per period of the target network."""
    mixes: bool = False
    """Whether `share` says how much of V(s') is the online network's, in place of the setting `potential_network`."""

    def __call__(self, step: int, state: Array = None) -> Array:
        """eta at a training step and, where it depends on them, for a batch of states."""
        raise NotImplementedError

    def init(self) -> Memory:
        """What is remembered before the first batch."""
        return {}

    def at(self, memory: Memory, step: int, state: Array = None) -> Array:
        """eta, given what is remembered."""
        return self(step, state)

    def update(self, memory: Memory, seen: Seen) -> Memory:
        """What is remembered after a batch. The old memory is left as it is."""
        return memory

    def review(self, memory: Memory, returned: Returned) -> Memory:
        """What is remembered after a look at recent returns. The old memory is left as it is."""
        return memory

    def share(self, memory: Memory, step: int) -> float:
        """How much of the potential's V(s') is the online network's, the rest being the target network's.

        0 is the split potential, 1 the online one; V(s) is always the online network's. In terms of the parts of BSRS,
        b = share * eta / (1 + eta).
        """
        return 1.0


@dataclass(frozen=True)
class Custom(ShapeScale):
    """A scale given as a plain function of (step, state)."""

    of: Callable[..., Array]

    def __call__(self, step: int, state: Array = None) -> Array:
        return self.of(step, state)


@dataclass(frozen=True)
class Constant(ShapeScale):
    """The paper's choice: one number (or an array that broadcasts, one per member)."""

    depends_on_state = False

    eta: Array

    def __call__(self, step: int, state: Array = None) -> Array:
        return self.eta


@dataclass(frozen=True)
class Linear(ShapeScale):
    """From `start` to `end` over the first `steps` steps, `end` afterwards."""

    depends_on_state = False

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _check_schedule(self.steps, self.start, self.end)

    def __call__(self, step: int, state: Array = None) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Cosine(Linear):
    """From `start` to `end` over `steps` steps along half a cosine: slow, fast, slow."""

    def __call__(self, step: int, state: Array = None) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1 + math.cos(math.pi * min(step / self.steps, 1.0)))


@dataclass(frozen=True)
class Piecewise(ShapeScale):
    """Constant pieces: `points` are (from step, eta), in order of their steps."""

    depends_on_state = False

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps[0] != 0 or steps != sorted(set(steps)):
            raise BadInput(f"piecewise eta has steps {steps}; expected them to start at 0 and to increase")
        _check_schedule(1, *(eta for _, eta in self.points))

    def __call__(self, step: int, state: Array = None) -> float:
        return next(eta for start, eta in reversed(self.points) if step >= start)


@dataclass(frozen=True)
class PerState(ShapeScale):
    """eta(s): a function of the state, or a vector indexed by it."""

    of: Callable[[Array], Array] | Sequence[float] | Array

    def __call__(self, step: int, state: Array = None) -> Array:
        if state is None:
            raise BadInput("a state-dependent eta needs the states it is asked for, and none were given")
        if callable(self.of):
            return self.of(state)
        if hasattr(state, "new_tensor"):  # PyTorch: the table becomes floats of the states' kind
            return look_up(self.of, state, state.float())
        return (like_array(self.of, None) if isinstance(self.of, (list, tuple)) else self.of)[state]


def _check_schedule(steps: int, *etas: float) -> None:
    if not 1 <= steps < 2**63:
        raise BadInput(f"the schedule of eta has {steps} steps; expected at least 1")
    for eta in etas:
        if not math.isfinite(eta):
            raise BadInput(f"the schedule of eta has {eta}; expected finite numbers")


_NAMED_SCALES: dict[str, type[Linear]] = {"linear": Linear, "cosine": Cosine}


def as_scale(eta: ShapeScale | Callable[..., Array] | float | str | Array) -> ShapeScale:
    """The shape-scale that `eta` names: a number, an array of them, a shape-scale, a function, or text.

    Text is a number (`2`), `auto` (see `bsrs.auto`), `linear:START:END:STEPS`, `cosine:START:END:STEPS`, or
    `piecewise:STEP=ETA,STEP=ETA,...`: the form that configs and command lines use.
    """
    if isinstance(eta, str):
        return _parse_scale(eta)
    if isinstance(eta, (int, float)):
        if not math.isfinite(eta):
            raise BadInput(f"eta is {eta}; expected a finite number")
        return Constant(float(eta))
    if isinstance(eta, ShapeScale):
        return eta
    return Custom(eta) if callable(eta) else Constant(eta)


def _parse_scale(text: str) -> ShapeScale:
    kind, _, rest = text.partition(":")
    if kind == "auto":
        from bsrs.auto import auto  # here, because it is made of scales

        return auto(rest)
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
            f"eta {text!r} cannot be read; expected a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS"
            " or piecewise:STEP=ETA,STEP=ETA"
        ) from None
    raise unknown("shape-scale", kind, ["auto", *_NAMED_SCALES, "piecewise"])


def look_up(table: Array, state: Array, like: Array) -> Array:
    return like_array(table, like)[state]


def like_array(array: Array, reference: Array) -> Array:
    """`array` as the kind of array that `reference` is, with its float type."""
    import numpy as np

    table = np.asarray(array)
    if hasattr(reference, "new_tensor"):  # PyTorch, which has no array namespace of its own
        return reference.new_tensor(table)
    if hasattr(reference, "__array_namespace__"):  # JAX, NumPy 2
        return reference.__array_namespace__().asarray(table, dtype=reference.dtype)
    return table
