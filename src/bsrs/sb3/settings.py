"""What `shape` was asked for, and what off-policy and on-policy shaping share: when it is off, and what is logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bsrs.errors import BadInput, unknown
from bsrs.shaping import PerState, RandomDynamic, Shaping, Static, as_scale

# (model, a batch of observations) -> one value per observation
ValueFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Settings:
    """How a model is shaped."""

    shaping: Shaping
    network: str = "online"
    terminal: str = "zero"
    value_fn: ValueFunction | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.terminal not in ("zero", "keep"):
            raise unknown("terminal", self.terminal, ["zero", "keep"])

    @property
    def needs_value(self) -> bool:
        """Whether the potential depends on the agent's estimate, or the networks can be left alone."""
        return not isinstance(self.shaping.potential, (Static, RandomDynamic))

    def is_off(self, step: int) -> bool:
        """Whether eta is the number 0 at this step: then nothing is computed and the rewards stay as they are."""
        scale = as_scale(self.shaping.eta)
        return not isinstance(scale, PerState) and isinstance(eta := scale(step), (int, float)) and eta == 0

    def mean_potential(self, state: Any, value: Any, step: int) -> Any:
        """The mean of `eta * potential(s)` over a batch: what the logger shows."""
        scale = as_scale(self.shaping.eta)
        return (scale(step, state) * self.shaping.potential(state, value, step)).mean()


def record(model: Any, mean: float, absolute: float, potential: float) -> None:
    """Put the shaping of a batch into the model's own logger, which exists once `learn` has been called."""
    logger = vars(model).get("_logger")
    if logger is not None:
        logger.record("shaping/mean", mean)
        logger.record("shaping/abs", absolute)
        logger.record("shaping/potential", potential)


def check_one_per_state(shaped: Any, reward: Any) -> None:
    """A potential or eta(s) of shape (B, 1) would broadcast to (B, B): say so instead."""
    if type(shaped) is not type(reward) or shaped.shape != reward.shape:
        found = f"{type(shaped).__name__} of shape {tuple(getattr(shaped, 'shape', ()))}"
        raise BadInput(
            f"the shaped rewards are a {found}: potential and eta functions must return a"
            f" {type(reward).__name__} with one number per state, shape {tuple(reward.shape)}"
        )


def as_values(values: Any, count: int) -> torch.Tensor:
    """What a `value_fn` returned, as (B,)."""
    if not isinstance(values, (torch.Tensor, np.ndarray)) or tuple(values.shape) not in ((count,), (count, 1)):
        found = f"{type(values).__name__} of shape {tuple(getattr(values, 'shape', ()))}"
        raise BadInput(f"value_fn returned a {found}; expected one value per observation, shape ({count},)")
    return torch.as_tensor(values).reshape(-1)
