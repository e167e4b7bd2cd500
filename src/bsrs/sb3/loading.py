"""`load`: a saved model with its shaping. Files whose data cannot be read without executing anything need `trust`."""

import base64
import io
import json
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stable_baselines3.common.save_util import open_path

from bsrs.errors import BadInput, say
from bsrs.sb3.attach import shape
from bsrs.sb3.pickles import read_pickle
from bsrs.sb3.saving import needs_object, restore
from bsrs.sb3.shaper import ValueFunction
from bsrs.shaping import Potential, ShapeScale

LARGEST_DATA = 2**28  # bytes
# What a file may not decide: whether code is imported (an env's id names its module) and where logs are written.
NOT_FROM_FILES = ("env", "tensorboard_log")


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
    with _refused(f"{path} cannot be read as a model of Stable-Baselines3"):
        saved, objects = _read_archive(file, trust, given.keys() | load_arguments.keys())
    if saved is None:
        raise BadInput(f"{path} holds a model that was not shaped: load it with {algorithm.__name__}.load and shape it")
    with _refused(f"{path} cannot be loaded by {algorithm.__name__}.load"):
        model = algorithm.load(file, env=env, custom_objects={**objects, **given}, **load_arguments)
    vars(model).pop("bsrs_shaping", None)
    with _refused(f"the shaping of {path} cannot be restored"):
        parts = {"eta": eta, "potential": potential, "value_fn": value_fn}
        settings = restore(saved, {name: part for name, part in parts.items() if part is not None})
        shape(model, **vars(settings))
        if saved.get("state") is not None:  # files of older versions have none
            scale = eta is None or needs_object(saved["eta"])
            model.bsrs_shaper.load_state(saved["state"], scale=scale, device=model.device)
    return model


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Make one sentence of any exception: a file of unknown origin may raise whatever it wants."""
    try:
        yield
    except Exception as error:
        raise BadInput(f"{what}: {error}") from error


def _read_archive(file: io.BytesIO, trust: bool, replaced: Collection[str]) -> tuple[Any, dict[str, Any]]:
    """Return the shaping data of an SB3 file, and the objects to load in place of its pickles, except for `replaced`.

    With `trust`, the pickles are left to SB3, whatever is in them.
    """
    with zipfile.ZipFile(file) as archive:
        if archive.getinfo("data").file_size > LARGEST_DATA and not trust:
            raise BadInput(f"its data takes more than {LARGEST_DATA} bytes: pass trust=True to load it nevertheless")
        data = json.loads(archive.read("data"))
    objects: dict[str, Any] = {"bsrs_shaping": None}
    if trust:
        return data.get("bsrs_shaping"), objects
    if data.get("tensorboard_log") and "tensorboard_log" not in replaced:
        say("the file's tensorboard_log is left out: pass tensorboard_log=... to write logs")
    objects |= {name: None for name in NOT_FROM_FILES if name in data}
    for name, item in data.items():
        if name not in {*objects, *replaced} and isinstance(item, dict) and ":serialized:" in item:
            objects[name] = _without_code(name, item[":serialized:"])
    return data.get("bsrs_shaping"), objects


def _without_code(name: str, text: str) -> Any:
    try:
        return read_pickle(base64.b64decode(text))
    except BadInput as error:
        raise BadInput(
            f"SB3's format can execute code, and the entry {name!r} may do so ({error}): pass trust=True"
            f" if you know where the file comes from, or replace the entry by custom_objects={{{name!r}: ...}}"
        ) from None
