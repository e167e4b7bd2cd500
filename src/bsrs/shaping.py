"""Bootstrapped reward shaping, the whole idea: read this file first.

Potential-based shaping (Ng, Harada and Russell, 1999) adds `gamma * phi(s') - phi(s)` to the reward and
leaves the optimal policy as it was. Bootstrapped shaping (BSRS) takes for `phi` what the agent has anyway,
its own current value estimate, times one number: `phi(s) = eta * V(s)`. So the shaped reward is

    r~ = r + eta * (gamma * V(s') - V(s))        and nothing after a true end: V(s') counts as zero there.

`shaped_reward` is that line, and the only place where it stands. Around it are small values:

- a *potential* says what takes the place of `V`: the estimate itself (`Bootstrapped`), a fixed function
  (`Static`), or noise redrawn over time (`RandomDynamic`);
- a *shape-scale* says what `eta` is: `Constant`, scheduled over training (`Linear`, `Cosine`, `Piecewise`),
  a function of the state (`PerState`), or one that learns (`bsrs.auto`, or a `ShapeScale` of your own).

`Shaping` joins one of each. A `Shaper` is shapings at work, one for each member of a population, with what their
scales remember. Every algorithm of the project shapes through it: DQN, TD3, SAC, the adapter to Stable-Baselines3
and sampled learning on tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bsrs.errors import BadInput
from bsrs.scales import Array as Array
from bsrs.scales import Constant as Constant
from bsrs.scales import Cosine as Cosine
from bsrs.scales import Custom as Custom
from bsrs.scales import Linear as Linear
from bsrs.scales import Memory as Memory
from bsrs.scales import PerState as PerState
from bsrs.scales import Piecewise as Piecewise
from bsrs.scales import Returned as Returned
from bsrs.scales import Seen as Seen
from bsrs.scales import ShapeScale as ShapeScale
from bsrs.scales import as_scale as as_scale
from bsrs.scales import like_array, look_up


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
    """`reward + gamma * phi(s') - phi(s)` with `phi = eta * V`, and phi(s') zero where the episode terminated.

    Works on Python floats and on NumPy, PyTorch and JAX arrays; the inputs are left as they are. `eta` and
    `gamma` broadcast: a number, one per transition, or one per member of a population. A time limit is not
    termination: leave `terminated` false there.

    Where the scale depends on the state, give `eta` at the state and `next_eta` at the next state, or policy
    invariance is lost.
    """
    _check_same_shape(reward=reward, value=value, next_value=next_value, terminated=terminated)
    next_phi = (eta if next_eta is None else next_eta) * next_value
    if terminated is not None:
        # A comparison, because `1 - terminated` is refused for booleans and would widen float32.
        next_phi = next_phi * (terminated == 0)
    return reward + gamma * next_phi - eta * value


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
        return self.of(state) if callable(self.of) else look_up(self.of, state, value)


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
            return look_up(self.scale * _noise(self.seed, epoch, self.n_states, "uniform"), state, value)
        features = (state * (0 * value.reshape(-1)[:1] + 1)).reshape(*value.shape, -1)  # in value's kind and float type
        direction = _noise(self.seed, epoch, features.shape[-1], "normal") / math.sqrt(features.shape[-1])
        projected = features @ like_array(direction, value)
        return self.scale * projected / (1 + abs(projected))


@functools.lru_cache(maxsize=4)
def _noise(seed: int, epoch: int, size: int, kind: str) -> Array:
    from bsrs.rng import stream  # here, because it brings NumPy

    draw = stream(seed, "random potential", epoch)
    return draw.uniform(-1.0, 1.0, size) if kind == "uniform" else draw.standard_normal(size)


# --------------------------------------------------------------------------------------------------------------
# At work.


@dataclass(frozen=True)
class Shaping:
    """A potential and its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | Callable[..., Array] | float | str | Array
    potential: Potential = field(default_factory=Bootstrapped)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """The scaled potential itself. V + phi estimates the value in the unshaped problem."""
        return Shaper([self]).phi(state, value, step)

    def __call__(self, reward: Array, value: Array, next_value: Array, **transition: Any) -> Array:
        """The shaped reward of a batch of transitions, as by `Shaper`, for scales that do not learn."""
        return Shaper([self])(reward, value, next_value, **transition)


class Shaper:
    """Shapings at work, one per member of a population, with what their scales remember.

    With one member, arrays are (B,) or of whatever shape the caller has; with P members, their first axis is P.
    """

    def __init__(self, shapings: Sequence[Shaping]) -> None:
        self._scales = [as_scale(shaping.eta) for shaping in shapings]
        self._potentials = [shaping.potential for shaping in shapings]
        first = self._potentials[0]
        self._bootstraps = all(type(p) is Bootstrapped for p in self._potentials)
        self._one_potential = self._bootstraps or all(p is first for p in self._potentials)
        self._memories = [scale.init() for scale in self._scales]
        self._batches = [0] * len(self._scales)
        self.learns = any(scale.update_every or scale.reviews_returns for scale in self._scales)
        """Whether any member's scale learns."""
        self.mixes = [scale.mixes for scale in self._scales]
        """Which members' scales say how much of V(s') is the online network's."""
        self.reviews_returns = [scale.reviews_returns for scale in self._scales]
        """Which members' scales want to see recent returns."""
        self.needs_value = self.learns or any(not isinstance(p, (Static, RandomDynamic)) for p in self._potentials)
        """Whether anything depends on the agent's estimate, or its networks can be left alone."""
        self.depends_on_state = any(scale.depends_on_state for scale in self._scales)
        self._alike = all(scale is self._scales[0] for scale in self._scales) and not self.learns
        constant = all(type(scale) is Constant for scale in self._scales)
        self._constants = [scale(0) for scale in self._scales] if constant else None
        self._stacked: dict[str, tuple[list[Array], Array]] = {}  # members' numbers, and the array made of them last
        self._last: Array = None  # eta of the last batch, where it depends on the state

    def is_active(self, step: int) -> bool:
        """Whether there is anything to add or to learn at `step`: at eta = 0 nothing need be computed."""
        if self.depends_on_state or self.learns:
            return True
        etas = self._constants or self._etas(step)
        return any(bool(eta) if isinstance(eta, (int, float)) else (eta != 0).any() for eta in etas)

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
        eta = self.eta(step, state, value)
        next_eta = self.eta(step, next_state, value) if self.depends_on_state else None
        self._last = eta if self.depends_on_state else None
        if not self._bootstraps:
            value, next_value = self.potential(state, value, step), self.potential(next_state, next_value, step)
        return shaped_reward(reward, value, next_value, eta=eta, next_eta=next_eta, gamma=gamma, terminated=terminated)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """The scaled potential itself."""
        return self.eta(step, state, value) * self.potential(state, value, step)

    def potential(self, state: Array, value: Array, step: int) -> Array:
        """The members' potentials, before they are scaled."""
        if self._one_potential:
            return self._potentials[0](state, value, step)
        return _stack([p(s, v, step) for p, s, v in zip(self._potentials, state, value, strict=True)])

    def eta(self, step: int, state: Array, like: Array) -> Array:
        """The members' etas, in a form that broadcasts against `like`, an array with one number per transition."""
        if len(self._scales) == 1 or self._alike:
            if self._constants is not None:
                return self._constants[0]
            return self._scales[0].at(self._memories[0], step, state)
        if self.depends_on_state:
            each = zip(self._scales, self._memories, state, like, strict=True)
            return _stack([scale.at(memory, step, s) + 0 * v for scale, memory, s, v in each])
        return self._per_member("eta", self._etas(step), like)

    def share(self, step: int, like: Array) -> Array:
        """How much of V(s') is the online network's, where a scale mixes; in a form that broadcasts."""
        shares = [share or 0.0 for share in self.shares(step)]
        return shares[0] if len(shares) == 1 else self._per_member("share", shares, like)

    def shares(self, step: int) -> list[float | None]:
        """The same as numbers, for the records; None for members whose scale does not mix."""
        each = zip(self._scales, self._memories, strict=True)
        return [scale.share(memory, step) if scale.mixes else None for scale, memory in each]

    def _per_member(self, name: str, numbers: list[Array], like: Array) -> Array:
        """One number for each member, to broadcast against `like`; made anew where one has changed."""
        last, array = self._stacked.get(name, ([], None))
        if numbers != last or type(array) is not type(like):
            array = like_array(numbers, like).reshape(-1, *[1] * (like.ndim - 1))
            self._stacked[name] = numbers, array
        return array

    def _etas(self, step: int) -> list[Array]:
        if self._constants is not None:
            return self._constants
        return [scale.at(memory, step, None) for scale, memory in zip(self._scales, self._memories, strict=True)]

    def in_force(self, step: int) -> list[float]:
        """Each member's eta at `step`, for the records; its mean over the last batch where it depends on the state."""
        if not self.depends_on_state:
            return [float(eta) for eta in self._etas(step)]
        if self._last is None:
            return [math.nan] * len(self._scales)
        each = self._last if len(self._scales) > 1 and not self._alike else [self._last] * len(self._scales)
        return [float(eta.mean()) if hasattr(eta, "mean") else float(eta) for eta in each]

    def update(
        self, reward: Array, value: Array, next_value: Array, *, terminated: Array, step: int, members: bool = True
    ) -> None:
        """Show a batch to the scales that learn. `members` says whether the arrays' first axis is the members'."""
        if not any(scale.update_every for scale in self._scales):
            return
        arrays = (reward, value, next_value, terminated)
        for member, scale in enumerate(self._scales):
            if not scale.update_every:
                continue
            self._batches[member] += 1
            if self._batches[member] % scale.update_every == 0:
                memory = self._memories[member]
                one = [array[member] for array in arrays] if members else arrays
                eta = float(scale.at(memory, step, None))
                self._memories[member] = scale.update(memory, Seen(step, eta, *one))

    def review(self, returned: Returned, member: int = 0) -> None:
        """Show recent returns to a member's scale."""
        self._memories[member] = self._scales[member].review(self._memories[member], returned)

    def state(self, member: int = 0) -> dict[str, Any]:
        """What a member's scale remembers, for a checkpoint: JSON can hold it."""
        return {"memory": self._memories[member], "batches": self._batches[member]}

    def load_state(self, state: dict[str, Any], member: int = 0) -> None:
        """Continue from where `state` was taken."""
        self._memories[member], self._batches[member] = dict(state["memory"]), int(state["batches"])


def _stack(arrays: Sequence[Array]) -> Array:
    """The members' arrays as one, of the kind that they are."""
    if hasattr(arrays[0], "new_tensor"):
        import torch

        return torch.stack(list(arrays))
    import numpy as np

    return getattr(arrays[0], "__array_namespace__", lambda: np)().stack(list(arrays))
