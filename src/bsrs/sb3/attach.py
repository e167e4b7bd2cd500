"""`shape`, `unshape`, `load` and `ShapeCallback`: the one line, its undoing, and its two other forms."""

import io
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.save_util import open_path

from bsrs.errors import BadInput
from bsrs.sb3.replay import shaped_off_policy, shaped_replay
from bsrs.sb3.rollout import shaped_on_policy, shaped_rollout
from bsrs.sb3.saving import FUNCTION, describe, is_same, read_archive, restore
from bsrs.sb3.shaper import ModelShaper, Settings, ValueFunction, become, become_plain
from bsrs.shaping import Potential, ShapeScale

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

    - `eta`: a number, "auto", or any shape-scale of `bsrs.shaping` (a schedule over `num_timesteps`, a function of the
      state, one that learns).
    - `potential`: what takes the place of V, for example `Static(fn)` or `RandomDynamic(seed)`; V itself by default.
      Functions get the observations as the networks do, in tensors, and return one number per state.
    - `network`: `online`, or `target` to read V from the target networks.
    - `terminal`: `zero` masks V(s') where an episode truly ended, as policy invariance needs; `keep` does not.
    - `value_fn`: a function of (model, obs) that returns V, for an algorithm that is not known here.
    - `seed`: of the actions that SAC and its kin draw to estimate V; the model's own by default.
    """
    return _attach(model, ModelShaper(_plain(model), Settings(eta, potential, network, terminal, value_fn, seed)))


def _attach(model: Model, shaper: ModelShaper) -> Model:
    off_policy, buffer = isinstance(model, OffPolicyAlgorithm), _buffer(model)
    buffer.shaper = shaper
    become(buffer, shaped_replay if off_policy else shaped_rollout)
    become(model, shaped_off_policy if off_policy else shaped_on_policy)
    shaper.model.bsrs_shaping = describe(shaper)  # saved with the model, for `load`
    return model


def unshape(model: Model) -> Model:
    """The same model, plain again."""
    if not isinstance(model, BaseAlgorithm) or "shaper" not in vars(_buffer(model)):
        raise BadInput("unshape got a model that is not shaped")
    buffer = _buffer(model)
    del buffer.shaper, model.bsrs_shaping
    become_plain(buffer)
    become_plain(model)
    return model


def _plain(model: Any) -> Any:
    """The model as it is, if it can be shaped."""
    if not isinstance(model, BaseAlgorithm):
        found = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise BadInput(f"shape got {found}; expected a built Stable-Baselines3 model, such as DQN('MlpPolicy', env)")
    if not isinstance(model, (OffPolicyAlgorithm, OnPolicyAlgorithm)):
        raise BadInput(f"{type(model).__name__} learns no value estimate: there is nothing to shape it with")
    if _buffer(model) is None:
        raise BadInput(f"this {type(model).__name__} has no buffer yet: expected a model that is set up")
    if "shaper" in vars(_buffer(model)):
        raise BadInput("this model is shaped already: call bsrs.sb3.unshape(model) first to shape it anew")
    return model


def _buffer(model: Any) -> Any:
    return vars(model).get("replay_buffer" if isinstance(model, OffPolicyAlgorithm) else "rollout_buffer")


class ShapeCallback(BaseCallback):  # type: ignore[misc]
    """Shapes the model when its training starts: `model.learn(..., callback=ShapeCallback(eta=0.5))`.

    Takes the arguments of `shape`. For programs that build the model themselves: in rl-baselines3-zoo it is a line of
    a model's hyperparameters. A model that is shaped so already, as in a second `learn`, continues as it is.
    """

    def __init__(self, eta: Any = 2.0, **arguments: Any) -> None:
        super().__init__()
        self._settings = Settings(eta, **arguments)

    def _init_callback(self) -> None:
        shaper = vars(_buffer(self.model)).get("shaper")
        if shaper is not None:
            if is_same(shaper.settings, self._settings):
                return
            unshape(self.model)
        shape(self.model, **vars(self._settings))

    def _on_step(self) -> bool:
        return True


def load(
    path: str | Path,
    algorithm: type[Any],
    env: Any = None,
    *,
    eta: ShapeScale | float | str | None = None,
    potential: Potential | None = None,
    value_fn: ValueFunction | None = None,
    trust: bool = False,
    custom_objects: dict[str, Any] | None = None,
    **load_arguments: Any,
) -> Any:
    """`algorithm.load(path, env, ...)`, shaped as it was when it was saved, and continuing as it would have.

    `eta`, `potential` and `value_fn` replace what the file says; where it was a function they must be given.

    SB3's format can execute code: its `data` holds pickles. So nothing is unpickled but what SB3's, sb3-contrib's and
    PyTorch's own classes need; a file with more in it (a policy or schedule of your own, any model of SBX) is refused.
    With `trust=True` it is loaded as `algorithm.load` would: only for files of which you know where they come from.
    """
    with open_path(path, "r", suffix="zip") as opened:
        file = io.BytesIO(opened.read())
    try:
        saved, objects = read_archive(file, trust, custom_objects or {})
    except BadInput as error:
        raise BadInput(f"{path} is not loaded: {error}") from None
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise BadInput(f"{path} is not a model that Stable-Baselines3 saved: {error}") from error
    if saved is None:
        raise BadInput(f"{path} holds a model that was not shaped: load it with {algorithm.__name__}.load and shape it")
    model = algorithm.load(file, env=env, custom_objects={**objects, **(custom_objects or {})}, **load_arguments)
    try:
        given = {"eta": eta, "potential": potential, "value_fn": value_fn}
        shaper = ModelShaper(model, restore(saved, {name: part for name, part in given.items() if part is not None}))
        shaper.load_state(saved.get("state"), scale=eta is None or saved["eta"] == FUNCTION)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise BadInput(f"the shaping of {path} cannot be restored: {error}") from None
    return _attach(model, shaper)
