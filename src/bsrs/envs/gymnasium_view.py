"""`Envs` in Gymnasium's own words, for code that expects a `VectorEnv`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from bsrs.envs.spec import EnvSpec

if TYPE_CHECKING:
    from bsrs.envs.vector import Envs


class GymnasiumView(VectorEnv):  # type: ignore[misc]
    """A vector env that resets in the same step; `final_obs` and `episode` are in the info, as Gymnasium has them."""

    def __init__(self, envs: Envs) -> None:
        self._envs = envs
        self.num_envs = envs.n
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _observation_space(envs.spec)
        self.single_action_space = _action_space(envs.spec)
        self.observation_space = batch_space(self.single_observation_space, envs.n)
        self.action_space = batch_space(self.single_action_space, envs.n)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[Any], dict[str, Any]]:
        """The next episode in every copy, or the first one of another seed."""
        return self._envs.reset(seed), {}

    def step(self, actions: NDArray[Any]) -> tuple[Any, ...]:
        step = self._envs.step(actions)
        info: dict[str, Any] = {}
        ended = step.terminated | step.truncated
        if ended.any():
            info["final_obs"], info["_final_obs"] = step.final_obs, ended
        if len(step.episode_env):
            finished = np.zeros(self.num_envs, np.bool_)
            finished[step.episode_env] = True
            score, length = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
            score[step.episode_env], length[step.episode_env] = step.episode_return, step.episode_length
            info["episode"], info["_episode"] = {"r": score, "l": length}, finished
        return step.obs, step.reward, step.terminated, step.truncated, info

    def close_extras(self, **kwargs: Any) -> None:
        self._envs.close()


def _observation_space(spec: EnvSpec) -> Space[Any]:
    if spec.obs_dtype == "uint8":
        return Box(0, int(spec.obs_scale), spec.obs_shape, np.uint8)
    return Box(-np.inf, np.inf, spec.obs_shape, np.float32)


def _action_space(spec: EnvSpec) -> Space[Any]:
    if spec.n_actions is not None:
        return Discrete(spec.n_actions)
    return Box(np.array(spec.action_low, np.float32), np.array(spec.action_high, np.float32))
