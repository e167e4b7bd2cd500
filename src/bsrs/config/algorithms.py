"""The algorithms by name: their configs, and their presets, which are data files beside this module."""

from __future__ import annotations

import importlib
import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from typing import Any

from bsrs.config.base import from_dict
from bsrs.config.training import TrainingConfig
from bsrs.errors import unknown

# name -> where its config lives
CONFIGS: dict[str, str] = {
    "dqn": "bsrs.config.dqn:DQNConfig",
    "sac": "bsrs.config.sac:SACConfig",
    "tabular": "bsrs.config.table_run:TableRunConfig",
    "td3": "bsrs.config.td3:TD3Config",
}

# name -> (kind:env, the preset that suits it); the first that fits counts
_SUITS: dict[str, tuple[tuple[str, str], ...]] = {
    "dqn": (("atari:*", "atari"), ("minatar:*", "minatar"), ("*", "classic")),
    "sac": (("gym:Pendulum-*", "pendulum"), ("*", "mujoco")),
    "tabular": (("*", "exact"),),
    "td3": (("gym:Pendulum-*", "pendulum"), ("*", "mujoco")),
}


def config_type(algorithm: str) -> type[TrainingConfig]:
    """The class of the algorithm's configs."""
    if algorithm not in CONFIGS:
        raise unknown("algorithm", algorithm, CONFIGS)
    module, _, name = CONFIGS[algorithm].partition(":")
    found: type[TrainingConfig] = getattr(importlib.import_module(module), name)
    return found


def preset(algorithm: str, name: str, **fields: Any) -> TrainingConfig:
    """The config of a preset, with `fields` (at least `env`) in place of what it says."""
    presets = _presets(algorithm)
    if name not in presets:
        raise unknown(f"{algorithm} preset", name, presets)
    return from_dict(config_type(algorithm), {**presets[name], **fields}, f"{algorithm} preset {name}")


def suitable_preset(algorithm: str, kind: str, env: str) -> str:
    """The name of the preset for an env of that kind and id."""
    config_type(algorithm)  # the name is known
    return next(name for pattern, name in _SUITS[algorithm] if fnmatch(f"{kind}:{env}", pattern))


def _presets(algorithm: str) -> dict[str, dict[str, Any]]:
    config_type(algorithm)  # the name is known
    return tomllib.loads(files("bsrs.config").joinpath("presets", f"{algorithm}.toml").read_text())
