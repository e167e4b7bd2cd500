"""Off-policy algorithms: the rewards of every sampled batch are shaped by the model's own current networks."""

from __future__ import annotations

import functools
from typing import Any

import torch

from bsrs.sb3.classes import become, named_after, reduce_as_plain
from bsrs.sb3.shaper import Shaper, Transitions
from bsrs.sb3.values import Observations


def shape_samples(shaper: Shaper, samples: Any) -> Any:
    """What a replay buffer sampled, with shaped rewards; `samples` is left as it is."""
    if shaper.eta() == 0:  # nothing to compute: bit for bit the plain algorithm
        return samples
    both = _join(samples.observations, samples.next_observations)
    size = samples.rewards.shape[0]
    reward, terminated, values = shaper.arrays(samples.rewards, samples.dones, shaper.value(both, 2 * size))
    batch = Transitions(
        obs=samples.observations,
        next_obs=samples.next_observations,
        reward=reward.reshape(-1),
        value=values[:size],
        next_value=values[size:],
        terminated=terminated.reshape(-1),  # without time limits, unless the buffer was told to count them
        gamma=_discount(shaper, samples),
    )
    return samples._replace(rewards=shaper.shaped_reward(batch).reshape(-1, 1))


def _discount(shaper: Shaper, samples: Any) -> Any:
    """gamma, or gamma^n for each transition of an n-step buffer."""
    discounts = getattr(samples, "discounts", None)  # older SB3 does not know them
    return shaper.model.gamma if discounts is None else shaper.arrays(discounts)[0].reshape(-1)


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
            return shape_samples(self.shaper, super().sample(*args, **kwargs))

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

        def dump_logs(self) -> None:
            """Logging waits until the logger writes: for every batch it would cost as much as the shaping."""
            self.replay_buffer.shaper.log()
            super().dump_logs()

    return named_after(ShapedOffPolicy, plain)
