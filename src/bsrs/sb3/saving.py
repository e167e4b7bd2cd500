"""What a shaped model's file holds of its shaping, as plain JSON next to what SB3 saves.

Functions are not stored: whoever loads such a model gives them again.
"""

import dataclasses
import json
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np

from bsrs.auto import Movement
from bsrs.errors import BadInput, printable, unknown
from bsrs.naming import is_object_name, name_of
from bsrs.sb3.shaper import ModelShaper, Settings
from bsrs.shaping import Bootstrapped, Constant, Cosine, Linear, PerState, Piecewise, RandomDynamic, Static

FUNCTION = "a function"
_SAVED = (Constant, Linear, Cosine, Piecewise, PerState, Movement, Bootstrapped, Static, RandomDynamic)
KINDS: dict[str, Any] = {cls.__name__: cls for cls in _SAVED}
"""Shape-scales and potentials that are stored with their fields."""
NOTICE = (
    "this model was shaped by bsrs, and is not any more: it predicts as before, but would continue to learn from"
    " unshaped rewards. bsrs.sb3.load(path, Algorithm) loads it shaped; bsrs.sb3.shape(model, eta) shapes it again"
)


class SavedShaping(SimpleNamespace):
    """The attribute `bsrs_shaping` of a shaped model's file, in plain data.

    SB3 stores such an object as its fields, which `load` reads, and as a pickle, which `Algorithm.load` unpickles. It
    only logs a notice, because what `Algorithm.load` returns is not shaped. It does so without bsrs, too.
    """

    def __reduce__(self) -> Any:
        return logging.getLogger("bsrs").warning, (NOTICE,)


def describe(shaper: ModelShaper) -> SavedShaping:
    """How a model is shaped, and where its shaping is now."""
    try:
        return SavedShaping(**json.loads(json.dumps({**_described(shaper.settings), "state": shaper.state()})))
    except (TypeError, ValueError) as error:
        raise BadInput(f"the shaping cannot be saved: what eta remembers must be plain JSON ({error})") from None


def restore(saved: dict[str, Any], given: dict[str, Any]) -> Settings:
    """Return the saved settings, with those that are `given` in their place."""
    names = [field.name for field in dataclasses.fields(Settings)]
    return Settings(**{name: given[name] if name in given else _from_data(saved[name], name) for name in names})


def is_same(one: Settings, other: Settings) -> bool:
    """Whether both ask for the same shaping: functions with the same code are the same."""
    return _described(one) == _described(other)


def _described(settings: Settings) -> dict[str, Any]:
    return {name: _to_data(part) for name, part in vars(settings).items()}


def needs_object(data: Any) -> bool:
    """Whether this was an object of yours, which must be given again: nothing that a file names is imported."""
    return isinstance(data, str) and (data.startswith(FUNCTION) or is_object_name(data))


def _to_data(part: Any) -> Any:
    """Return a shape-scale or potential of bsrs as text, a number, or its name and fields; your code by its name."""
    if part is None or isinstance(part, (str, int, float)):
        return part
    fields = vars(part) if KINDS.get(type(part).__name__) is type(part) else None
    if fields is None or any(callable(value) for value in fields.values()):
        return f"{FUNCTION}: {name_of(part)}"
    return {"type": type(part).__name__, **{name: _plain(value) for name, value in fields.items()}}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) or hasattr(value, "new_tensor") else value


def _from_data(data: Any, name: str) -> Any:
    """The setting that `_to_data` described."""
    if needs_object(data):
        raise BadInput(
            f"the {name} was {printable(data[:200])}, which a file cannot hold: pass {name}=... to load again"
        )
    if data is None or (not isinstance(data, dict) and name != "value_fn"):
        return data
    fields = dict(data)
    kind = str(fields.pop("type"))
    if kind not in KINDS:
        raise unknown(name, kind, KINDS)
    for field in dataclasses.fields(KINDS[kind]):
        if field.name in fields and not _fits(fields[field.name], str(field.type)):
            raise BadInput(f"{name} has {field.name} = {str(fields[field.name])[:40]!r}; expected {field.type}")
    return KINDS[kind](**fields)


def _fits(value: Any, annotation: str) -> bool:
    """Whether a field's value is what it should be: of a simple type, or else finite numbers."""
    if value is None:
        return annotation.endswith("| None")
    simple: Any = {"int": int, "float": (int, float), "str": str, "bool": bool}.get(annotation.removesuffix(" | None"))
    numbers = np.asarray(value)
    return isinstance(value, simple) if simple else numbers.dtype.kind in "iuf" and bool(np.isfinite(numbers).all())
