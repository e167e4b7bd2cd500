"""One copy of an env, whatever its kind: what `Envs` drives, and the Gymnasium kind of it."""

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from bsrs.envs.actions import Actions
from bsrs.envs.observations import Observations
from bsrs.errors import BadInput, EnvFault, in_short

LARGEST_REWARD = 1e30
"""Squares and sums of rewards must fit into single precision for a while."""

Obs = NDArray[Any]
Action = Any  # an int, or a float vector
Statistics = dict[str, NDArray[Any]]


TimeStep = tuple[Obs, Obs, float, bool, bool, float, bool]
"""What one action led to. A plain tuple, because making a named one takes several times as long:

- obs: To act on next; of no use where `over`, because the next game must be started first.
- final_obs: The true next observation of this transition; the same object as `obs` unless a life ended.
- reward, terminated, truncated: Of the transition.
- score: The unclipped reward, with what was won between two lives.
- over: The real game has ended; a lost life alone does not end it.
"""


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

    def statistics(self) -> Statistics:
        """What outlives episodes."""
        return {}

    def load_statistics(self, statistics: Statistics, *, freeze: bool) -> None:
        """Go back to the statistics that were saved; with `freeze` they stay as they are until the next call."""
        assert not statistics


class GymSingle(Single):
    seed_every = 1

    def __init__(self, env: gymnasium.Env[Any, Any], observations: Observations, actions: Actions) -> None:
        self._env = env
        self._name = observations.env
        self._observations, self._actions = observations, actions
        self._shape, self._is_array = observations.shape, observations.is_array
        self._as_it_is = isinstance(actions.space, Discrete) and actions.space.start == 0
        self._action: Action = None

    def reset(self, seed: int | None) -> Obs:
        try:
            begun = self._env.reset(seed=seed)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
                expected = "def reset(self, *, seed=None, options=None)"
                raise self._wrong("its reset takes no seed", expected) from error
            raise self._broke("reset", error) from error
        if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], dict)):
            raise self._wrong("its reset returns the observation alone", f"obs, info; {OLD_API}")
        return self._read(begun[0])

    def send(self, action: Action) -> None:
        self._action = action if self._as_it_is else self._actions.own(action)

    def receive(self) -> TimeStep:
        try:
            answer = self._env.step(self._action)
        except (Exception, SystemExit) as error:
            if "to unpack (expected 5" in str(error):  # a wrapper that found four
                raise self._wrong(*FOUR_VALUES) from error
            raise self._broke("step", error) from error
        try:
            obs, reward, terminated, truncated, _ = answer
        except (TypeError, ValueError) as error:
            raise self._wrong(*FOUR_VALUES) from error
        if type(reward) is not float:
            reward = self._number(reward)
        if not abs(reward) <= LARGEST_REWARD:
            raise EnvFault(
                f"env {self._name!r} gave the reward {reward}; expected a finite number up to {LARGEST_REWARD:g}"
            )
        obs = self._read(obs)
        # At the time limit Gymnasium may say both: the end of the task is the stronger word.
        truncated = bool(truncated and not terminated)
        terminated = bool(terminated)
        return obs, obs, reward, terminated, truncated, reward, terminated or truncated

    def _number(self, reward: Any) -> float:
        """The reward as a float, or BadInput."""
        shape = np.shape(reward)
        if shape and math.prod(shape) > 1:
            how = "mo_gymnasium's LinearReward weighs them, gymnasium.wrappers.TransformReward does anything"
            raise self._wrong(f"its reward is a vector of {math.prod(shape)} numbers", f"one number: {how}")
        try:
            return float(np.asarray(reward).reshape(()) if shape else reward)
        except (TypeError, ValueError):
            raise self._wrong(f"its reward is {str(reward)[:40]!r}", "a number") from None

    def _wrong(self, what: str, expected: str) -> BadInput:
        return BadInput(f"env {self._name!r} cannot be used, for {what}; expected {expected}")

    def _broke(self, method: str, error: BaseException) -> EnvFault:
        return EnvFault(f"env {self._name!r} failed in {method}: {in_short(error)}")

    def _read(self, raw: Any) -> Obs:
        as_it_is = self._is_array and type(raw) is np.ndarray and raw.shape == self._shape
        try:
            obs = raw if as_it_is else self._observations.one(raw)
            # For the few numbers of a vector, a plain sum is four times as quick as np.isfinite(obs).all().
            finite = math.isfinite(sum(obs.tolist())) if len(self._shape) == 1 else bool(np.isfinite(obs).all())
        except EnvFault:
            raise
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise EnvFault(
                f"env {self._name!r} gave the observation {_short(raw)}; its space is {self._observations.space}"
            ) from error
        if not finite:
            raise EnvFault(f"env {self._name!r} gave an observation that is not finite: {obs}")
        return obs

    def statistics(self) -> Statistics:
        """The running statistics of Gymnasium's wrappers, such as NormalizeReward: they outlive episodes."""
        return {
            f"{depth}.{path}": np.array(attrgetter(path)(wrapper))
            for depth, wrapper in enumerate(_wrappers(self._env))
            for path in RUNNING
            if path.partition(".")[0] in vars(wrapper)
        }

    def load_statistics(self, statistics: Statistics, *, freeze: bool) -> None:
        wrappers = list(_wrappers(self._env))
        for key, value in statistics.items():
            depth, *holder, name = key.split(".")
            wrapper = wrappers[int(depth)]
            part = getattr(wrapper, holder[0]) if holder else wrapper
            number = value.item() if type(getattr(part, name)) is float else value[()]
            setattr(part, name, value.copy() if value.ndim else number)
            wrapper.update_running_mean = not freeze

    def render(self) -> NDArray[np.uint8]:
        if self._env.render_mode is None:
            raise BadInput(f"env {self._name!r} cannot be drawn; expected one that takes render_mode='rgb_array'")
        return np.asarray(self._env.render(), dtype=np.uint8)

    def close(self) -> None:
        self._env.close()


RUNNING = [f"{rms}.{moment}" for rms in ("obs_rms", "return_rms") for moment in ("mean", "var", "count")]
RUNNING += ["discounted_reward"]
OLD_API = "it has the API of Gym before 0.26, which the package shimmy converts (GymV21CompatibilityV0)"
FOUR_VALUES = "its step does not return five values", f"obs, reward, terminated, truncated, info; {OLD_API}"


def _wrappers(env: gymnasium.Env[Any, Any]) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def _short(value: Any) -> str:
    """What an env returned, in a few words."""
    text = f"{len(value)} items" if isinstance(value, tuple) else f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else f"{text[:80]}..."
