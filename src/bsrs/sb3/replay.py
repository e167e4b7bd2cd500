"""Off-policy algorithms: the rewards of every sampled batch, shaped by the model's own current networks."""

from __future__ import annotations

import functools
from typing import Any

import torch
from gymnasium import spaces

from bsrs.rng import stream
from bsrs.sb3.classes import become, named_after, reduce_as_plain
from bsrs.sb3.settings import Settings, as_values, check_one_per_state, record
from bsrs.sb3.values import Observations, reader_for


class ReplayShaper:
    """Replaces the rewards in what a replay buffer samples; the samples that come in are left as they are."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        if settings.value_fn is None and settings.needs_value:
            self._read = reader_for(model, settings.network).read
        # A continued run draws on, it does not repeat the draws of its beginning.
        self._rng = stream(settings.seed, "sb3 potential", model.num_timesteps)

    def __call__(self, samples: Any) -> Any:
        model, settings, step = self.model, self.settings, self.model.num_timesteps
        if settings.is_off(step):
            record(model, 0.0, 0.0, 0.0)
            return samples
        reward = samples.rewards.reshape(-1)  # (B,)
        value, next_value = self._values(samples, reward)
        state = self._state(samples.observations)
        discounts = getattr(samples, "discounts", None)  # gamma^n of n-step buffers, which older SB3 has not
        shaped = settings.shaping(
            reward,
            value,
            next_value,
            gamma=model.gamma if discounts is None else discounts.reshape(-1),
            # SB3's `dones` leave time limits out, unless the buffer was told not to tell them apart.
            terminated=samples.dones.reshape(-1) if settings.terminal == "zero" else None,
            state=state,
            next_state=self._state(samples.next_observations),
            step=step,
        )
        check_one_per_state(shaped, reward)
        bonus = shaped - reward
        statistics = bonus.mean(), bonus.abs().mean(), settings.mean_potential(state, value, step)
        record(model, *torch.stack(statistics).tolist())
        return samples._replace(rewards=shaped.reshape(samples.rewards.shape))

    def _values(self, samples: Any, reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """V(s) and V(s'), from one forward pass over both."""
        if not self.settings.needs_value:
            nothing = torch.zeros_like(reward)
            return nothing, nothing
        both = _join(samples.observations, samples.next_observations)
        with torch.no_grad():
            if self.settings.value_fn is None:
                values = self._read(self.model, both, self.settings.network, self._rng)
            else:
                values = as_values(self.settings.value_fn(self.model, both), 2 * len(reward))
        return values[: len(reward)], values[len(reward) :]

    def _state(self, obs: Observations) -> Observations:
        """The observations as potentials and eta(s) see them: a discrete state is a number, not a row of one."""
        return obs.reshape(-1) if isinstance(self.model.observation_space, spaces.Discrete) else obs


def _join(obs: Observations, next_obs: Observations) -> Observations:
    if isinstance(obs, dict):
        return {key: torch.cat((part, next_obs[key])) for key, part in obs.items()}
    return torch.cat((obs, next_obs))


@functools.cache
def shaped_replay(plain: Any) -> Any:
    """The class of a replay buffer whose `sample` is shaped by its `shaper`."""

    class ShapedReplay(plain):  # type: ignore[misc]
        __reduce_ex__ = reduce_as_plain

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            return self.shaper(super().sample(*args, **kwargs))

    return named_after(ShapedReplay, plain)


@functools.cache
def shaped_off_policy(plain: Any) -> Any:
    """The class of a model whose replay buffer is shaped, whichever buffer it is given.

    So `load_replay_buffer`, which replaces the buffer, does not silently end the shaping.
    """

    class ShapedOffPolicy(plain):  # type: ignore[misc]
        @property
        def replay_buffer(self) -> Any:
            return self.__dict__["replay_buffer"]

        @replay_buffer.setter
        def replay_buffer(self, buffer: Any) -> None:
            become(buffer, shaped_replay)
            buffer.shaper = self.replay_buffer.shaper
            self.__dict__["replay_buffer"] = buffer

    return named_after(ShapedOffPolicy, plain)
