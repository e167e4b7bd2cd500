"""A shaped model's file says how it was shaped, as plain JSON beside what SB3 saves; `load` shapes it so again.

Functions are not stored: whoever loads such a model gives them again.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from bsrs import shaping
from bsrs.errors import BadInput, unknown
from bsrs.sb3.shaper import Settings, ValueFunction
from bsrs.shaping import Potential, ShapeScale

FUNCTION = "a function"


def describe(settings: Settings) -> dict[str, Any]:
    """The settings as plain data."""
    return {
        "eta": _to_data(settings.shaping.eta),
        "potential": _to_data(settings.shaping.potential),
        "network": settings.network,
        "terminal": settings.terminal,
        "value_fn": None if settings.value_fn is None else FUNCTION,
        "seed": settings.seed,
    }


def load(
    path: str | Path,
    algorithm: type[Any],
    env: Any = None,
    *,
    eta: ShapeScale | float | str | None = None,
    potential: Potential | None = None,
    value_fn: ValueFunction | None = None,
    **load_arguments: Any,
) -> Any:
    """`algorithm.load(path, env, ...)`, shaped as it was when it was saved.

    `eta`, `potential` and `value_fn` replace what the file says; where it was a function they must be given.
    """
    from bsrs.sb3.attach import shape

    model = algorithm.load(path, env=env, **load_arguments)
    saved = vars(model).get("bsrs_shaping")
    if saved is None:
        raise BadInput(f"{path} holds a model that was not shaped: load it with {algorithm.__name__}.load and shape it")
    if value_fn is None and saved["value_fn"] is not None:
        raise _not_stored(path, "value_fn")
    return shape(
        model,
        _from_data(saved["eta"], path, "eta") if eta is None else eta,
        potential=_from_data(saved["potential"], path, "potential") if potential is None else potential,
        network=saved["network"],
        terminal=saved["terminal"],
        value_fn=value_fn,
        seed=saved["seed"],
    )


def _to_data(part: Any) -> Any:
    """A shape-scale or potential of `bsrs.shaping` as its name and fields; anything with code in it as `FUNCTION`."""
    if type(part).__name__ not in shaping.__all__ or not dataclasses.is_dataclass(part):
        return FUNCTION
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    if any(callable(value) for value in fields.values()):
        return FUNCTION
    return {"type": type(part).__name__, **{name: _plain(value) for name, value in fields.items()}}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) or hasattr(value, "new_tensor") else value


def _from_data(data: Any, path: str | Path, name: str) -> Any:
    if data == FUNCTION:
        raise _not_stored(path, name)
    fields = dict(data)
    kind = fields.pop("type")
    if kind not in shaping.__all__:
        raise unknown(f"{name} in {path}", kind, shaping.__all__)
    return getattr(shaping, kind)(**fields)


def _not_stored(path: str | Path, name: str) -> BadInput:
    return BadInput(f"the {name} of {path} was a function, which the file cannot hold: pass {name}=... to load again")
