"""Your Python objects by name, so that a config can hold them.

    MODULE:NAME             a function, a class, or an object that a module has
    MODULE:NAME(a=1)        what the class or function makes of these arguments
    python/NAME(a=1)-1f3a5c  what no file can hold: a lambda, an object of a notebook. Whoever loads it passes it again.

`name_of` names an object, `object_named` finds it. Looking at a name imports nothing.
"""

import ast
import dataclasses
import hashlib
import importlib
import os
import pkgutil
import re
import sys
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from bsrs.errors import BadInput, in_short

PREFIX = "python/"
LONGEST = 160
_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)(\(.*\))?")

# What was named in this process and cannot be imported.
_given: dict[str, Any] = {}


def is_object_name(text: object) -> bool:
    """Whether a setting is the name of an object."""
    return isinstance(text, str) and (text.startswith(PREFIX) or _NAME.fullmatch(text) is not None)


def name_of(thing: Any) -> str:
    """Name a function, a class or an object by import path and arguments, or as python/NAME."""
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    module, qualname = getattr(kind, "__module__", None), str(getattr(kind, "__qualname__", type(thing).__name__))
    arguments = {} if kind is thing else _arguments(thing)
    literal = all(is_literal(value) for value in arguments.values())
    listed = ", ".join(f"{key}={_shown(value)}" for key, value in arguments.items())
    call = f"({listed})" if listed else ""
    is_stateless = kind.__init__ is object.__init__ and kind.__new__ is object.__new__ and not arguments
    can_make = kind is thing or dataclasses.is_dataclass(thing) or is_stateless
    if module not in (None, "__main__") and _look_up(str(module), qualname) is kind and literal and can_make:
        name = f"{module}:{qualname}{call}"
        if len(name) <= LONGEST and name.isprintable():
            return name
    short = qualname.replace("<locals>.", "").replace("<lambda>", "lambda")[:50]
    call = call if len(call) <= 80 else f"{call[:80]}...)"
    name = f"{PREFIX}{short}{call if call.isprintable() else ''}-{_digest(thing)}"
    _given[name] = thing
    return name


def object_named(name: str, what: str) -> Any:
    """Find the object that `name_of` or the user named. `what` it is for says the sentence if there is none."""
    if name.startswith(PREFIX):
        if name not in _given:
            again = f"pass it again, as in bsrs.load(folder, {what}=...)"
            raise BadInput(f"the {what} {name!r} was a Python object, which is not saved: {again}")
        return _given[name]
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise BadInput(f"the {what} {name[:80]!r} cannot be read; expected MODULE:NAME or MODULE:NAME(setting=value)")
    module, attribute, call = parts.groups()
    import_from_here(module, f"for the {what} {name!r}")
    found = _look_up(module, attribute)
    if found is None:
        raise BadInput(f"the module {module!r} has no {attribute!r} for the {what} {name!r}")
    if call is None:
        return found
    try:
        return found(**read_arguments(call))
    except (TypeError, ValueError) as error:
        raise BadInput(f"the {what} {name!r} cannot be made: {error}") from None


def import_from_here(name: str, purpose: str) -> ModuleType:
    """Import a module that is installed or lies in this folder, where the command `bsrs` itself would not look."""
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        raise BadInput(
            f"{name[:80]!r} {purpose} is no name of a module; expected one such as my_envs, without a path or .py"
        )
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise BadInput(f"the module {name!r} {purpose} cannot be imported: {in_short(error)}") from error
        where = f"neither installed nor in this folder, {os.getcwd()}"
        raise BadInput(f"there is no module {name!r} {purpose}, {where}; is PYTHONPATH set to where it is?") from None


def _look_up(module: str, name: str) -> Any:
    try:
        return pkgutil.resolve_name(f"{module}:{name}")
    except (ImportError, AttributeError, ValueError):
        return None


# --------------------------------------------------------------------------------------------------------------
# Arguments: what an object was made with, as far as it shows.


def _arguments(thing: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(thing):
        fields = [field for field in dataclasses.fields(thing) if field.init]
        pairs = [(field.name, getattr(thing, field.name), field.default) for field in fields]
        return {name: value for name, value, default in pairs if not (is_literal(value) and value == default)}
    return {name: value for name, value in getattr(thing, "__dict__", {}).items() if not name.startswith("_")}


def is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def _shown(value: Any) -> str:
    if is_literal(value):
        return repr(value)
    name = getattr(value, "__qualname__", type(value).__qualname__).replace("<lambda>", "lambda")
    return f"{name}{tuple(value.shape)}" if hasattr(value, "shape") else name


def read_value(text: str) -> Any:
    """A number, a list, True or None as Python writes it; anything else is text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False}.get(text, text)


def read_arguments(call: str) -> dict[str, Any]:
    node = ast.parse(f"f{call}", mode="eval").body
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("expected settings as NAME=VALUE")
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}


def _digest(thing: Any) -> str:
    """Six hex digits that tell apart objects of one name: by their code and by what they hold."""
    return hashlib.sha256(repr(_content(thing, 4)).encode()).hexdigest()[:6]


def _content(thing: Any, depth: int) -> Any:
    """What an object is made of, without addresses in memory."""
    if is_literal(thing) or depth == 0:
        return repr(thing) if is_literal(thing) else type(thing).__qualname__
    if isinstance(thing, (type, ModuleType)):
        return thing.__name__
    if isinstance(thing, CodeType):
        return thing.co_code, thing.co_names, [_content(const, depth - 1) for const in thing.co_consts]
    if code := getattr(thing, "__code__", None):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        owner = [thing.__self__] if hasattr(thing, "__self__") else []
        return [_content(part, depth - 1) for part in (code, *(thing.__defaults__ or ()), *cells, *owner)]
    if isinstance(thing, partial):
        return [_content(part, depth - 1) for part in (thing.func, *thing.args, *thing.keywords.items())]
    if hasattr(thing, "tolist"):
        return repr(thing.tolist())
    if isinstance(thing, (list, tuple)):
        return [_content(part, depth - 1) for part in thing]
    held = sorted(getattr(thing, "__dict__", {}).items())
    return type(thing).__qualname__, {name: _content(part, depth - 1) for name, part in held}
