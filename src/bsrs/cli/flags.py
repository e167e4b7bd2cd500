"""Command-line flags from a config class: every field becomes a flag that is unset unless the user sets it.

So a preset can say what the user did not, and the config's own docstrings are the help.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from typing import Annotated, Any

import tyro

from bsrs.config.training import TrainingConfig


def optional_flags(config: type[TrainingConfig], bases: tuple[type, ...], name: str, skip: set[str]) -> type:
    """A frozen dataclass like `bases` with a flag for each field of `config` but those in `skip`."""
    hints, docs = typing.get_type_hints(config), _field_docs(config)
    flags = [field.name for field in dataclasses.fields(config) if field.name not in skip]
    fields = [(flag, _flag(hints[flag], docs[flag]), dataclasses.field(default=_unset(hints[flag]))) for flag in flags]
    return dataclasses.make_dataclass(name, fields, bases=bases, frozen=True, kw_only=True)


def set_flags(arguments: Any, config: type[TrainingConfig], skip: set[str]) -> dict[str, Any]:
    """The fields of `config` that the user set."""
    hints = typing.get_type_hints(config)
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(config) if f.name not in skip}
    return {name: value for name, value in values.items() if value != _unset(hints[name])}


def number_or_text(eta: str) -> float | str:
    """A shape-scale as it is written on the command line."""
    try:
        return float(eta)
    except ValueError:
        return eta


def _unset(hint: Any) -> Any:
    """What stands for "not given". Switches are off unless given: no preset turns one on."""
    return False if hint is bool else None


def _flag(hint: Any, doc: str) -> Any:
    if hint is bool:
        return Annotated[bool, tyro.conf.arg(help=doc), tyro.conf.FlagCreatePairsOff]
    metavar = {int: "INT", float: "FLOAT"}.get(hint)
    return Annotated[hint | None, tyro.conf.arg(help=f"{doc} Unset: as the preset says.", metavar=metavar)]


def _field_docs(config: type) -> dict[str, str]:
    """The string below each field in the source of the class and its parents."""
    docs: dict[str, str] = {}
    for cls in reversed([c for c in config.__mro__ if dataclasses.is_dataclass(c)]):
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
        for field, doc in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docs[typing.cast(ast.Name, field.target).id] = " ".join(str(doc.value.value).split())
    return docs
