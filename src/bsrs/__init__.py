"""bsrs: bootstrapped reward shaping. Start with `bsrs.shaping`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bsrs.errors import BadInput
from bsrs.shaping import (
    Bootstrapped,
    Constant,
    Cosine,
    Linear,
    PerState,
    Piecewise,
    RandomDynamic,
    Shaping,
    Static,
    shaped_reward,
)

if TYPE_CHECKING:
    from bsrs import tabular as tabular

__version__ = "0.1.0"

# Loaded when first asked for, so that `import bsrs` stays light: name -> where it lives.
_LAZY: dict[str, str] = {"tabular": "bsrs.tabular"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bsrs' has no attribute {name!r}")
    module_name, _, attribute = _LAZY[name].partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, attribute) if attribute else module


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


__all__ = [
    "BadInput",
    "Bootstrapped",
    "Constant",
    "Cosine",
    "Linear",
    "PerState",
    "Piecewise",
    "RandomDynamic",
    "Shaping",
    "Static",
    "__version__",
    "shaped_reward",
    "tabular",
]
