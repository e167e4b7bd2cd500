"""`shape` a model, `unshape` it, read its `value`, or shape it with `ShapeCallback`."""

from typing import Any, TypeVar

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from bsrs.adapting import plain_class, shaped_class
from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.sb3.model import Shaped, ShapedOffPolicy, ShapedOnPolicy
from bsrs.sb3.saving import describe, is_same
from bsrs.sb3.shaper import ModelShaper, Settings, ValueFunction
from bsrs.sb3.values import reader_for
from bsrs.shaping import Potential, ShapeScale

Model = TypeVar("Model")


def shape(
    model: Model,
    eta: ShapeScale | float | str = "auto",
    *,
    potential: Potential | None = None,
    network: str = "online",
    terminal: str = "zero",
    value_fn: ValueFunction | None = None,
    seed: int | None = None,
) -> Model:
    """Shape the model's rewards from now on: `r + eta * (gamma * V(s') - V(s))`, with the model's own V.

    Returns the same model. Call it again to change the shaping.

    Args:
        model: A built model of Stable-Baselines3, sb3-contrib or SBX.
        eta: "auto", a number, or any shape-scale of `bsrs.shaping`: a schedule over `num_timesteps`, a function of the
            state, or one that learns. "auto" needs an algorithm with a target network.
        potential: A potential to use instead of V: a function of the observations, `Static(table)` or
            `RandomDynamic(seed)`. Functions get the observations as tensors, as the networks do, and return one number
            per state.
        network: `online`, or `target` to read V from the target networks.
        terminal: `zero` sets V(s') to zero where an episode terminated, as policy invariance requires; `keep` does not.
        value_fn: A function of (model, obs) that returns V, for algorithms that are not supported out of the box.
        seed: Seed for the actions that SAC and similar algorithms sample to estimate V; by default the model's.
    """
    shaper = ModelShaper(checked(model), Settings(eta, potential, network, terminal, value_fn, seed))
    if shaper.has_memory:
        describe(shaper)  # what cannot be saved is refused now
    vars(model)["bsrs_shaper"] = shaper
    mixin = ShapedOffPolicy if isinstance(model, OffPolicyAlgorithm) else ShapedOnPolicy
    model.__class__ = shaped_class(mixin, type(model))
    return model


def unshape(model: Model) -> Model:
    """Return the same model without shaping."""
    if not isinstance(model, Shaped):
        raise BadInput("unshape got a model that is not shaped")
    del model.bsrs_shaper
    model.__class__ = plain_class(type(model))
    return model


def value(model: Any, obs: Any) -> Any:
    """Return V(s) of the model's online networks: one number for one observation, an array for a batch.

    `obs` is what `model.predict` takes. Works on shaped and unshaped models, also in callbacks, and leaves the model's
    random numbers alone.
    """
    checked(model)
    batched, many = _as_networks_see_it(model, obs)
    value_fn = model.bsrs_shaper.settings.value_fn if isinstance(model, Shaped) else None
    with torch.no_grad():
        if value_fn is not None:
            values = torch.as_tensor(value_fn(model, batched))
        else:
            values = reader_for(model).read(model, batched, "online", stream(model.seed or 0, "sb3 value"))
    numbers = values.reshape(-1).cpu().numpy()
    return numbers if many else float(numbers[0])


def _as_networks_see_it(model: Any, obs: Any) -> tuple[Any, bool]:
    """Return observations as tensors with a batch axis, and whether they had one."""
    if type(model).__module__.startswith("sbx."):
        array, many = model.policy.prepare_obs(obs)
        return torch.from_numpy(np.asarray(array)), many
    return model.policy.obs_to_tensor(obs)  # type: ignore[no-any-return]


def checked(model: Any) -> Any:
    """Return the model, if it can be shaped."""
    if not isinstance(model, BaseAlgorithm):
        found = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise BadInput(f"expected a built Stable-Baselines3 model, such as DQN('MlpPolicy', env), and got {found}")
    if not isinstance(model, (OffPolicyAlgorithm, OnPolicyAlgorithm)):
        raise BadInput(f"{type(model).__name__} learns no value estimate: there is nothing to shape it with")
    if "policy" not in vars(model):
        raise BadInput(f"this {type(model).__name__} has no networks yet: expected a model that is set up")
    return model


class ShapeCallback(BaseCallback):  # type: ignore[misc]
    """Shape the model when training starts: `model.learn(..., callback=ShapeCallback(eta=0.5))`.

    Takes the arguments of `shape`. Use it where another program builds the model: in rl-baselines3-zoo it is a line in
    the hyperparameters. A model that already has this shaping, as in a second `learn`, is left unchanged.
    """

    def __init__(self, eta: Any = "auto", **arguments: Any) -> None:
        super().__init__()
        self._settings = Settings(eta, **arguments)

    def _init_callback(self) -> None:
        if not (isinstance(self.model, Shaped) and is_same(self.model.bsrs_shaper.settings, self._settings)):
            shape(self.model, **vars(self._settings))

    def _on_step(self) -> bool:
        return True
