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
    from bsrs.config.agents import DQNConfig as DQNConfig
    from bsrs.config.agents import SACConfig as SACConfig
    from bsrs.config.agents import TD3Config as TD3Config
    from bsrs.config.algorithms import register as register
    from bsrs.learners import DQN as DQN
    from bsrs.learners import SAC as SAC
    from bsrs.learners import TD3 as TD3

__version__ = "0.1.0"

# Loaded when first asked for, so that `import bsrs` stays light: name -> where it lives.
_LAZY: dict[str, str] = {
    "DQN": "bsrs.learners:DQN",
    "DQNConfig": "bsrs.config.agents:DQNConfig",
    "SAC": "bsrs.learners:SAC",
    "SACConfig": "bsrs.config.agents:SACConfig",
    "TD3": "bsrs.learners:TD3",
    "TD3Config": "bsrs.config.agents:TD3Config",
    "register": "bsrs.config.algorithms:register",
    "tabular": "bsrs.tabular",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bsrs' has no attribute {name!r}")
    module_name, _, attribute = _LAZY[name].partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, attribute) if attribute else module


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
