"""Envs: from a name to n copies that step together, are exactly repeatable and tell a time limit from an end."""

from bsrs.envs.catalogue import known_envs, make
from bsrs.envs.spec import EnvSpec, require_continuous, require_discrete
from bsrs.envs.vector import Buffers, Envs, Episode

__all__ = ["Buffers", "EnvSpec", "Envs", "Episode", "known_envs", "make", "require_continuous", "require_discrete"]
