"""Make n copies of an env by name. They step together and repeat exactly. Time limits are not terminal states."""

from bsrs.envs.catalogue import known_envs, make
from bsrs.envs.spec import EnvSpec, require_continuous, require_discrete
from bsrs.envs.vector import Buffers, Envs, Episode

__all__ = ["Buffers", "EnvSpec", "Envs", "Episode", "known_envs", "make", "require_continuous", "require_discrete"]
