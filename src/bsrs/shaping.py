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
# At work.


@dataclass(frozen=True)
class Shaping:
    """A potential and its scale: `phi(s) = eta * potential(s)`."""

    eta: ShapeScale | Callable[..., Array] | float | str | Array
    potential: Potential | Callable[..., Array] | str = field(default_factory=Bootstrapped)

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

    def __init__(self, shapings: Sequence[Shaping], *, split: bool = False, members: bool = False) -> None:
        """`split` takes V(s') from the target network, for every scale that does not mix the two networks itself.

        With `members` the arrays' first axis is the members' also where there is one: scales and potentials of your own
        are asked for each member by itself, with arrays (B, ...).
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
        """How many observations each member's scale wants to see V of."""
        self.has_memory = self.learns or any(self.probes)
        """Whether any member's scale changes with what it is shown."""
        self._unmixed = 0.0 if split else 1.0
        self.mixes = any(scale.mixes for scale in self._scales)
        """Whether any member's scale mixes the online and the target network's V(s') itself."""
        self.scales_reward = any(type(s).reward_factor is not ShapeScale.reward_factor for s in self._scales)
        """Whether any member's scale multiplies the env's reward."""
        self.needs_online_value = self.mixes or not split
        """Whether anything depends on the online network's V(s')."""
        self.needs_value = self.learns or any(not isinstance(p, (Static, RandomDynamic)) for p in self._potentials)
        """Whether anything depends on the agent's estimate, or its networks can be left alone."""
        self.is_plain = self._bootstraps and not self.learns and not any(s.depends_on_state for s in self._scales)
        """Whether shaping is V times one number per member: nothing of the user's sees batches or states."""
        self.depends_on_state = any(scale.depends_on_state for scale in self._scales)
        self._alike = all(scale is self._scales[0] for scale in self._scales) and not self.has_memory
        constant = all(type(scale) is Constant for scale in self._scales)
        self._constants = [scale(0) for scale in self._scales] if constant else None
        self._stacked: dict[str, tuple[list[Array], Array]] = {}  # members' numbers, and the array made of them last
        self._last: Array = None  # eta of the last batch, where it depends on the state

    def is_active(self, step: int) -> bool:
        """Whether there is anything to add or to learn at `step`: at eta = 0 nothing need be computed."""
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

        `bootstrap` is the target network's V(s'), for agents that have one: scales that mix take it together with
        `next_value`, the online network's. The states are needed only by what depends on them.
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
        """The scaled potential itself."""
        return self.eta(step, state, value) * self.potential(state, value, step)

    def potential(self, state: Array, value: Array, step: int) -> Array:
        """The members' potentials, before they are scaled."""
        if self._bootstraps:
            return value
        if not self._by_member:
            return self._potentials[0](state, value, step)
        return _stack([p(s, v, step) for p, s, v in zip(self._potentials, state, value, strict=True)])

    def eta(self, step: int, state: Array, like: Array) -> Array:
        """The members' etas, in a form that broadcasts against `like`, an array with one number per transition."""
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
        """V(s') of the potential: the online network's, the target network's `bootstrap`, or a mixture of them."""
        shares = self.shares(step)
        if len(set(shares)) == 1 and shares[0] in (0.0, 1.0):
            return online if shares[0] else bootstrap
        share = shares[0] if len(shares) == 1 else self._per_member("share", shares, online)
        return share * online + (1 - share) * bootstrap

    def shares(self, step: int) -> list[float]:
        """How much of V(s') is the online network's, for each member."""
        each = zip(self._scales, self._memories, strict=True)
        return [scale.share(memory, step) if scale.mixes else self._unmixed for scale, memory in each]

    def reward_factors(self, step: int) -> list[float]:
        """What each member's rewards are multiplied by."""
        return [scale.reward_factor(memory, step) for scale, memory in zip(self._scales, self._memories, strict=True)]

    def _per_member(self, name: str, numbers: list[Array], like: Array) -> Array:
        """One number for each member, to broadcast against `like`; made again where one has changed."""
        last, array = self._stacked.get(name, ([], None))
        if numbers != last or type(array) is not type(like):
            array = like_array(numbers, like).reshape(-1, *[1] * (like.ndim - 1))
            self._stacked[name] = numbers, array
        return array

    def etas(self, step: int) -> list[Array]:
        """Each member's eta, where it does not depend on the state."""
        if self._constants is not None:
            return self._constants
        return [scale.at(memory, step, None) for scale, memory in zip(self._scales, self._memories, strict=True)]

    def in_force(self, step: int) -> list[dict[str, float]]:
        """Each member's eta at `step` and what else its scale reports, for the records."""
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
        """Show a batch to the scales that learn. `members` says whether the arrays' first axis is the members'."""
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
        """Show V of the probe observations to a member's scale."""
        self._memories[member] = self._scales[member].look(self._memories[member], value)

    def forget(self, member: int = 0) -> None:
        """Tell a member's scale that its probe observations are replaced."""
        self._memories[member] = self._scales[member].forget(self._memories[member])

    def state(self, member: int = 0) -> dict[str, Any]:
        """What a member's scale remembers, for a checkpoint: JSON can hold it."""
        return {"memory": _as_plain(self._memories[member]), "batches": self._batches[member]}

    def load_state(self, state: dict[str, Any], member: int = 0) -> None:
        """Continue from where `state` was taken."""
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
