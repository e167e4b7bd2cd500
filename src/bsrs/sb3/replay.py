"""Off-policy algorithms: the rewards of every sampled batch are shaped by the model's own current networks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from bsrs.sb3.classes import become, named_after, reduce_as_plain
from bsrs.sb3.shaper import Shaped, Shaper, Transitions
from bsrs.sb3.values import Observations

# Batches up to this size are evaluated at s and s' together: the calls take longer than the arithmetic.
JOINED_UP_TO = 128


def shape_samples(shaper: Shaper, samples: Any) -> Any:
    """What a replay buffer sampled, with shaped rewards; `samples` is left as it is."""
    eta = shaper.eta()
    if eta == 0:  # nothing to compute: bit for bit the plain algorithm
        return samples
    discounts = getattr(samples, "discounts", None)  # gamma^n of an n-step buffer; older SB3 does not know them
    if shaper.plain and eta is not None and discounts is None:
        return _shape_plainly(shaper, samples, eta)
    value, next_value = _values(shaper, samples)
    batch = Transitions(
        obs=samples.observations,
        next_obs=samples.next_observations,
        reward=samples.rewards.reshape(-1),
        value=value.reshape(-1),
        next_value=next_value.reshape(-1),
        terminated=samples.dones.reshape(-1),  # without time limits, unless the buffer was told to count them
        gamma=shaper.model.gamma if discounts is None else discounts.reshape(-1),
    )
    return samples._replace(rewards=shaper.shaped_reward(batch).reshape(-1, 1))


def _shape_plainly(shaper: Shaper, samples: Any, eta: float) -> Any:
    """`bsrs.shaped_reward` by three calls of PyTorch: beside a small network every call counts."""
    value, next_value = _values(shaper, samples)
    reward, scale = samples.rewards, eta * shaper.model.gamma
    if shaper.settings.terminal == "zero":
        shaped = torch.addcmul(reward, next_value, torch.rsub(samples.dones, 1), value=scale)
    else:
        shaped = torch.add(reward, next_value, alpha=scale)
    shaped.add_(value, alpha=-eta)
    shaper.last = Shaped(samples.observations, value, reward, shaped)
    return samples._replace(rewards=shaped)


def _values(shaper: Shaper, samples: Any) -> Sequence[torch.Tensor]:
    """V at both ends, (B, 1) each."""
    obs, next_obs, size = samples.observations, samples.next_observations, samples.rewards.shape[0]
    if size > JOINED_UP_TO:
        return [shaper.value(part, size).view(size, 1) for part in (obs, next_obs)]
    return shaper.value(_join(obs, next_obs), 2 * size).view(2, size, 1).unbind()


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
