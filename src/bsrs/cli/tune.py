"""`bsrs tune ALGORITHM`: parsing and printing only."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bsrs.cli.flags import optional_flags, set_flags
from bsrs.config.algorithms import config_type
from bsrs.config.dqn import DQNConfig
from bsrs.config.sac import SACConfig
from bsrs.config.sweep import SweepOptions, TuneConfig
from bsrs.config.td3 import TD3Config

_OWN = {"env", "eta", "seed"}


@dataclass(frozen=True, kw_only=True)
class TuneArguments(SweepOptions):
    """What every `bsrs tune` command takes."""

    env: str
    """The env's id."""
    low: float = 0.0
    """Smallest eta."""
    high: float = 5.0
    """Largest eta."""
    trials: int = 20
    """Etas that are tried in all, earlier ones in the folder among them."""
    startup: int = 5
    """Trials that are drawn at random and never stopped early, before the search proper begins."""
    seeds: int = 3
    """Runs of each trial; their mean score counts."""
    seed: int = 0
    """Of the search itself."""
    no_prune: bool = False
    """Let every trial come to its end."""
    preset: str = ""
    """Settings that are not given as flags; by default those that suit the kind of env."""
    out: Path
    """Folder of the search. The same again goes on with it."""


if TYPE_CHECKING:
    DQNTune: TypeAlias = TuneArguments
    TD3Tune: TypeAlias = TuneArguments
    SACTune: TypeAlias = TuneArguments
else:
    DQNTune = optional_flags(DQNConfig, (TuneArguments,), "DQNTune", _OWN)
    TD3Tune = optional_flags(TD3Config, (TuneArguments,), "TD3Tune", _OWN)
    SACTune = optional_flags(SACConfig, (TuneArguments,), "SACTune", _OWN)


def dqn(arguments: DQNTune) -> None:
    """Tune eta of DQN."""
    _tune("dqn", arguments)


def td3(arguments: TD3Tune) -> None:
    """Tune eta of TD3."""
    _tune("td3", arguments)


def sac(arguments: SACTune) -> None:
    """Tune eta of SAC."""
    _tune("sac", arguments)


def _tune(algorithm: str, arguments: TuneArguments) -> None:
    from bsrs.sweep.tune import best, tune

    config = TuneConfig(
        algorithm=algorithm,
        prune=not arguments.no_prune,
        fields=set_flags(arguments, config_type(algorithm), _OWN),
        **{name: getattr(arguments, name) for name in _SHARED},
    )
    options = SweepOptions(**{field.name: getattr(arguments, field.name) for field in fields(SweepOptions)})
    trials = tune(config, arguments.out, options, lambda message: print(message, file=sys.stderr, flush=True))
    found = best(trials)
    stopped = sum(trial.score is None for trial in trials)
    print(f"best eta {found.eta:.4g}: mean score {found.score:.2f} ({len(trials)} trials, {stopped} not finished)")


_SHARED = ("env", "low", "high", "trials", "startup", "seeds", "seed", "preset")
