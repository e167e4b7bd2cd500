"""Bootstrapped reward shaping, the whole idea: read this file first.

Potential-based shaping (Ng, Harada and Russell, 1999) adds `gamma * phi(s') - phi(s)` to the reward and
leaves the optimal policy unchanged. Bootstrapped shaping (BSRS) uses as `phi` what the agent has already, its own
current value estimate, times one number: `phi(s) = eta * V(s)`. So the shaped reward is

    r~ = r + eta * (gamma * V(s') - V(s))        with V(s') = 0 in terminal states.

`shaped_reward` is that line, and the only place that computes it. Two small objects configure it:

- a *potential* is what eta scales: the value estimate (`Bootstrapped`), a fixed function (`Static`), or noise redrawn
  over time (`RandomDynamic`);
- a *shape-scale* is eta: `Constant`, scheduled over training (`Linear`, `Cosine`, `Piecewise`), a function of the state
  (`PerState`), or one that learns (`bsrs.auto`, or a `ShapeScale` of your own).

`Shaping` combines one of each. A `Shaper` applies shapings, one for each member of a population, and holds what their
scales remember. Everything in this project shapes through it: DQN, TD3, SAC, the adapters to other libraries and
sampled learning on tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bsrs.errors import BadInput
from bsrs.potentials import BOOTSTRAPPED, Bootstrapped, Potential, RandomDynamic, Static, as_potential
from bsrs.scales import (
    Array,
    Constant,
    Cosine,
    Custom,
    Linear,
    Memory,
    PerState,
    Piecewise,
    Seen,
    ShapeScale,
    as_scale,
    like_array,
)

__all__ = [
    "BOOTSTRAPPED", "Array", "Bootstrapped", "Constant", "Cosine", "Custom", "Linear", "Memory", "PerState",
    "Piecewise", "Potential", "RandomDynamic", "Seen", "ShapeScale", "Shaper", "Shaping", "Static", "as_potential",
    "as_scale", "shaped_reward",
]  # fmt: skip


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
    """Return `reward + gamma * phi(s') - phi(s)` with `phi = eta * V`, and phi(s') = 0 where the episode terminated.

    Works on Python floats and on NumPy, PyTorch and JAX arrays, and does not modify its inputs. `eta` and `gamma`
    broadcast: pass a number, one per transition, or one per member of a population. A time limit is not termination:
    leave `terminated` false there.

    If eta depends on the state, pass `eta` at the state and `next_eta` at the next state. Otherwise policy invariance
    is lost.
    """
    _check_same_shape(reward=reward, value=value, next_value=next_value, terminated=terminated)
    next_phi = (eta if next_eta is None else next_eta) * next_value
    if terminated is not None:
        # A comparison, because `1 - terminated` fails for booleans and would widen float32.
        next_phi = next_phi * (terminated == 0)
    return reward + gamma * next_phi - eta * value


def _check_same_shape(**arrays: Array) -> None:
    """(B,) and (B, 1) would broadcast to (B, B) without an error: the classic bug of TD targets."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if getattr(array, "shape", ())}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise BadInput(f"shaped_reward got arrays of different shapes ({found}); expected one shape for all")


@dataclass(frozen=True)
class Shaping:
    """Combine a potential with its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | Callable[..., Array] | float | str | Array
    potential: Potential | Callable[..., Array] | str = field(default_factory=Bootstrapped)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """Return the scaled potential. V + phi estimates the value in the unshaped problem."""
        member = _Member(self)
        return member.eta(step, state, value) * member.potential(state, value, step)

    def __call__(self, reward: Array, value: Array, next_value: Array, **transition: Any) -> Array:
        """Return the shaped reward of a batch, for scales that do not learn. Takes the arguments of `Shaper`."""
        return Shaper([self])(reward, value, next_value, **transition)


class _Member:
    """The shaping of one agent: a scale, what it remembers, and a potential. Every array is (B,)."""

    def __init__(self, shaping: Shaping, online_share: float = 1.0) -> None:
        self.scale, self.potential = as_scale(shaping.eta), as_potential(shaping.potential)
        self.memory, self.batches = self.scale.init(), 0
        self.online_share = online_share
        self.last_eta: Array = math.nan  # of the last batch, if it depends on the state

    def shaped_reward(
        self, reward: Array, value: Array, next_value: Array, gamma: Array, terminated: Array | None,
        bootstrap: Array | None, state: Array, next_state: Array, *, step: int,
    ) -> Array:  # fmt: skip
        share = self.scale.share(self.memory, step) if self.scale.mixes else self.online_share
        if bootstrap is not None and share != 1:
            next_value = share * next_value + (1 - share) * bootstrap if share else bootstrap
        eta = next_eta = self.eta(step, state, value)
        if self.scale.depends_on_state:
            next_eta, self.last_eta = self.eta(step, next_state, value), eta
        phi, next_phi = self.potential(state, value, step), self.potential(next_state, next_value, step)
        reward = self.scale.reward_factor(self.memory, step) * reward
        return shaped_reward(reward, phi, next_phi, eta=eta, next_eta=next_eta, gamma=gamma, terminated=terminated)

    def eta(self, step: int, state: Array = None, like: Array = None) -> Array:
        """Return eta: a number or, if it depends on the state, one number per state in an array such as `like`."""
        eta = self.scale.at(self.memory, step, state)
        return _one_per_state(eta, like) if self.scale.depends_on_state else eta

    def metrics(self, step: int) -> dict[str, float]:
        eta = self.last_eta if self.scale.depends_on_state else self.eta(step)
        return {"eta": _mean(eta), **self.scale.report(self.memory)}

    def update(self, step: int, *batch: Array) -> None:
        self.batches += 1
        if self.batches % self.scale.update_every == 0:
            obs = batch[4] if self.scale.depends_on_state else None
            eta = _mean(self.scale.at(self.memory, step, obs))
            self.memory = self.scale.update(self.memory, Seen(step, eta, *batch))


class Shaper:
    """Apply shapings, one per member of a population, and hold what their scales remember.

    With one member, arrays have any shape, usually (B,). With P members, their first axis is P.
    """

    def __init__(self, shapings: Sequence[Shaping], *, split: bool = False, members: bool = False) -> None:
        """Create a shaper.

        Args:
            shapings: One shaping per member.
            split: Take V(s') from the target network, for scales that do not mix the two networks themselves.
            members: Treat the first axis of the arrays as members even if there is only one member. Your own scales
                and potentials are then called once per member, with arrays (B, ...).
        """
        self._members = [_Member(shaping, 0.0 if split else 1.0) for shaping in shapings]
        self._has_axis = members or len(shapings) > 1
        self.scales = scales = [member.scale for member in self._members]
        potentials = [member.potential for member in self._members]
        self.probes = [scale.probes for scale in scales]
        """Number of probe observations that each member's scale needs."""
        self.learns = any(scale.update_every for scale in scales)
        """Whether any member's scale learns from batches."""
        self.has_memory = self.learns or any(self.probes)
        """Whether any member's scale has a memory that changes during training."""
        self.mixes = any(scale.mixes for scale in scales)
        """Whether any member's scale mixes V(s') of the online and the target network itself."""
        self.needs_value = self.learns or not all(isinstance(p, (Static, RandomDynamic)) for p in potentials)
        """Whether the agent's value estimate is needed at all."""
        self.depends_on_state = any(scale.depends_on_state for scale in scales)
        """Whether any member's eta depends on the state."""
        bootstrapped = all(type(p) is Bootstrapped for p in potentials)
        self.is_plain = bootstrapped and not self.learns and not self.depends_on_state
        """Whether shaping is V times one number per member, as the kernels compute it."""

    def __call__(
        self,
        reward: Array,
        value: Array,
        next_value: Array,
        *,
        gamma: Array,
        terminated: Array | None = None,
        bootstrap: Array | None = None,
        state: Array = None,
        next_state: Array = None,
        step: int = 0,
    ) -> Array:
        """Return the shaped reward of a batch of transitions.

        `bootstrap` is the target network's V(s') and `next_value` the online network's. The states are needed only by
        scales and potentials that depend on them.
        """
        transition = (reward, value, next_value, gamma, terminated, bootstrap, state, next_state)
        shaped = [member.shaped_reward(*own, step=step) for member, own in self._each(*transition)]
        return _stack(shaped) if self._has_axis else shaped[0]

    def update(
        self, reward: Array, value: Array, next_value: Array, *, terminated: Array, step: int, obs: Array = None,
        next_obs: Array = None,
    ) -> None:  # fmt: skip
        """Pass a batch to the scales that learn."""
        for member, own in self._each(reward, value, next_value, terminated, obs, next_obs):
            if member.scale.update_every:
                member.update(step, *own)

    def _each(self, *arrays: Array) -> Iterator[tuple[_Member, list[Array]]]:
        """Yield each member with its part of the arrays; numbers are the same for all."""
        for p, member in enumerate(self._members):
            yield member, [array[p] if self._has_axis and getattr(array, "shape", None) else array for array in arrays]

    def is_active(self, step: int) -> bool:
        """Return whether there is anything to add or to learn at `step`. At eta = 0 there is not."""
        if self.depends_on_state or self.has_memory:
            return True
        return any((eta != 0).any() if hasattr(eta, "any") else eta != 0 for eta in self.etas(step))

    def etas(self, step: int) -> list[Array]:
        """Return each member's eta, if it does not depend on the state."""
        return [m.scale.at(m.memory, step) for m in self._members]

    def shares(self, step: int) -> list[float]:
        """Return the share of the online network in V(s'), for each member."""
        return [m.scale.share(m.memory, step) if m.scale.mixes else m.online_share for m in self._members]

    def reward_factors(self, step: int) -> list[float]:
        """Return the factor that each member's rewards are multiplied by."""
        return [m.scale.reward_factor(m.memory, step) for m in self._members]

    def in_force(self, step: int) -> list[dict[str, float]]:
        """Return each member's eta, or its mean over the last batch, and what else its scale reports."""
        return [member.metrics(step) for member in self._members]

    def look(self, value: Array, member: int = 0) -> None:
        """Pass V of the probe observations to a member's scale."""
        own = self._members[member]
        own.memory = own.scale.look(own.memory, value)

    def forget(self, member: int = 0) -> None:
        """Notify a member's scale that its probe observations are replaced."""
        own = self._members[member]
        own.memory = own.scale.forget(own.memory)

    def state(self, member: int = 0) -> dict[str, Any]:
        """Return what a member's scale remembers, as JSON-compatible data for a checkpoint."""
        return {"memory": _as_lists(self._members[member].memory), "batches": self._members[member].batches}

    def load_state(self, state: dict[str, Any], member: int = 0) -> None:
        """Restore what `state` returned."""
        own = self._members[member]
        own.memory, own.batches = dict(state["memory"]), int(state["batches"])


# --------------------------------------------------------------------------------------------------------------
# Arrays of any kind.


def _mean(eta: Array) -> float:
    return float(eta.mean() if hasattr(eta, "mean") else eta)


def _one_per_state(eta: Array, like: Array) -> Array:
    """Return what a scale returned for a batch of states in an array such as `like`; BadInput if the shape is wrong."""
    shape = getattr(eta, "shape", ())
    if shape and tuple(shape) != tuple(like.shape):  # (B, 1) and (B,) would broadcast to (B, B)
        found, expected = tuple(shape), tuple(like.shape)
        raise BadInput(f"eta(s) came out with shape {found}; expected one number per state, shape {expected}")
    return eta if type(eta) is type(like) or not shape else like_array(eta, like)


def _as_lists(memory: Any) -> Any:
    """Return what a scale remembers with lists in place of arrays."""
    if isinstance(memory, dict):
        return {name: _as_lists(part) for name, part in memory.items()}
    return memory.tolist() if hasattr(memory, "tolist") else memory


def _stack(arrays: Sequence[Array]) -> Array:
    """Return the members' arrays as one of the same kind."""
    if hasattr(arrays[0], "new_tensor"):
        import torch

        return torch.stack(list(arrays))
    import numpy as np

    return getattr(arrays[0], "__array_namespace__", lambda: np)().stack(list(arrays))
