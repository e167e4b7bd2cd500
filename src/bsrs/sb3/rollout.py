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
from stable_baselines3.common.vec_env import VecEnvWrapper

from bsrs.sb3.classes import named_after, reduce_as_plain
from bsrs.sb3.shaper import Shaper, Transitions
from bsrs.sb3.values import Observations


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
        time_limit: np.ndarray = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        self.steps.append(Step(next_obs, dones & ~time_limit, dones & time_limit))
        return obs, rewards, dones, infos


def shape_rollout(shaper: Shaper, buffer: Any, steps: list[Step], last_values: torch.Tensor) -> np.ndarray:
    """The shaped rewards of a rollout of T steps in N envs, (T, N). `last_values` is V after the last step."""
    if shaper.eta() == 0:  # nothing to compute: bit for bit the plain algorithm
        return np.asarray(buffer.rewards)
    obs, next_obs = _flat(buffer.observations), _flat(_stack([step.next_obs for step in steps]))  # (T * N, ...)
    terminated = np.concatenate([step.terminated for step in steps])  # (T * N,)
    truncated = np.concatenate([step.truncated for step in steps])  # (T * N,)
    if shaper.settings.value_fn is None:
        value, next_value = _values_at_collection(shaper, buffer, last_values, next_obs, terminated | truncated)
    else:
        everywhere = np.ones_like(terminated)
        value, next_value = (_value_where(everywhere, part, shaper) for part in (obs, next_obs))
    batch = Transitions(
        obs=obs,
        next_obs=next_obs,
        reward=torch.from_numpy(buffer.rewards).flatten(),
        value=value,
        next_value=next_value,
        terminated=torch.from_numpy(terminated),
        gamma=shaper.model.gamma,
    )
    return np.asarray(shaper.shaped_reward(batch).reshape(buffer.rewards.shape))


def _values_at_collection(
    shaper: Shaper, buffer: Any, last_values: torch.Tensor, next_obs: Observations, ended: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """V(s) and V(s'), (T * N,) each, as the policy saw them while it collected."""
    value = torch.from_numpy(buffer.values)  # (T, N)
    next_value = torch.cat((value[1:], last_values.cpu().reshape(1, -1))).flatten()
    # Where an episode ended, the value that follows in the buffer is that of another episode.
    next_value[ended] = _value_where(ended, next_obs, shaper)
    return value.flatten(), next_value


def _value_where(mask: np.ndarray, obs: Observations, shaper: Shaper) -> torch.Tensor:
    """V of the states that `mask` picks."""
    count = int(mask.sum())
    return shaper.value(_pick(obs, mask, shaper.model.device), count).cpu() if count else torch.zeros(0)


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


def _pick(obs: Observations, mask: np.ndarray, device: torch.device) -> Observations:
    if isinstance(obs, dict):
        return {key: _pick(part, mask, device) for key, part in obs.items()}
    return obs[mask].to(device)


@functools.cache
def shaped_rollout(plain: Any) -> Any:
    """The class of a rollout buffer that shapes its rewards before it computes advantages."""

    class ShapedRollout(plain):  # type: ignore[misc]
        __reduce_ex__ = reduce_as_plain

        def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
            self.rewards = shape_rollout(self.shaper, self, self.steps, last_values)
            super().compute_returns_and_advantage(last_values, dones)

    return named_after(ShapedRollout, plain)


@functools.cache
def shaped_on_policy(plain: Any) -> Any:
    """The class of a model that notes the ends of episodes for its shaped rollout buffer."""

    class ShapedOnPolicy(plain):  # type: ignore[misc]
        def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, *args: Any, **kwargs: Any) -> Any:
            watched = EpisodeEnds(env)
            rollout_buffer.steps = watched.steps
            complete = super().collect_rollouts(watched, callback, rollout_buffer, *args, **kwargs)
            rollout_buffer.shaper.log()
            return complete

    return named_after(ShapedOnPolicy, plain)
