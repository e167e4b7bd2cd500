"""Shape-scales: what eta is, as a number, a schedule, a function of the state, or something that learns.

`bsrs.shaping` explains what eta does. Its `Shaper` evaluates the scales, shows them batches and keeps their memories.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bsrs.errors import BadInput, unknown
from bsrs.naming import is_object_name, name_of, object_named

# A Python float or an array of NumPy, PyTorch or JAX: only what these share is used.
Array = Any

Memory = dict[str, Any]
"""What a scale that learns remembers: numbers, strings, and lists, NumPy arrays and dicts of them. JSON holds it in
checkpoints, where arrays become lists."""


@dataclass(frozen=True)
class Seen:
    """One member's batch, as passed to a scale that learns. Arrays are (B,)."""

    step: int
    eta: float
    reward: Array
    value: Array
    next_value: Array
    terminated: Array
    obs: Array = None
    """(B, *obs)"""
    next_obs: Array = None


class ShapeScale:
    """What eta is. To write your own, define `__call__`, or `init`, `at` and `update` for one that learns.

    The potential is `eta(s) * V(s)` at each end of a transition, so the optimal policy stays the same whatever
    `__call__` does with the state. Set `depends_on_state = False` if it ignores the state.
    """

    depends_on_state: bool = True
    update_every: int = 0
    """Batches between calls of `update`; 0 if the scale does not learn from batches."""
    probes: int = 0
    """Number of probe observations whose V is passed to `look` once per target-network period."""
    mixes: bool = False
    """Whether `mix` decides how V(s') mixes the two networks, instead of the setting `potential_network`."""

    def __call__(self, step: int, state: Array = None) -> Array:
        """Return eta at a training step and, if it depends on the state, for a batch of states."""
        raise NotImplementedError

    def init(self) -> Memory:
        """Return the initial memory."""
        return {}

    def at(self, memory: Memory, step: int, state: Array = None) -> Array:
        """Return eta, given the memory."""
        return self(step, state)

    def update(self, memory: Memory, seen: Seen) -> Memory:
        """Return the memory after a batch. Do not modify the old one."""
        return memory

    def look(self, memory: Memory, value: Array) -> Memory:
        """Return the memory after a look at V of the probe observations, a NumPy array (probes,).

        The observations stay the same from one look to the next; when they are replaced, `forget` is called first.
        """
        return memory

    def forget(self, memory: Memory) -> Memory:
        """Return the memory after the probe observations are replaced."""
        return memory

    def report(self, memory: Memory) -> dict[str, float]:
        """Return additional numbers for the records."""
        return {}

    def mix(self, memory: Memory, step: int) -> tuple[float, float]:
        """Return the share of the online network in the potential's V(s'), and the factor for the env's reward.

        The rest of V(s') is the target network's: 0 is the split potential, 1 the online one; V(s) is always the online
        network's. In terms of the parts of BSRS, b = share * eta / (1 + eta). With the factor 1 + eta, V keeps its
        scale while eta changes.
        """
        return 1.0, 1.0


@dataclass(frozen=True)
class Custom(ShapeScale):
    """Wrap a function of (step, state), or of the step alone."""

    of: Callable[..., Array]
    depends_on_state: bool = True

    def __call__(self, step: int, state: Array = None) -> Array:
        return self.of(step, state) if self.depends_on_state else self.of(step)


@dataclass(frozen=True)
class Constant(ShapeScale):
    """A constant eta, as in the paper: one number, or an array that broadcasts."""

    depends_on_state = False

    eta: Array

    def __call__(self, step: int, state: Array = None) -> Array:
        return self.eta


@dataclass(frozen=True)
class Linear(ShapeScale):
    """Go linearly from `start` to `end` over the first `steps` steps, and stay at `end`."""

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
    """Go from `start` to `end` over the first `steps` steps along half a cosine, and stay at `end`."""

    def __call__(self, step: int, state: Array = None) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1 + math.cos(math.pi * min(step / self.steps, 1.0)))


@dataclass(frozen=True)
class Piecewise(ShapeScale):
    """Change eta at given steps: `points` are pairs (first step, eta), in the order of their steps."""

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
    """An eta that depends on the state: a function of the state, or a vector indexed by it."""

    of: Callable[[Array], Array] | Sequence[float] | Array

    def __call__(self, step: int, state: Array = None) -> Array:
        if state is None:
            raise BadInput("a state-dependent eta needs the states, and none were given")
        return self.of(state) if callable(self.of) else like_array(self.of, state * 1.0)[state]


