"""Shaping by a callback, for programs that build the model themselves and only let callbacks be configured."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from bsrs.sb3.attach import shape


class ShapeCallback(BaseCallback):  # type: ignore[misc]
    """Shapes the model when its training starts: `model.learn(..., callback=ShapeCallback(eta=0.5))`.

    Takes the arguments of `shape`. In rl-baselines3-zoo it is a line of a model's hyperparameters.
    """

    def __init__(self, eta: Any = 2.0, **arguments: Any) -> None:
        super().__init__()
        self._arguments = {"eta": eta, **arguments}
        self._shaped: Any = None

    def _init_callback(self) -> None:
        if self._shaped is not self.model:  # every call of `learn` leads here
            self._shaped = shape(self.model, **self._arguments)

    def _on_step(self) -> bool:
        return True
