"""One copy of an env, whatever its kind: what `Envs` drives, and the Gymnasium kind of it."""

import math
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bsrs.envs.observations import Observations
from bsrs.errors import BadInput, EnvFault

Obs = NDArray[Any]
Action = Any  # an int, or a float vector


class TimeStep(NamedTuple):
    """What one action led to."""

    obs: Obs
    """To act on next; of no use where `over`, because the next game must be started first."""
    final_obs: Obs
    """The true next observation of this transition; the same object as `obs` unless a life ended."""
    reward: float
    terminated: bool
    truncated: bool
    score: float
    """The unclipped reward, with what was won between two lives."""
    over: bool
    """The real game has ended; a lost life alone does not end it."""


class Single(Protocol):
    """One copy of an env. `send` and `receive` are apart so that copies with threads of their own step at once."""

    seed_every: int
    """Every how many episodes a seed must be given for exact repetition. Between them `reset(None)` depends on how
    many resets there were since the seed, and not on what was played."""

    def reset(self, seed: int | None) -> Obs: ...
    def send(self, action: Action) -> None: ...
    def receive(self) -> TimeStep: ...
    def render(self) -> NDArray[np.uint8]: ...
    def close(self) -> None: ...


class GymSingle:
    seed_every = 1

    def __init__(self, env: gymnasium.Env[Any, Any], observations: Observations, first_action: int) -> None:
        self._env = env
        self._name = observations.env
        self._observations = observations
        self._shape, self._is_array = observations.shape, observations.axes is not None
        self._first_action = first_action
        self._action: Action = None

    def reset(self, seed: int | None) -> Obs:
        obs, _ = self._env.reset(seed=seed)
        return self._read(obs)

    def send(self, action: Action) -> None:
        self._action = action + self._first_action if self._first_action else action

    def receive(self) -> TimeStep:
        obs, reward, terminated, truncated, _ = self._env.step(self._action)
        reward = float(reward)
        if not math.isfinite(reward):
            raise EnvFault(f"env {self._name!r} gave the reward {reward}; expected a finite number")
        obs = self._read(obs)
        # At the time limit Gymnasium may say both: the end of the task is the stronger word.
        truncated = bool(truncated and not terminated)
        terminated = bool(terminated)
        return TimeStep(obs, obs, reward, terminated, truncated, reward, terminated or truncated)

    def _read(self, raw: Any) -> Obs:
        as_it_is = self._is_array and type(raw) is np.ndarray and raw.shape == self._shape
        obs = raw if as_it_is else self._observations.one(raw)
        # For the few numbers of a vector, a plain sum is four times as quick as np.isfinite(obs).all().
        finite = math.isfinite(sum(obs.tolist())) if len(self._shape) == 1 else bool(np.isfinite(obs).all())
        if not finite:
            raise EnvFault(f"env {self._name!r} gave an observation that is not finite: {obs}")
        return obs

    def render(self) -> NDArray[np.uint8]:
        if self._env.render_mode is None:
            raise BadInput(f"env {self._name!r} cannot be drawn; expected one that takes render_mode='rgb_array'")
        return np.asarray(self._env.render(), dtype=np.uint8)

    def close(self) -> None:
        self._env.close()
