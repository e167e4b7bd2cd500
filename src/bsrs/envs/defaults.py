"""The settings that suit a kind of env."""

from functools import cache
from typing import Any

from bsrs.config.algorithms import find_algorithm, first_match, preset
from bsrs.config.training import TrainingConfig
from bsrs.envs.catalogue import make
from bsrs.envs.spec import EnvSpec
from bsrs.errors import say


@cache
def spec_of(env: str) -> EnvSpec:
    """What there is to know of an env before it is used; it is made once to see."""
    envs = make(env, 1, 0, training=True)
    envs.close()
    for note in envs.spec.notes:
        say(note)
    return envs.spec


def default_preset(algorithm: str, /, env: str, **fields: Any) -> TrainingConfig:
    """The preset that suits the kind of env, with `fields` in place of what it says."""
    row = find_algorithm(algorithm)
    kind = spec_of(env).kind if row.agent else "table"
    return preset(algorithm, first_match(row.suits, kind, env), env=env, **fields)
