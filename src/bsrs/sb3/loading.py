"""`load`: a saved model with its shaping. Which files are loaded without `trust` is in `archive`."""

import io
import zlib
from pathlib import Path
from typing import Any

from stable_baselines3.common.save_util import open_path

from bsrs.errors import BadInput
from bsrs.sb3.archive import read_archive
from bsrs.sb3.attach import attach
from bsrs.sb3.saving import needs_object, restore
from bsrs.sb3.shaper import ModelShaper, ValueFunction
from bsrs.shaping import Potential, ShapeScale


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
    """Load a shaped model with its shaping, as `algorithm.load(path, env, ...)` does without it.

    `eta`, `potential` and `value_fn` replace those in the file. They are required if they were functions.

    The format of SB3 contains pickles, which can execute code. This function does not execute them: it reads only what
    SB3 and sb3-contrib save, and refuses files with anything else, such as your own policy class or a model of SBX.
    With `trust=True` it loads the file as `algorithm.load` does. Use that only for files whose origin you know.
    """
    with open_path(path, "r", suffix="zip") as opened:
        file = io.BytesIO(opened.read())
    given = custom_objects or {}
    try:
        saved, objects = read_archive(file, trust, given.keys() | load_arguments.keys())
    except BadInput as error:
        raise BadInput(f"{path} is not loaded: {error}") from None
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise BadInput(f"{path} is not a model that Stable-Baselines3 saved: {error}") from error
    if saved is None:
        raise BadInput(f"{path} holds a model that was not shaped: load it with {algorithm.__name__}.load and shape it")
    try:
        model = algorithm.load(file, env=env, custom_objects={**objects, **given}, **load_arguments)
    except Exception as error:
        raise BadInput(f"{path} cannot be loaded by {algorithm.__name__}.load: {error}") from error
    vars(model).pop("bsrs_shaping", None)
    try:
        parts = {"eta": eta, "potential": potential, "value_fn": value_fn}
        shaper = ModelShaper(model, restore(saved, {name: part for name, part in parts.items() if part is not None}))
        if saved.get("state") is not None:  # files of older versions have none
            scale = eta is None or needs_object(saved["eta"])
            shaper.load_state(saved["state"], scale=scale, device=model.device)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, zlib.error) as error:
        raise BadInput(f"the shaping of {path} cannot be restored: {error}") from None
    return attach(model, shaper)
