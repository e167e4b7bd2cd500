"""Configs as plain data, and back with their types checked."""

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Literal, TypeVar

from bsrs.errors import BadInput, unknown

Config = TypeVar("Config")

ALSO_CALLED = {
    "steps": ("max_steps", "total_timesteps", "timesteps"),
    "learning_rate": ("lr",),
    "hidden": ("net_arch", "hidden_sizes"),
    "buffer_size": ("buffer", "replay_size", "memory_size"),
    "exploration_final_eps": ("eps", "epsilon"),
    "gamma": ("discount",),
    "n_envs": ("num_envs",),
}
"""Field -> what others call it. Flags take these names too; elsewhere the error says what to write."""


def to_dict(config: Any) -> dict[str, Any]:
    """Return the config as plain data: what `config.json` holds."""
    return dataclasses.asdict(config)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_dict(cls: type[Config], data: dict[str, Any], where: str = "config") -> Config:
    """A config from plain data. A wrong name, type or missing field is one clear sentence: nothing is guessed."""
    hints = _hints(typing.cast(Any, cls))
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, cls))}
    for name in data:
        if name not in fields:
            meant = next((field for field, names in ALSO_CALLED.items() if name in names and field in fields), None)
            why = f"unknown field {name!r}: it is called {meant} here" if meant else unknown("field", name, fields)
            raise BadInput(f"{where}: {why}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise BadInput(f"{where}: field {name!r} is missing")
    return cls(**{name: typed(value, hints[name], f"{where}: field {name!r}") for name, value in data.items()})


def typed(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type `hint` says, or BadInput. Lists become tuples and whole numbers floats; no other casts."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in args:
            try:
                return typed(value, option, where)
            except BadInput:
                continue
    elif origin is Literal:
        if value in args and type(value) in {type(a) for a in args}:
            return value
    elif origin is tuple:
        if isinstance(value, (list, tuple)):
            options = args[:1] * len(value) if args[-1] is Ellipsis else args
            if len(options) == len(value):
                return tuple(typed(v, option, where) for v, option in zip(value, options, strict=True))
    elif origin is dict:
        if isinstance(value, dict):
            return value
    elif hint is float:
        if isinstance(value, float) or (type(value) is int and abs(value) < 2**1000):
            return float(value)
    elif hint is type(None):
        if value is None:
            return None
    elif type(value) is hint:
        return value
    raise BadInput(f"{where} is {repr(value)[:80]}; expected {_describe(hint)}")


def _describe(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is tuple:
        return f"a list of {_describe(args[0])}"
    if hint is type(None):
        return "nothing"
    return str(getattr(hint, "__name__", hint))
