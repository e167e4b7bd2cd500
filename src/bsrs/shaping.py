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

`Shaping` combines one of each. A `Shaper` applies it, and holds what its scale remembers. Everything in this project
shapes through it: DQN, TD3, SAC, the adapters to other libraries and sampled learning on tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
    arrays = {"reward": reward, "value": value, "next_value": next_value, "terminated": terminated}
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if getattr(array, "shape", ())}
    if len(set(shapes.values())) > 1:  # (B,) and (B, 1) would broadcast to (B, B): the classic bug of TD targets
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise BadInput(f"shaped_reward got arrays of different shapes ({found}); expected one shape for all")
    next_phi = (eta if next_eta is None else next_eta) * next_value
    if terminated is not None:
        # A comparison, because `1 - terminated` fails for booleans and would widen float32.
        next_phi = next_phi * (terminated == 0)
    return reward + gamma * next_phi - eta * value


@dataclass(frozen=True)
class Shaping:
    """Combine a potential with its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | Callable[..., Array] | float | str | Array
    potential: Potential | Callable[..., Array] | str = field(default_factory=Bootstrapped)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """Return the scaled potential. V + phi estimates the value in the unshaped problem."""
        shaper = Shaper(self)
        return shaper.coefficients(step, state, value)[0] * shaper.potential(state, value, step)

    def __call__(self, reward: Array, value: Array, next_value: Array, **transition: Any) -> Array:
        """Return the shaped reward of a batch, for scales that do not learn. Takes the arguments of `Shaper`."""
        return Shaper(self)(reward, value, next_value, **transition)


class Shaper:
    """Apply a shaping, and hold what its scale remembers. Arrays have any shape, usually (B,)."""

    def __init__(self, shaping: Shaping, *, split: bool = False) -> None:
        """With `split`, V(s') is the target network's, for scales that do not mix the two networks themselves."""
        self.scale, self.potential = as_scale(shaping.eta), as_potential(shaping.potential)
        self.memory, self.batches = self.scale.init(), 0
        self.learns = self.scale.update_every > 0
        """Whether the scale learns from batches."""
        self.has_memory = self.learns or self.scale.probes > 0
        """Whether the scale has a memory that changes during training."""
        self.needs_target = self.scale.mixes or self.scale.probes > 0
        """Whether the scale needs a target network."""
        self.needs_value = self.learns or not isinstance(self.potential, (Static, RandomDynamic))
        """Whether the agent's value estimate is needed at all."""
        self.is_bootstrapped = type(self.potential) is Bootstrapped
        self.is_plain = self.is_bootstrapped and not self.learns and not self.scale.depends_on_state
        """Whether shaping is V times one number, as the kernels compute it."""
        self._online_share = 0.0 if split else 1.0
        self._last_eta: Array = math.nan  # of the last batch, if it depends on the state

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
        eta, share, factor = self.coefficients(step, state, value)
        next_eta = None
        if self.scale.depends_on_state:
            next_eta, self._last_eta = self.coefficients(step, next_state, value)[0], eta
        if bootstrap is not None and share != 1:
            next_value = share * next_value + (1 - share) * bootstrap if share else bootstrap
        if not self.is_bootstrapped:
            ends = (state, value), (next_state, next_value)
            value, next_value = (_one_per_state("potential", self.potential(*end, step), value) for end in ends)
        reward = reward if factor == 1 else factor * reward
        return shaped_reward(reward, value, next_value, eta=eta, next_eta=next_eta, gamma=gamma, terminated=terminated)

    def coefficients(self, step: int, state: Array = None, value: Array = None) -> tuple[Array, float, float]:
        """Return eta, the online network's share of V(s'), and the factor that rewards are multiplied by.

        If eta depends on the state, it is an array such as `value`, with one number per state.
        """
        eta, share, factor = self.scale.at(self.memory, step, state), self._online_share, 1.0
        if self.scale.depends_on_state:
            eta = _one_per_state("eta", eta, value)
        if self.scale.mixes:
            share, factor = self.scale.mix(self.memory, step)
        return eta, share, factor

    def is_active(self, step: int) -> bool:
        """Return whether there is anything to add or to learn at `step`. At eta = 0 there is not."""
        if self.scale.depends_on_state or self.has_memory:
            return True
        eta = self.scale.at(self.memory, step)
        return bool((eta != 0).any() if hasattr(eta, "any") else eta != 0)

    def in_force(self, step: int) -> dict[str, float]:
        """Return eta, or its mean over the last batch, and what else the scale reports."""
        eta = self._last_eta if self.scale.depends_on_state else self.scale.at(self.memory, step)
        return {"eta": _mean(eta), **self.scale.report(self.memory)}

    def update(
        self, reward: Array, value: Array, next_value: Array, *, terminated: Array, step: int, obs: Array = None,
        next_obs: Array = None,
    ) -> None:  # fmt: skip
        """Pass a batch to a scale that learns."""
        self.batches += 1
        if self.batches % self.scale.update_every == 0:
            eta = _mean(self.scale.at(self.memory, step, obs))
            seen = Seen(step, eta, reward, value, next_value, terminated, obs, next_obs)
            self.memory = self.scale.update(self.memory, seen)

    def look(self, value: Array) -> None:
        """Pass V of the probe observations to the scale."""
        self.memory = self.scale.look(self.memory, value)

    def forget(self) -> None:
        """Notify the scale that the probe observations are replaced."""
        self.memory = self.scale.forget(self.memory)

    def state(self) -> dict[str, Any]:
        """Return what the scale remembers, as JSON-compatible data for a checkpoint."""
        return {"memory": _as_lists(self.memory), "batches": self.batches}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.memory, self.batches = dict(state["memory"]), int(state["batches"])


# --------------------------------------------------------------------------------------------------------------
# Arrays of any kind.


def _mean(eta: Array) -> float:
    return float(eta.mean() if hasattr(eta, "mean") else eta)


def _one_per_state(name: str, array: Array, like: Array) -> Array:
    """Return an array for a batch of states as one such as `like`; BadInput if the shape is wrong."""
    shape, expected = getattr(array, "shape", ()), getattr(like, "shape", ())
    if shape and tuple(shape) != tuple(expected):  # (B, 1) and (B,) would broadcast to (B, B)
        raise BadInput(
            f"{name}(s) came out with shape {tuple(shape)}; expected one number per state, shape {tuple(expected)}"
        )
    return array if type(array) is type(like) or not shape else like_array(array, like)


def _as_lists(memory: Any) -> Any:
    """Return what a scale remembers with lists in place of arrays."""
    if isinstance(memory, dict):
        return {name: _as_lists(part) for name, part in memory.items()}
    return memory.tolist() if hasattr(memory, "tolist") else memory
