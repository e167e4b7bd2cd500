"""Modules of the user's own: plugins and envs."""

import importlib
import os
import sys
from types import ModuleType

from bsrs.errors import BadInput


def import_from_here(name: str, purpose: str) -> ModuleType:
    """Import a module that is installed or lies in this folder, where the command `bsrs` itself would not look."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadInput(f"{name[:80]!r} {purpose} is no name of a module")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise BadInput(f"the module {name!r} {purpose} cannot be imported: {error}") from None
        where = f"neither installed nor in this folder, {os.getcwd()}"
        raise BadInput(f"there is no module {name!r} {purpose}, {where}; is PYTHONPATH set to where it is?") from None
