"""Command-line flags from a config class: every field becomes a flag that is unset unless the user sets it.

So a preset can say what the user did not, and the config's own docstrings are the help.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from typing import Annotated, Any

import tyro

from bsrs.config.training import TrainingConfig


def optional_flags(config: type[TrainingConfig], bases: tuple[type, ...], name: str, skip: set[str]) -> type:
    """A frozen dataclass like `bases` with a flag for each field of `config` but those in `skip`."""
    hints, docs = typing.get_type_hints(config), _field_docs(config)
    fields = [
        (
            field.name,
            Annotated[hints[field.name] | None, tyro.conf.arg(help=f"{docs[field.name]} Unset: as the preset says.")],
            dataclasses.field(default=None),
        )
        for field in dataclasses.fields(config)
        if field.name not in skip
    ]
    return dataclasses.make_dataclass(name, fields, bases=bases, frozen=True, kw_only=True)


def set_flags(arguments: Any, config: type[TrainingConfig], skip: set[str]) -> dict[str, Any]:
    """The fields of `config` that the user set."""
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(config) if f.name not in skip}
    return {name: value for name, value in values.items() if value is not None}


def _field_docs(config: type) -> dict[str, str]:
    """The string below each field in the source of the class and its parents."""
    docs: dict[str, str] = {}
    for cls in reversed([c for c in config.__mro__ if dataclasses.is_dataclass(c)]):
        body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
        for field, doc in zip(body, body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docs[typing.cast(ast.Name, field.target).id] = " ".join(str(doc.value.value).split())
    return docs
