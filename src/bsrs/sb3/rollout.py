"""On-policy algorithms: a rollout's rewards, shaped once, before the advantages are computed from them.

The potential is V as it was when the rollout was collected, which the rollout buffer holds already. Only the ends of
episodes are missing there: SB3 resets the env and keeps the first observation of the next episode instead. So the
env is watched during collection. At a time limit SB3 adds `gamma * V(s')` to the reward and cuts the episode; the
potential of that s' is not zero either, and is computed here.

This is an extension: the paper tests off-policy algorithms only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnvWrapper

from bsrs.rng import stream
from bsrs.sb3.classes import named_after, reduce_as_plain
from bsrs.sb3.settings import Settings, as_values, check_one_per_state, record
from bsrs.sb3.values import Observations, reader_for


@dataclass(frozen=True)
class Step:
    """Where one step of the vector env led: the last observation of an episode where one ended."""

    next_obs: Any  # an array (N, ...), or a dict of arrays
    terminated: np.ndarray  # (N,)
    truncated: np.ndarray  # (N,)


class EpisodeEnds(VecEnvWrapper):  # type: ignore[misc]
    """The vector env as it is, with a note of every step."""

    def __init__(self, venv: Any) -> None:
        super().__init__(venv)
        self.steps: list[Step] = []

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        next_obs = {key: part.copy() for key, part in obs.items()} if isinstance(obs, dict) else obs.copy()
        for index in dones.nonzero()[0]:
            _set(next_obs, index, infos[index]["terminal_observation"])
        time_limit = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self.steps.append(Step(next_obs, dones & ~time_limit, dones & time_limit))
        return obs, rewards, dones, infos


class RolloutShaper:
    """Shapes the rewards of a rollout buffer. `steps` is what was noted while the rollout was collected."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self.steps: list[Step] = []
        if settings.value_fn is None and settings.needs_value:
            self._read = reader_for(model, settings.network).read
        self._rng = stream(settings.seed, "sb3 potential", model.num_timesteps)

    def __call__(self, buffer: Any, last_values: torch.Tensor) -> np.ndarray:
        model, settings, step = self.model, self.settings, self.model.num_timesteps
        if settings.is_off(step):
            record(model, 0.0, 0.0, 0.0)
            return np.asarray(buffer.rewards)
        reward = torch.from_numpy(buffer.rewards).reshape(-1)  # (T * N,)
        terminated = torch.from_numpy(np.concatenate([step.terminated for step in self.steps]))  # (T * N,)
        obs, next_obs = _flat(buffer.observations), _flat(_stack([step.next_obs for step in self.steps]))
        value, next_value = self._values(buffer, last_values, obs, next_obs)
        state, next_state = self._state(obs), self._state(next_obs)
        shaped = settings.shaping(
            reward,
            value,
            next_value,
            gamma=model.gamma,
            terminated=terminated if settings.terminal == "zero" else None,
            state=state,
            next_state=next_state,
            step=step,
        )
        check_one_per_state(shaped, reward)
        bonus = shaped - reward
        potential = settings.mean_potential(state, value, step)
        record(model, bonus.mean().item(), bonus.abs().mean().item(), potential.item())
        return np.asarray(shaped.reshape(buffer.rewards.shape))

    def _values(
        self, buffer: Any, last_values: torch.Tensor, obs: Observations, next_obs: Observations
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """V(s) and V(s') at collection, (T * N,) each."""
        settings, count = self.settings, buffer.rewards.size
        if not settings.needs_value:
            return torch.zeros(count), torch.zeros(count)
        if settings.value_fn is not None:
            both = settings.value_fn(self.model, obs), settings.value_fn(self.model, next_obs)
            return as_values(both[0], count), as_values(both[1], count)
        values = torch.from_numpy(buffer.values)  # (T, N)
        following = torch.cat((values[1:], last_values.cpu().reshape(1, -1)))  # (T, N); wrong where an episode ended
        next_value = following.flatten()
        ended = np.concatenate([step.terminated | step.truncated for step in self.steps])  # (T * N,)
        if ended.any():
            next_value[ended] = self._at_ends(next_obs, ended)
        return values.flatten(), next_value

    def _at_ends(self, next_obs: Observations, ended: np.ndarray) -> torch.Tensor:
        """V of the last observations of episodes."""
        device = self.model.device
        if isinstance(next_obs, dict):
            last: Observations = {key: part[ended].to(device) for key, part in next_obs.items()}
        else:
            last = next_obs[ended].to(device)
        with torch.no_grad():
            return self._read(self.model, last, self.settings.network, self._rng).cpu()

    def _state(self, obs: Observations) -> Observations:
        return obs.reshape(-1) if isinstance(self.model.observation_space, spaces.Discrete) else obs


def _set(obs: Any, index: int, value: Any) -> None:
    if isinstance(obs, dict):
        for key, part in obs.items():
            part[index] = value[key]
    else:
        obs[index] = value


def _stack(steps: list[Any]) -> Any:
    if isinstance(steps[0], dict):
        return {key: np.stack([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)


def _flat(obs: Any) -> Observations:
    """Arrays of (T, N, ...) as tensors of (T * N, ...)."""
    if isinstance(obs, dict):
        return {key: _flat(part) for key, part in obs.items()}
    return torch.from_numpy(obs).flatten(end_dim=1)


@functools.cache
def shaped_rollout(plain: Any) -> Any:
    """The class of a rollout buffer that shapes its rewards before it computes advantages."""

    class ShapedRollout(plain):  # type: ignore[misc]
        __reduce_ex__ = reduce_as_plain

        def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
            self.rewards = self.shaper(self, last_values)
            super().compute_returns_and_advantage(last_values, dones)

    return named_after(ShapedRollout, plain)


@functools.cache
def shaped_on_policy(plain: Any) -> Any:
    """The class of a model that notes the ends of episodes for its shaped rollout buffer."""

    class ShapedOnPolicy(plain):  # type: ignore[misc]
        def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, *args: Any, **kwargs: Any) -> Any:
            watched = EpisodeEnds(env)
            rollout_buffer.shaper.steps = watched.steps
            return super().collect_rollouts(watched, callback, rollout_buffer, *args, **kwargs)

    return named_after(ShapedOnPolicy, plain)
