"""bsrs: bootstrapped reward shaping. Start with `bsrs.shaping`."""

import importlib
from typing import TYPE_CHECKING, Any

from bsrs.errors import BadInput as BadInput
from bsrs.shaping import Bootstrapped as Bootstrapped
from bsrs.shaping import Constant as Constant
from bsrs.shaping import Cosine as Cosine
from bsrs.shaping import Linear as Linear
from bsrs.shaping import PerState as PerState
from bsrs.shaping import Piecewise as Piecewise
from bsrs.shaping import RandomDynamic as RandomDynamic
from bsrs.shaping import Seen as Seen
from bsrs.shaping import ShapeScale as ShapeScale
from bsrs.shaping import Shaping as Shaping
from bsrs.shaping import Static as Static
from bsrs.shaping import shaped_reward as shaped_reward

if TYPE_CHECKING:
    from bsrs import tabular as tabular
    from bsrs.config.agents import DQNConfig as DQNConfig
    from bsrs.config.agents import SACConfig as SACConfig
    from bsrs.config.agents import TD3Config as TD3Config
    from bsrs.config.algorithms import register as register
    from bsrs.learners import DQN as DQN
    from bsrs.learners import SAC as SAC
    from bsrs.learners import TD3 as TD3
    from bsrs.learners import load as load

__version__ = "0.2.0"

# Loaded at first use, so that `import bsrs` stays fast: name -> its module.
_LAZY = {"register": "config.algorithms", "tabular": "tabular"}
_LAZY |= dict.fromkeys(("DQN", "SAC", "TD3", "load"), "learners")
_LAZY |= dict.fromkeys(("DQNConfig", "SACConfig", "TD3Config"), "config.agents")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bsrs' has no attribute {name!r}")
    module = importlib.import_module(f"bsrs.{_LAZY[name]}")
    return module if name == _LAZY[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
