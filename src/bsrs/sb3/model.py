"""A shaped model: the same object with one more base class in front of its own.

Its buffers stay the library's, as they are. For off-policy algorithms the batches that `train()` samples come back
shaped; for on-policy algorithms the rollout is shaped before its advantages are computed. Everything else is the
library's own: the class calls itself by the name of the library's class, makes plain models when it is called or
loaded from, and copies and pickles as the library's does.
"""

from functools import partial
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from bsrs.adapting import Instead, plain_class
from bsrs.sb3.replay import sample_shaped
from bsrs.sb3.rollout import EpisodeEnds, shape_rollout
from bsrs.sb3.saving import describe
from bsrs.sb3.shaper import ModelShaper


class Shaped(BaseAlgorithm):  # type: ignore[misc]
    """In front of an algorithm's class; `bsrs_shaper` has the state."""

    bsrs_shaper: ModelShaper

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return plain_class(cls)(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.bsrs_shaping = describe(self.bsrs_shaper)
        try:
            super().save(*args, **kwargs)
        finally:
            del self.bsrs_shaping

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bsrs_shaper"]

    def dump_logs(self, *args: Any, **kwargs: Any) -> None:
        self.bsrs_shaper.log(self)
        super().dump_logs(*args, **kwargs)


class ShapedOffPolicy(Shaped):
    """In front of an off-policy algorithm's class."""

    replay_buffer: Any

    def train(self, *args: Any, **kwargs: Any) -> None:
        plain = self.replay_buffer
        self.replay_buffer = Instead(plain, sample=partial(sample_shaped, self, plain))
        try:
            super().train(*args, **kwargs)
        finally:
            self.replay_buffer = plain


class ShapedOnPolicy(Shaped):
    """In front of an on-policy algorithm's class."""

    def collect_rollouts(self, env: Any, callback: Any, rollout_buffer: Any, *args: Any, **kwargs: Any) -> Any:
        watched = EpisodeEnds(env)

        def compute_returns_and_advantage(last_values: Any, dones: Any) -> None:
            shape_rollout(self, rollout_buffer, watched.steps, last_values)
            rollout_buffer.compute_returns_and_advantage(last_values, dones)

        buffer = Instead(rollout_buffer, compute_returns_and_advantage=compute_returns_and_advantage)
        return super().collect_rollouts(watched, callback, buffer, *args, **kwargs)
