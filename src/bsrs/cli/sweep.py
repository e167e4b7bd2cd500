"""`bsrs sweep` and `bsrs runs`: parsing and printing only."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bsrs.cli.flags import algorithm_flags, number_or_text, set_flags
from bsrs.config.sweep import SweepConfig, SweepOptions, default_out
from bsrs.errors import BadInput, printable

if TYPE_CHECKING:
    from bsrs.config.training import TrainingConfig
    from bsrs.sweep.conduct import Summary


@dataclass(frozen=True, kw_only=True)
class HowToSweep(SweepOptions):
    """What every `bsrs sweep` command takes."""

    dry_run: bool = False
    """Print the runs, train for a few seconds to see what they will cost, and stop."""
    out: Path | None = None
    """Folder of the sweep, with a folder in it for each run. Repeat the command to continue an unfinished sweep."""


@dataclass(frozen=True, kw_only=True)
class SweepArguments(HowToSweep):
    """A sweep from flags."""

    env: tuple[str, ...]
    """Ids of the envs."""
    eta: tuple[str, ...] = ("0",)
    """Shape-scales: numbers, auto, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA."""
    seeds: int = 1
    """How many seeds, from `first_seed` on."""
    first_seed: int = 0
    """The first of the seeds."""
    preset: str = ""
    """Settings that are not given as flags; by default those that suit the kind of env."""


@dataclass(frozen=True, kw_only=True)
class PresetArguments(HowToSweep):
    """A sweep from a data file."""

    file: Annotated[Path | None, tyro.conf.Positional] = None
    """A TOML file of your own."""
    preset: str = ""
    """One of the project's: paper-tabular, paper-atari, paper-pendulum, paper-mujoco, paper-target-ablation."""
    scale: str = ""
    """smoke (seconds), laptop (minutes to an hour on two cores) or paper."""
    set: tuple[str, ...] = ()
    """Settings of the algorithm to change, as NAME=VALUE."""


def command(algorithm: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs sweep ALGORITHM`: its flags and its function."""
    return algorithm_flags(algorithm, SweepArguments), partial(_from_flags, algorithm)


def preset(arguments: PresetArguments) -> None:
    """Sweep what a preset or a file says."""
    from bsrs.sweep.plan import preset_names, read_sweep

    if bool(arguments.file) == bool(arguments.preset):
        raise BadInput(f"expected a TOML file or one --preset of {', '.join(preset_names())}")
    name = arguments.preset or str(arguments.file)
    sweep = read_sweep(name, arguments.scale, dict(map(_setting, arguments.set)))
    _carry_out(sweep, arguments, default_out("-".join(filter(None, (Path(name).stem, arguments.scale)))))


def _from_flags(algorithm: str, arguments: SweepArguments) -> None:
    sweep = SweepConfig(
        algorithm=algorithm,
        env=arguments.env,
        eta=tuple(map(number_or_text, arguments.eta)),
        seeds=arguments.seeds,
        first_seed=arguments.first_seed,
        preset=arguments.preset,
        fields=set_flags(arguments, algorithm),
    )
    _carry_out(sweep, arguments, default_out(f"{algorithm}-{'-'.join(arguments.env)}".replace("/", "-")))


def _carry_out(sweep: SweepConfig, arguments: HowToSweep, otherwise: Path) -> None:
    from bsrs.sweep.plan import expand

    configs = expand(sweep)
    out = arguments.out or otherwise
    options = SweepOptions(**{field.name: getattr(arguments, field.name) for field in fields(SweepOptions)})
    if arguments.dry_run:
        _print_plan(configs, out, options)
        return
    from bsrs.sweep.conduct import run_sweep

    summary = run_sweep(configs, out, options)
    print(f"{out}: {_told(summary, len(configs))}")
    for name, why in summary.problems.items():
        print(printable(f"  {name}: {why}"))
    _print_answer(configs, out)
    if summary.problems:
        raise SystemExit(1)


def _print_answer(configs: Sequence[TrainingConfig], out: Path) -> None:
    """Which eta these runs speak for, where there was a choice. Exact tables need no statistics."""
    if configs[0].algorithm == "tabular" or len({config.eta for config in configs}) < 2:
        return
    from bsrs.cli.recommend import print_recommendations
    from bsrs.stats.recommend import recommend
    from bsrs.stats.records import read_runs, series_of
    from bsrs.store.names import folder_name

    planned = {folder_name(config) for config in configs}
    print_recommendations(recommend(series_of([run for run in read_runs(out)[0] if run.folder.name in planned])))


def _print_plan(configs: Sequence[TrainingConfig], out: Path, options: SweepOptions) -> None:
    from bsrs.store.names import folder_name
    from bsrs.sweep.measure import PROCESS_BYTES, core_seconds, replay_bytes
    from bsrs.sweep.plan import describe, tasks_left
    from bsrs.sweep.view import duration

    tasks = tasks_left(configs, out, options)
    left = {name for task in tasks for name in task.names}
    for config in configs:
        name = folder_name(config)
        print(name if name in left else f"{name}  (done)")
    seconds = core_seconds(tasks)
    memory = PROCESS_BYTES + max((sum(map(replay_bytes, task.configs)) for task in tasks), default=0.0)
    workers = options.local_workers
    where = f", {duration(seconds / workers)} with {workers} workers," if options.executor == "local" else ""
    print(
        f"{len(configs)} runs, {len(configs) - len(left)} of them done; the rest takes about {duration(seconds)} of one"
        f" core{where} and {memory / 1e9:.1f} GB of memory per worker, as measured just now"
    )
    print(describe(tasks, options))


def _told(summary: Summary, planned: int) -> str:
    states = Counter(status.state for status in summary.statuses)
    before = planned - len(summary.statuses) - len(summary.problems)
    words = [f"{number} {state}" for state, number in sorted(states.items())]
    words += [f"{len(summary.problems)} without a result"] if summary.problems else []
    words += [f"{before} done before"] if before else []
    return f"{planned} runs: {', '.join(words)}"


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {text}: expected NAME=VALUE")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
