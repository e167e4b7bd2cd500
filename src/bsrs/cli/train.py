"""`bsrs train ALGORITHM`."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from bsrs.cli.flags import algorithm_flags, number_or_text, set_flags
from bsrs.config.algorithms import preset
from bsrs.config.options import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class TrainArguments(RunOptions):
    """What every `bsrs train` command takes."""

    env: str
    """The env's id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: tuple[str, ...] = ("0",)
    """Shape-scale: a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA.
    Several train a population."""
    seed: tuple[int, ...] = (0,)
    """Several train a population."""
    preset: str = ""
    """Settings that are not given as flags (see `bsrs presets`); by default those that suit the kind of env."""
    out: Path | None = None
    """Folder of the run; of a population, one folder in it per member. By default a new folder in `runs`."""


def command(algorithm: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs train ALGORITHM`: its flags and its function."""
    return algorithm_flags(algorithm, TrainArguments), partial(train, algorithm)


def train(algorithm: str, arguments: TrainArguments) -> None:
    """Train one run, or a population of every eta with every seed."""
    from bsrs.cli.progress import show_progress
    from bsrs.run import run

    if not arguments.eta or not arguments.seed:
        raise BadInput("--eta or --seed has no value; expected at least one")
    configs = [_config(algorithm, arguments, eta, seed) for eta in arguments.eta for seed in arguments.seed]
    folders = _folders(configs, arguments.out)
    options = RunOptions(**{field.name: getattr(arguments, field.name) for field in fields(RunOptions)})
    with show_progress(configs[0].steps, f"{algorithm} {arguments.env}") as progress:
        outcomes = run(configs, folders, options, progress)
    for folder, outcome in zip(folders, outcomes, strict=True):
        score = "none" if outcome.score is None else f"{outcome.score:.2f}"
        print(f"{folder}: {outcome.outcome} at step {outcome.step:,}, score {score}  {outcome.reason}".rstrip())


def _folders(configs: list[TrainingConfig], out: Path | None) -> list[Path]:
    from bsrs.store.names import folder_name

    if out is not None and len(configs) == 1:
        return [out]
    return [(out or Path("runs")) / folder_name(config) for config in configs]


def _config(algorithm: str, arguments: TrainArguments, eta: str, seed: int) -> TrainingConfig:
    from bsrs.envs.defaults import default_preset

    given = {**set_flags(arguments, algorithm), "eta": number_or_text(eta), "seed": seed}
    if arguments.preset:
        return preset(algorithm, arguments.preset, env=arguments.env, **given)
    return default_preset(algorithm, arguments.env, **given)
