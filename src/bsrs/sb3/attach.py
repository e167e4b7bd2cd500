"""`shape` and `unshape`: the one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from bsrs.errors import BadInput
from bsrs.sb3.classes import become, become_plain
from bsrs.sb3.replay import shaped_off_policy, shaped_replay
from bsrs.sb3.rollout import shaped_on_policy, shaped_rollout
from bsrs.sb3.saving import describe
from bsrs.sb3.shaper import Settings, Shaper, ValueFunction
from bsrs.shaping import Bootstrapped, Potential, ShapeScale, Shaping, as_scale

Model = TypeVar("Model")


def shape(
    model: Model,
    eta: ShapeScale | float | str = 2.0,
    *,
    potential: Potential | None = None,
    network: str = "online",
    terminal: str = "zero",
    value_fn: ValueFunction | None = None,
    seed: int | None = None,
) -> Model:
    """The same model, shaping itself from now on: `r + eta * (gamma * V(s') - V(s))`, V being its own estimate.

    - `eta`: a number, or any shape-scale of `bsrs.shaping` (a schedule over `num_timesteps`, a function of the state).
    - `potential`: what takes the place of V, for example `Static(fn)` or `RandomDynamic(seed)`; V itself by default.
      Functions get the observations as the networks do, in tensors, and return one number per state.
    - `network`: `online`, or `target` to read V from the target networks.
    - `terminal`: `zero` masks V(s') where an episode truly ended, as policy invariance needs; `keep` does not.
    - `value_fn`: a function of (model, obs) that returns V, for an algorithm that is not known here.
    - `seed`: of the actions that SAC and its kin draw to estimate V; the model's own by default.
    """
    off_policy = _check(model)
    shaping = Shaping(as_scale(eta), Bootstrapped() if potential is None else potential)
    anyhow: Any = model
    seed = (anyhow.seed or 0) if seed is None else seed
    settings = Settings(shaping, network, terminal, value_fn, seed)
    shaper = Shaper(model, settings)
    if off_policy:
        _attach(model, shaper, shaped_replay, shaped_off_policy)
    else:
        _attach(model, shaper, shaped_rollout, shaped_on_policy)
    anyhow.bsrs_shaping = describe(settings)  # saved with the model, for `load`
    return model


def _attach(model: Any, shaper: Shaper, buffer_class: Callable[[Any], Any], model_class: Callable[[Any], Any]) -> None:
    buffer = _buffer(model)
    become(buffer, buffer_class)
    buffer.shaper = shaper
    become(model, model_class)


def unshape(model: Model) -> Model:
    """The same model, plain again."""
    if not isinstance(model, BaseAlgorithm) or not _is_shaped(model):
        raise BadInput("unshape got a model that is not shaped")
    buffer = _buffer(model)
    del buffer.shaper, model.bsrs_shaping
    become_plain(buffer)
    become_plain(model)
    return model


def _check(model: Any) -> bool:
    """Whether the model is off-policy (or else on-policy); BadInput for what cannot be shaped."""
    if not isinstance(model, BaseAlgorithm):
        found = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise BadInput(f"shape got {found}; expected a built Stable-Baselines3 model, such as DQN('MlpPolicy', env)")
    if not isinstance(model, (OffPolicyAlgorithm, OnPolicyAlgorithm)):
        raise BadInput(f"{type(model).__name__} learns no value estimate: there is nothing to shape it with")
    if _buffer(model) is None:
        raise BadInput(f"this {type(model).__name__} has no buffer yet: expected a model that is set up")
    if _is_shaped(model):
        raise BadInput("this model is shaped already: call bsrs.sb3.unshape(model) first to shape it anew")
    return isinstance(model, OffPolicyAlgorithm)


def _buffer(model: Any) -> Any:
    return vars(model).get("replay_buffer" if isinstance(model, OffPolicyAlgorithm) else "rollout_buffer")


def _is_shaped(model: Any) -> bool:
    return "shaper" in vars(_buffer(model))
