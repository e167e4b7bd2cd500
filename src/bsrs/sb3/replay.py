"""Off-policy algorithms: the rewards of every sampled batch are shaped by the model's own current networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bsrs.sb3.classes import become, reduce_as_plain, subclass_maker
from bsrs.sb3.saving import describe
from bsrs.sb3.shaper import ModelShaper, Transitions
from bsrs.sb3.values import map_obs

# Batches up to this size are evaluated at s and s' together: the calls take longer than the arithmetic.
JOINED_UP_TO = 128


def shape_samples(shaper: ModelShaper, samples: Any) -> Any:
    """What a replay buffer sampled, with shaped rewards; `samples` is left as it is."""
    if not shaper.is_active():
        return samples
    discounts = getattr(samples, "discounts", None)  # gamma^n of an n-step buffer; older SB3 does not know them
    gamma = shaper.model.gamma if discounts is None else discounts.reshape(-1)
    # All (B, 1). The buffer leaves time limits out of `dones`, unless it was told to count them.
    value, next_value = _values(shaper, samples)
    obs = samples.observations, samples.next_observations
    batch = Transitions(*obs, samples.rewards, value, next_value, samples.dones, gamma)
    if shaper.plain and discounts is None:
        return samples._replace(rewards=_shape_plainly(shaper, batch))
    return samples._replace(rewards=shaper.shaped_reward(batch.flat()).reshape(-1, 1))


def _shape_plainly(shaper: ModelShaper, batch: Transitions) -> torch.Tensor:
    """Fast path: `bsrs.shaped_reward` by three calls of PyTorch, because beside a small network every call counts.

    `test_in_few_operations_it_is_the_same_line` holds it equal to the one formula.
    """
    eta = shaper.eta()
    if shaper.settings.terminal == "zero":
        shaped = torch.addcmul(
            batch.reward, batch.next_value, torch.rsub(batch.terminated, 1), value=eta * shaper.model.gamma
        )
    else:
        shaped = torch.add(batch.reward, batch.next_value, alpha=eta * shaper.model.gamma)
    shaped.add_(batch.value, alpha=-eta)
    shaper.update(batch, shaped)
    return shaped


def _values(shaper: ModelShaper, samples: Any) -> Sequence[torch.Tensor]:
    """V at both ends, (B, 1) each."""
    obs, next_obs, size = samples.observations, samples.next_observations, samples.rewards.shape[0]
    if size > JOINED_UP_TO:
        return [shaper.value(part, size).view(size, 1) for part in (obs, next_obs)]
    return shaper.value(map_obs(lambda *both: torch.cat(both), obs, next_obs), 2 * size).view(2, size, 1).unbind()


@subclass_maker
def shaped_replay(plain: Any) -> Any:
    """The class of a replay buffer whose `sample` is shaped by its `shaper`."""

    class ShapedReplay(plain):  # type: ignore[misc]
        __reduce_ex__ = reduce_as_plain

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            return shape_samples(self.shaper, super().sample(*args, **kwargs))

    return ShapedReplay


@subclass_maker
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

        def save(self, *args: Any, **kwargs: Any) -> None:
            self.bsrs_shaping = describe(self.replay_buffer.shaper)
            super().save(*args, **kwargs)

        def dump_logs(self) -> None:
            """Logging waits until the logger writes: for every batch it would cost as much as the shaping."""
            self.replay_buffer.shaper.log()
            super().dump_logs()

    return ShapedOffPolicy
