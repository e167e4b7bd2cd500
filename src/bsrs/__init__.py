"""bsrs: bootstrapped reward shaping. Start with `bsrs.shaping`."""

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
    from bsrs import tabular
    from bsrs.config.agents import DQNConfig, SACConfig, TD3Config
    from bsrs.config.algorithms import register
    from bsrs.learners import DQN, SAC, TD3

__version__ = "0.1.0"

# Loaded when first asked for, so that `import bsrs` stays light: name -> the module it lives in.
_LAZY = {"register": "config.algorithms", "tabular": "tabular"}
_LAZY |= dict.fromkeys(("DQN", "SAC", "TD3"), "learners")
_LAZY |= dict.fromkeys(("DQNConfig", "SACConfig", "TD3Config"), "config.agents")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bsrs' has no attribute {name!r}")
    module = importlib.import_module(f"bsrs.{_LAZY[name]}")
    return module if name == _LAZY[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


__all__ = [
    "DQN",
    "SAC",
    "TD3",
    "BadInput",
    "Bootstrapped",
    "Constant",
    "Cosine",
    "DQNConfig",
    "Linear",
    "PerState",
    "Piecewise",
    "RandomDynamic",
    "SACConfig",
    "Shaping",
    "Static",
    "TD3Config",
    "__version__",
    "register",
    "shaped_reward",
    "tabular",
]
