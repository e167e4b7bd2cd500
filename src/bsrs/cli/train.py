"""`bsrs train ALGORITHM` and `bsrs play`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bsrs.cli.flags import number_or_text, optional_flags, set_flags
from bsrs.config.algorithms import config_type, preset
from bsrs.config.dqn import DQNConfig
from bsrs.config.sac import SACConfig
from bsrs.config.td3 import TD3Config
from bsrs.config.training import TrainingConfig
from bsrs.run import RunOptions, default_preset, folder_name, run

_OWN = {"env", "eta", "seed"}


@dataclass(frozen=True, kw_only=True)
class TrainArguments(RunOptions):
    """What every `bsrs train` command takes."""

    env: str
    """The env's id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: tuple[str, ...] = ("0",)
    """Shape-scale: a number, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA.
    Several train a population."""
    seed: tuple[int, ...] = (0,)
    """Several train a population."""
    preset: str = ""
    """Settings that are not given as flags; by default those that suit the kind of env."""
    out: Path | None = None
    """Folder of the run; of a population, one folder in it per member. By default a folder of its own in `runs`."""


if TYPE_CHECKING:
    DQNArguments: TypeAlias = TrainArguments
    SACArguments: TypeAlias = TrainArguments
    TD3Arguments: TypeAlias = TrainArguments
else:
    DQNArguments = optional_flags(DQNConfig, (TrainArguments,), "DQNArguments", _OWN)
    SACArguments = optional_flags(SACConfig, (TrainArguments,), "SACArguments", _OWN)
    TD3Arguments = optional_flags(TD3Config, (TrainArguments,), "TD3Arguments", _OWN)


def dqn(arguments: DQNArguments) -> None:
    """Train DQN."""
    train("dqn", arguments)


def td3(arguments: TD3Arguments) -> None:
    """Train TD3."""
    train("td3", arguments)


def sac(arguments: SACArguments) -> None:
    """Train SAC."""
    train("sac", arguments)


def train(algorithm: str, arguments: TrainArguments) -> None:
    """Train one run, or a population of every eta with every seed."""
    from bsrs.cli.progress import show_progress

    configs = [_config(algorithm, arguments, eta, seed) for eta in arguments.eta for seed in arguments.seed]
    folders = _folders(configs, arguments.out)
    with show_progress(configs[0].steps, f"{algorithm} {arguments.env}") as progress:
        outcomes = run(configs, folders, _options(arguments), progress)
    for folder, outcome in zip(folders, outcomes, strict=True):
        score = "none" if outcome.score is None else f"{outcome.score:.2f}"
        print(f"{folder}: {outcome.outcome} at step {outcome.step:,}, score {score}  {outcome.reason}".rstrip())


def _folders(configs: list[TrainingConfig], out: Path | None) -> list[Path]:
    if out is not None and len(configs) == 1:
        return [out]
    return [(out or Path("runs")) / folder_name(config) for config in configs]


def _config(algorithm: str, arguments: TrainArguments, eta: str, seed: int) -> TrainingConfig:
    given: dict[str, Any] = {
        **set_flags(arguments, config_type(algorithm), _OWN),
        "eta": number_or_text(eta),
        "seed": seed,
    }
    if arguments.preset:
        return preset(algorithm, arguments.preset, env=arguments.env, **given)
    return default_preset(algorithm, arguments.env, **given)


def _options(arguments: TrainArguments) -> RunOptions:
    return RunOptions(**{field.name: getattr(arguments, field.name) for field in fields(RunOptions)})
