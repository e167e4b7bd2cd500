"""What off-policy and on-policy shaping share: a model's settings, its current V, the shaped reward of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from bsrs.errors import BadInput, unknown
from bsrs.rng import stream
from bsrs.sb3.values import Observations, reader_for
from bsrs.shaping import Array, Bootstrapped, PerState, RandomDynamic, Shaping, Static, as_scale

# (model, a batch of observations) -> one value per observation
ValueFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Settings:
    """What `shape` was asked for."""

    shaping: Shaping
    network: str = "online"
    terminal: str = "zero"
    value_fn: ValueFunction | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.terminal not in ("zero", "keep"):
            raise unknown("terminal", self.terminal, ["zero", "keep"])

    @property
    def needs_value(self) -> bool:
        """Whether the potential depends on the agent's estimate, or the networks can be left alone."""
        return not isinstance(self.shaping.potential, (Static, RandomDynamic))


class Transitions(NamedTuple):
    """A batch of transitions with V at both ends; all but the observations are of shape (B,)."""

    obs: Observations
    next_obs: Observations
    reward: torch.Tensor
    value: torch.Tensor
    next_value: torch.Tensor
    terminated: torch.Tensor
    gamma: torch.Tensor | float


class Shaped(NamedTuple):
    """What became of a batch; all but the observations are of shape (B,) or (B, 1)."""

    obs: Observations
    value: torch.Tensor
    reward: torch.Tensor
    shaped: torch.Tensor


class Shaper:
    """Shapes the rewards of one model."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        random = isinstance(settings.shaping.potential, RandomDynamic)
        if random and isinstance(model.observation_space, spaces.Dict):
            raise BadInput("a random potential needs observations in one array; this model's are in a dict")
        if settings.value_fn is None and settings.needs_value:
            self._read = reader_for(model, settings.network)
        self._scale = as_scale(settings.shaping.eta)
        bootstrapped = isinstance(settings.shaping.potential, Bootstrapped) and settings.value_fn is None
        self.plain = bootstrapped and self.eta() is not None
        """Whether V and one number are all there is: no function of the user's sees the tensors."""
        # A continued run draws on, it does not repeat the draws of its beginning.
        self._rng = stream(settings.seed, "sb3 potential", model.num_timesteps)
        self.last: Shaped | None = None  # for the logger

    def eta(self) -> float | None:
        """The shape-scale now, where it is one number; None where it depends on the state."""
        eta = None if isinstance(self._scale, PerState) else self._scale(self.model.num_timesteps)
        return eta if isinstance(eta, (int, float)) else None

    def value(self, obs: Observations, count: int) -> torch.Tensor:
        """V of `count` states by the current networks, (count,); zeros where the potential does not ask for it."""
        if self.plain:  # inference mode is faster, but what the user's own functions get must be ordinary tensors
            with torch.inference_mode():
                return self._read(self.model, obs, self.settings.network, self._rng)
        if not self.settings.needs_value:
            return torch.zeros(count, device=self.model.device)
        with torch.no_grad():
            if self.settings.value_fn is None:
                return self._read(self.model, obs, self.settings.network, self._rng)
            return _as_values(self.settings.value_fn(self.model, obs), count)

    def shaped_reward(self, batch: Transitions) -> torch.Tensor:
        """The shaped rewards of a batch, (B,)."""
        shaped: torch.Tensor = self.settings.shaping(
            batch.reward,
            batch.value,
            batch.next_value,
            gamma=batch.gamma,
            terminated=batch.terminated if self.settings.terminal == "zero" else None,
            state=self._state(batch.obs),
            next_state=self._state(batch.next_obs),
            step=self.model.num_timesteps,
        )
        _check_one_per_state(shaped, batch.reward)
        self.last = Shaped(batch.obs, batch.value, batch.reward, shaped)
        return shaped

    def log(self) -> None:
        """Put the last batch into the model's own logger."""
        mean, absolute, potential = 0.0, 0.0, 0.0
        if self.last is not None and self.eta() != 0:
            obs, value, reward, shaped = self.last
            phi = self.settings.shaping.phi(self._state(obs), value.reshape(-1), self.model.num_timesteps)
            bonus = shaped - reward
            mean, absolute, potential = (float(part.mean()) for part in (bonus, abs(bonus), phi))
        self.model.logger.record("shaping/mean", mean)
        self.model.logger.record("shaping/abs", absolute)
        self.model.logger.record("shaping/potential", potential)

    def _state(self, obs: Observations) -> Observations:
        """The observations as potentials and eta(s) see them: a discrete state is a number, not a row of one."""
        return obs.reshape(-1) if isinstance(self.model.observation_space, spaces.Discrete) else obs


def _as_values(values: Any, count: int) -> torch.Tensor:
    """What a `value_fn` returned, as (count,)."""
    if not isinstance(values, (torch.Tensor, np.ndarray)) or tuple(values.shape) not in ((count,), (count, 1)):
        found = f"{type(values).__name__} of shape {tuple(getattr(values, 'shape', ()))}"
        raise BadInput(f"value_fn returned a {found}; expected one value per observation, shape ({count},)")
    return torch.as_tensor(values).reshape(-1)


def _check_one_per_state(shaped: Array, reward: Array) -> None:
    """A potential or eta(s) of shape (B, 1) would broadcast to (B, B): say so instead."""
    if type(shaped) is not type(reward) or shaped.shape != reward.shape:
        found = f"{type(shaped).__name__} of shape {tuple(getattr(shaped, 'shape', ()))}"
        raise BadInput(
            f"the shaped rewards came out as a {found}: potential and eta functions must return a tensor"
            f" with one number per state, here of shape {tuple(reward.shape)}"
        )
