"""Command-line flags from an algorithm's config class: each field is a flag that is unset unless the user gives it.

So a preset fills in what the user did not give. The config's own docstrings are the help, with the presets' values.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from typing import Annotated, Any

import tyro

from bsrs.config.algorithms import Algorithm, find_algorithm

# Fields that every command takes in a form of its own.
OWN = {"env", "eta", "seed"}
# field -> what others call it
_ALIASES = {"steps": ["--max-steps", "--total-timesteps"]}


def algorithm_flags(algorithm: str, base: type) -> type:
    """A frozen dataclass like `base` with a flag for each field of the algorithm's config."""
    row = find_algorithm(algorithm)
    hints, docs = typing.get_type_hints(row.config_class), _field_docs(row.config_class)
    fields = [
        (field.name, _flag(hints[field.name], docs.get(field.name, ""), field, row), _unset(hints[field.name]))
        for field in dataclasses.fields(row.config_class)
        if field.name not in OWN
    ]
    name = f"{row.config_class.__name__}{base.__name__}"
    return dataclasses.make_dataclass(name, fields, bases=(base,), frozen=True, kw_only=True)


def set_flags(arguments: Any, algorithm: str) -> dict[str, Any]:
    """The fields of the algorithm's config that the user gave."""
    config = find_algorithm(algorithm).config_class
    hints = typing.get_type_hints(config)
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(config) if f.name not in OWN}
    return {name: value for name, value in values.items() if value != _unset(hints[name])}


def number_or_text(eta: str) -> float | str:
    """A shape-scale as it is written on the command line."""
    try:
        return float(eta)
    except ValueError:
        return eta


def preset_values(row: Algorithm, field: dataclasses.Field[Any]) -> dict[str, Any]:
    """Preset -> its value of the field."""
    return {name: fields.get(field.name, field.default) for name, fields in row.presets.items()}


def as_text(value: Any) -> str:
    """A field's value as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(as_text, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unset(hint: Any) -> Any:
    """What stands for "not given". Switches are off unless given."""
    return False if hint is bool else None


def _flag(hint: Any, doc: str, field: dataclasses.Field[Any], row: Algorithm) -> Any:
    if hint is bool:
        return Annotated[bool, tyro.conf.arg(help=doc), tyro.conf.FlagCreatePairsOff]
    values = {name: as_text(value) for name, value in preset_values(row, field).items()}
    same = set(values.values())
    shown = f"default: {same.pop()}" if len(same) == 1 else ", ".join(f"{name}: {v}" for name, v in values.items())
    metavar = {int: "INT", float: "FLOAT"}.get(hint)
    about = tyro.conf.arg(help=doc, metavar=metavar, help_behavior_hint=f"({shown})", aliases=_ALIASES.get(field.name))
    return Annotated[hint | None, about]


def _field_docs(config: type) -> dict[str, str]:
    """The string below each field in the source of the class and its parents."""
    docs: dict[str, str] = {}
    for cls in reversed([c for c in config.__mro__ if dataclasses.is_dataclass(c)]):
        try:
            body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
        except (OSError, TypeError):  # a class without a source file
            continue
        for field, doc in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docs[typing.cast(ast.Name, field.target).id] = " ".join(str(doc.value.value).split())
    return docs
