"""On-policy algorithms: a rollout's rewards, shaped once, before the advantages are computed from them.

The potential is V as it was when the rollout was collected, which the rollout buffer holds already. Only the ends of
episodes are missing there: SB3 resets the env and keeps the first observation of the next episode instead. So the
env is watched during collection. At a time limit SB3 adds `gamma * V(s')` to the reward and cuts the episode; the
potential of that s' is not zero either, and is computed here.

This is an extension: the paper tests off-policy algorithms only.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnvWrapper

from bsrs.sb3.shaper import ModelShaper
from bsrs.sb3.values import Observations, map_obs


class RolloutStep(NamedTuple):
    """Where one step of the vector env led: the last observation of an episode where one ended."""

    next_obs: Any  # an array (N, ...), or a dict of arrays
    reward: np.ndarray  # (N,), as are the others
    terminated: np.ndarray
    truncated: np.ndarray


class EpisodeEnds(VecEnvWrapper):  # type: ignore[misc]
    """The vector env as it is, with a note of every step."""

    def __init__(self, venv: Any) -> None:
        super().__init__(venv)
        self.steps: list[RolloutStep] = []

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        next_obs = map_obs(np.copy, obs)
        truncated = np.zeros(len(dones), dtype=bool)
        for index in dones.nonzero()[0]:
            last = infos[index].get("terminal_observation")
            if last is not None:  # without one there is no V(s') to bootstrap from, for SB3 neither
                map_obs(lambda part, end, at=index: np.copyto(part[at : at + 1], end), next_obs, last)
                truncated[index] = infos[index].get("TimeLimit.truncated", False)
        self.steps.append(RolloutStep(next_obs, rewards.copy(), dones & ~truncated, truncated))
        return obs, rewards, dones, infos


def shape_rollout(model: Any, buffer: Any, steps: list[RolloutStep], last: torch.Tensor) -> None:
    """Shape the rewards of a rollout of T steps in N envs, (T, N). `last` is V after the last step."""
    shaper: ModelShaper = model.bsrs_shaper
    shaper.step = model.num_timesteps
    if not shaper.is_active(shaper.step):
        return
    # From here on every tensor is (T * N, ...).
    obs = map_obs(_flat, buffer.observations)
    next_obs = map_obs(lambda *parts: _flat(np.stack(parts)), *[step.next_obs for step in steps])
    env_reward, terminated, truncated = (_flat(np.stack(parts)) for parts in list(zip(*steps, strict=True))[1:])
    if shaper.settings.value_fn is None:
        value = _flat(buffer.values)
        next_value = torch.cat((value[last.numel() :], last.cpu().flatten()))
        # Where an episode ended, the value that follows in the buffer is that of another episode.
        ended = terminated | truncated
        next_value[ended] = _value_where(ended, next_obs, model, buffer)
    else:
        everywhere = torch.ones_like(terminated)
        value, next_value = (_value_where(everywhere, part, model, buffer) for part in (obs, next_obs))
    states = shaper.states(model, obs, next_obs)
    term = shaper.term(value, next_value, reward=env_reward, gamma=model.gamma, terminated=terminated, **states)
    buffer.rewards = buffer.rewards + term.numpy().reshape(buffer.rewards.shape)


def _flat(array: np.ndarray) -> torch.Tensor:
    """(T, N, ...) as a tensor of (T * N, ...)."""
    return torch.from_numpy(array).flatten(end_dim=1)


def _value_where(mask: torch.Tensor, obs: Observations, model: Any, buffer: Any) -> torch.Tensor:
    """Return V of the states that `mask` picks, on the CPU."""
    count, device = int(mask.sum()), model.device
    if count == 0:
        return torch.zeros(0)
    picked = map_obs(lambda part: part[mask].to(device), obs)
    return model.bsrs_shaper.value(model, picked, count, *_lstm_states(model, buffer, mask)).cpu()  # type: ignore[no-any-return]


def _lstm_states(model: Any, buffer: Any, mask: torch.Tensor) -> tuple[Any, ...]:
    """RecurrentPPO: the critic's LSTM states after the steps that `mask` picks, and that no episode starts there.

    The buffer holds the states before each step, so those after it are the next step's, and the model's at the end.
    """
    last = vars(model).get("_last_lstm_states")
    if last is None:
        return ()
    states = []
    for before, after_all in zip((buffer.hidden_states_vf, buffer.cell_states_vf), last.vf, strict=True):
        after = torch.cat((torch.from_numpy(before[1:]), after_all.detach().cpu()[None]))  # (T, layers, N, hidden)
        picked = after.transpose(1, 2).flatten(end_dim=1)[mask]  # (picked, layers, hidden)
        states.append(picked.transpose(0, 1).contiguous().to(model.device))
    return tuple(states), torch.zeros(int(mask.sum()), device=model.device)
