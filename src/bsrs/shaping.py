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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bsrs.errors import BadInput
from bsrs.potentials import BOOTSTRAPPED as BOOTSTRAPPED
from bsrs.potentials import Bootstrapped as Bootstrapped
from bsrs.potentials import Potential as Potential
from bsrs.potentials import RandomDynamic as RandomDynamic
from bsrs.potentials import Static as Static
from bsrs.potentials import as_potential as as_potential
from bsrs.scales import Array as Array
from bsrs.scales import Constant as Constant
from bsrs.scales import Cosine as Cosine
from bsrs.scales import Custom as Custom
from bsrs.scales import Linear as Linear
from bsrs.scales import Memory as Memory
from bsrs.scales import PerState as PerState
from bsrs.scales import Piecewise as Piecewise
from bsrs.scales import Seen as Seen
from bsrs.scales import ShapeScale as ShapeScale
from bsrs.scales import as_scale as as_scale
from bsrs.scales import like_array


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
# At work.


@dataclass(frozen=True)
class Shaping:
    """Combine a potential with its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | Callable[..., Array] | float | str | Array
    potential: Potential | Callable[..., Array] | str = field(default_factory=Bootstrapped)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """Return the scaled potential. V + phi estimates the value in the unshaped problem."""
        return Shaper([self]).phi(state, value, step)

    def __call__(self, reward: Array, value: Array, next_value: Array, **transition: Any) -> Array:
        """Return the shaped reward of a batch, for scales that do not learn. Takes the arguments of `Shaper`."""
        return Shaper([self])(reward, value, next_value, **transition)


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
        self._by_member = members or len(shapings) > 1
        made = {id(shaping): (as_scale(shaping.eta), as_potential(shaping.potential)) for shaping in shapings}
        self._scales = [made[id(shaping)][0] for shaping in shapings]
        self._potentials = [made[id(shaping)][1] for shaping in shapings]
        self._bootstraps = all(type(p) is Bootstrapped for p in self._potentials)
        self._memories = [scale.init() for scale in self._scales]
        self._batches = [0] * len(self._scales)
        self.learns = any(scale.update_every for scale in self._scales)
        """Whether any member's scale learns from batches."""
        self.probes = [scale.probes for scale in self._scales]
        """Number of probe observations that each member's scale needs."""
        self.has_memory = self.learns or any(self.probes)
        """Whether any member's scale has a memory that changes during training."""
        self._unmixed = 0.0 if split else 1.0
        self.mixes = any(scale.mixes for scale in self._scales)
        """Whether any member's scale mixes V(s') of the online and the target network itself."""
        self.scales_reward = any(type(s).reward_factor is not ShapeScale.reward_factor for s in self._scales)
        """Whether any member's scale multiplies the env's reward."""
        self.needs_online_value = self.mixes or not split
        """Whether V(s') of the online network is needed."""
        self.needs_value = self.learns or any(not isinstance(p, (Static, RandomDynamic)) for p in self._potentials)
        """Whether the agent's value estimate is needed at all."""
        self.is_plain = self._bootstraps and not self.learns and not any(s.depends_on_state for s in self._scales)
        """Whether shaping is V times one number per member, so that no user code sees batches or states."""
        self.depends_on_state = any(scale.depends_on_state for scale in self._scales)
        self._alike = all(scale is self._scales[0] for scale in self._scales) and not self.has_memory
        constant = all(type(scale) is Constant for scale in self._scales)
        self._constants = [scale(0) for scale in self._scales] if constant else None
        self._stacked: dict[str, tuple[list[Array], Array]] = {}  # members' numbers, and the array made of them last
        self._last: Array = None  # eta of the last batch, where it depends on the state

    def is_active(self, step: int) -> bool:
        """Return whether there is anything to add or to learn at `step`. At eta = 0 there is not."""
        if self.depends_on_state or self.has_memory:
            return True
        etas = self._constants or self.etas(step)
        return any(bool(eta) if isinstance(eta, (int, float)) else (eta != 0).any() for eta in etas)

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

        `bootstrap` is V(s') of the target network and `next_value` that of the online network; scales that mix use
        both. `state` and `next_state` are needed only by scales and potentials that depend on the state.
        """
        if bootstrap is not None and (self.mixes or not self.needs_online_value):
            next_value = self.mix(bootstrap, next_value, step)
        if self.scales_reward:
            reward = reward * self._per_member("reward", self.reward_factors(step), value)
        eta = self.eta(step, state, value)
        next_eta = self.eta(step, next_state, value) if self.depends_on_state else None
        self._last = eta if self.depends_on_state else None
        if not self._bootstraps:
            value, next_value = self.potential(state, value, step), self.potential(next_state, next_value, step)
        return shaped_reward(reward, value, next_value, eta=eta, next_eta=next_eta, gamma=gamma, terminated=terminated)

    def phi(self, state: Array, value: Array, step: int = 0) -> Array:
        """Return the scaled potential."""
        return self.eta(step, state, value) * self.potential(state, value, step)

    def potential(self, state: Array, value: Array, step: int) -> Array:
        """Return the members' potentials before scaling."""
        if self._bootstraps:
            return value
        if not self._by_member:
            return self._potentials[0](state, value, step)
        return _stack([p(s, v, step) for p, s, v in zip(self._potentials, state, value, strict=True)])

    def eta(self, step: int, state: Array, like: Array) -> Array:
        """Return the members' etas in a form that broadcasts against `like`, which has one number per transition."""
        if self.depends_on_state and self._by_member:
            each = zip(self._scales, self._memories, state, like, strict=True)
            return _stack([_per_transition(scale.at(m, step, s), v) + 0 * v for scale, m, s, v in each])
        if len(self._scales) > 1 and not self._alike:
            return self._per_member("eta", self.etas(step), like)
        if self._constants is not None:
            return self._constants[0]
        eta = self._scales[0].at(self._memories[0], step, state)
        return _per_transition(eta, like) if self.depends_on_state else eta

    def mix(self, bootstrap: Array, online: Array, step: int) -> Array:
        """Return V(s') of the potential: from the online network, from the target network, or a mixture."""
        shares = self.shares(step)
        if len(set(shares)) == 1 and shares[0] in (0.0, 1.0):
            return online if shares[0] else bootstrap
        share = shares[0] if len(shares) == 1 else self._per_member("share", shares, online)
        return share * online + (1 - share) * bootstrap

    def shares(self, step: int) -> list[float]:
        """Return the share of the online network in V(s'), for each member."""
        each = zip(self._scales, self._memories, strict=True)
        return [scale.share(memory, step) if scale.mixes else self._unmixed for scale, memory in each]

    def reward_factors(self, step: int) -> list[float]:
        """Return the factor that each member's rewards are multiplied by."""
        return [scale.reward_factor(memory, step) for scale, memory in zip(self._scales, self._memories, strict=True)]

    def _per_member(self, name: str, numbers: list[Array], like: Array) -> Array:
        """One number for each member, to broadcast against `like`; made again where one has changed."""
        last, array = self._stacked.get(name, ([], None))
        if numbers != last or type(array) is not type(like):
            array = like_array(numbers, like).reshape(-1, *[1] * (like.ndim - 1))
            self._stacked[name] = numbers, array
        return array

    def etas(self, step: int) -> list[Array]:
        """Return each member's eta, if it does not depend on the state."""
        if self._constants is not None:
            return self._constants
        return [scale.at(memory, step, None) for scale, memory in zip(self._scales, self._memories, strict=True)]

    def in_force(self, step: int) -> list[dict[str, float]]:
        """Return each member's eta at `step`, and what else its scale reports, for the records."""
        each = zip(self._scales, self._memories, self._mean_etas(step), strict=True)
        return [{"eta": eta, **scale.report(memory)} for scale, memory, eta in each]

    def _mean_etas(self, step: int) -> list[float]:
        """Where eta depends on the state, its mean over the last batch."""
        if not self.depends_on_state:
            return [float(eta) for eta in self.etas(step)]
        if self._last is None:
            return [math.nan] * len(self._scales)
        each = self._last if self._by_member else [self._last]
        return [float(eta.mean()) if hasattr(eta, "mean") else float(eta) for eta in each]

    def update(
        self,
        reward: Array,
        value: Array,
        next_value: Array,
        *,
        terminated: Array,
        step: int,
        obs: Array = None,
        next_obs: Array = None,
        members: bool = True,
    ) -> None:
        """Pass a batch to the scales that learn. `members`: the first axis of the arrays is the members'."""
        arrays = (reward, value, next_value, terminated, obs, next_obs)
        for member, scale in enumerate(self._scales):
            if not scale.update_every:
                continue
            self._batches[member] += 1
            if self._batches[member] % scale.update_every == 0:
                memory = self._memories[member]
                one = [array[member] if members and array is not None else array for array in arrays]
                eta = scale.at(memory, step, one[4] if scale.depends_on_state else None)
                seen = Seen(step, float(eta.mean() if hasattr(eta, "mean") else eta), *one)
                self._memories[member] = scale.update(memory, seen)

    def look(self, value: Array, member: int = 0) -> None:
        """Pass V of the probe observations to a member's scale."""
        self._memories[member] = self._scales[member].look(self._memories[member], value)

    def forget(self, member: int = 0) -> None:
        """Notify a member's scale that its probe observations are replaced."""
        self._memories[member] = self._scales[member].forget(self._memories[member])

    def state(self, member: int = 0) -> dict[str, Any]:
        """Return what a member's scale remembers, as JSON-compatible data for a checkpoint."""
        return {"memory": _as_plain(self._memories[member]), "batches": self._batches[member]}

    def load_state(self, state: dict[str, Any], member: int = 0) -> None:
        """Restore what `state` returned."""
        self._memories[member], self._batches[member] = dict(state["memory"]), int(state["batches"])


def _per_transition(eta: Array, like: Array) -> Array:
    """What a scale returned for a batch of states, as one number per transition; BadInput if it is none."""
    shape = getattr(eta, "shape", ())
    if shape and tuple(shape) != tuple(like.shape):  # (B, 1) against (B,) would broadcast to (B, B) without a word
        found, expected = tuple(shape), tuple(like.shape)
        raise BadInput(f"eta(s) came out with shape {found}; expected one number per state, shape {expected}")
    return eta if type(eta) is type(like) or not shape else like_array(eta, like)


def _as_plain(memory: Any) -> Any:
    """Return what a scale remembers with lists in place of arrays."""
    if isinstance(memory, dict):
        return {name: _as_plain(part) for name, part in memory.items()}
    return memory.tolist() if hasattr(memory, "tolist") else memory


def _stack(arrays: Sequence[Array]) -> Array:
    """The members' arrays as one, of the kind that they are."""
    if hasattr(arrays[0], "new_tensor"):
        import torch

        return torch.stack(list(arrays))
    import numpy as np

    return getattr(arrays[0], "__array_namespace__", lambda: np)().stack(list(arrays))
