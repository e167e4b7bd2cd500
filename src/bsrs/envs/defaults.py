"""The settings that suit a kind of env."""

from __future__ import annotations

from functools import cache
from typing import Any

from bsrs.config.algorithms import find_algorithm, preset, suitable_preset
from bsrs.config.training import TrainingConfig
from bsrs.envs.catalogue import make
from bsrs.envs.spec import EnvSpec
from bsrs.errors import say


@cache
def spec_of(env: str) -> EnvSpec:
    """What there is to know of an env before it is used; it is made once to see."""
    envs = make(env, 1, 0, training=True)
    envs.close()
    if envs.spec.observations and envs.spec.observations.note:
        say(envs.spec.observations.note)
    return envs.spec


def default_preset(algorithm: str, env: str, /, **fields: Any) -> TrainingConfig:
    """The preset that suits the kind of env, with `fields` in place of what it says."""
    kind = spec_of(env).kind if find_algorithm(algorithm).agent else "table"
    return preset(algorithm, suitable_preset(algorithm, kind, env), env=env, **fields)