def _check_schedule(steps: int, *etas: float) -> None:
    if not 1 <= steps < 2**63:
        raise BadInput(f"the schedule of eta has {steps} steps; expected at least 1")
    for eta in etas:
        if not math.isfinite(eta):
            raise BadInput(f"the schedule of eta has {eta}; expected finite numbers")


_NAMED_SCALES: dict[str, type[Linear]] = {"linear": Linear, "cosine": Cosine}


def as_scale(eta: ShapeScale | Callable[..., Array] | type[ShapeScale] | float | str | Array) -> ShapeScale:
    """Return the shape-scale for a number, an array, a shape-scale or its class, a function, or text.

    Text is a number (`2`), `auto` (see `bsrs.auto`), `linear:START:END:STEPS`, `cosine:START:END:STEPS`,
    `piecewise:STEP=ETA,STEP=ETA,...`, or MODULE:NAME for your own: the form that configs and command lines use.
    A function takes (step, state), or one of them by that name.
    """
    if isinstance(eta, str):
        return as_scale(object_named(eta, "eta")) if is_own_scale(eta) else _parse_scale(eta)
    if isinstance(eta, (int, float)):
        if not math.isfinite(eta):
            raise BadInput(f"eta is {eta}; expected a finite number")
        return Constant(float(eta))
    if isinstance(eta, type):
        if not issubclass(eta, ShapeScale):
            raise BadInput(f"eta is the class {eta.__qualname__}; expected a subclass of ShapeScale")
        return eta()
    if isinstance(eta, ShapeScale):
        return eta
    if callable(eta):
        return _from_function(eta)
    if not hasattr(eta, "shape"):
        raise BadInput(f"eta is {str(eta)[:80]!r}; expected a number, a shape-scale or a function")
    return Constant(eta)


def check_eta(eta: float | str) -> None:
    """BadInput unless it can be an eta. Names of your own objects are looked up when they are needed."""
    if not is_own_scale(eta):
        as_scale(eta)


def is_own_scale(eta: object) -> bool:
    """Whether eta is text that names an object of the user's own."""
    return is_object_name(eta) and str(eta).partition(":")[0] not in ("auto", "piecewise", *_NAMED_SCALES)


def scale_setting(eta: Any) -> float | str:
    """Return eta as a config holds it: a number or text. Your own objects are named by import path and arguments."""
    if isinstance(eta, str):
        return eta
    if isinstance(eta, (int, float)):
        return float(eta)
    if type(eta) is Constant and isinstance(eta.eta, (int, float)):
        return float(eta.eta)
    for kind, cls in _NAMED_SCALES.items():
        if type(eta) is cls:
            return f"{kind}:{eta.start!r}:{eta.end!r}:{eta.steps}"
    if type(eta) is Piecewise:
        return "piecewise:" + ",".join(f"{step}={value!r}" for step, value in eta.points)
    as_scale(eta)  # raises BadInput if it is none
    return name_of(eta)


STATE = ("state", "states", "s", "obs", "observation", "observations")
STEP = ("step", "steps", "t")


def _from_function(function: Callable[..., Array]) -> ShapeScale:
    """The scale that a function of the step, of the state, or of both gives."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:  # some built-in functions have no signature
        return Custom(function)
    if takes(function, 2) and (not takes(function, 1) or set(names[1:2]) & set(STATE)):
        return Custom(function)
    if takes(function, 1) and names[0] in STATE:
        return PerState(function)
    if takes(function, 1) and names[0] in STEP:
        return Custom(function, depends_on_state=False)
    raise BadInput(f"the function given as eta takes ({', '.join(names)}); expected (step, state), (step) or (state)")


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments, as far as it shows."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        pass  # some built-in functions have no signature
    return True


def _parse_scale(text: str) -> ShapeScale:
    kind, _, rest = text.partition(":")
    if kind == "auto":
        from bsrs.auto import Movement  # here, because that module imports this one

        if rest:
            raise BadInput(f"eta {text!r} cannot be read; auto has no settings")
        return Movement()
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
            f"eta {text!r} cannot be read; expected a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS,"
            " piecewise:STEP=ETA,STEP=ETA or MODULE:NAME for your own"
        ) from None
    raise unknown("shape-scale", kind, ["auto", *_NAMED_SCALES, "piecewise"])


def like_array(array: Array, reference: Array) -> Array:
    """`array` as the kind of array that `reference` is, with its float type."""
    import numpy as np

    table = np.asarray(array)
    if hasattr(reference, "new_tensor"):  # PyTorch, which has no array namespace of its own
        return reference.new_tensor(table)
    if hasattr(reference, "__array_namespace__"):  # JAX, NumPy 2
        return reference.__array_namespace__().asarray(table, dtype=reference.dtype)
    return table
