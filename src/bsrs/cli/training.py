"""`bsrs train`, `bsrs sweep` and `bsrs presets`."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from bsrs.cli.flags import OWN, algorithm_flags, as_text, preset_values, set_flags
from bsrs.cli.show import print_json, print_recommendations, print_table, show_progress
from bsrs.config.algorithms import Algorithm, algorithms, preset
from bsrs.config.settings import folder_name
from bsrs.config.sweep import RunOptions, SweepConfig, SweepLists, SweepOptions
from bsrs.envs.defaults import default_preset
from bsrs.envs.given import with_settings
from bsrs.errors import BadInput, printable, unknown
from bsrs.naming import read_value
from bsrs.scales import check_eta
from bsrs.sweep.plan import describe, expand, read_sweep, sweep_presets, tasks_left

if TYPE_CHECKING:
    from bsrs.config.training import TrainingConfig
    from bsrs.sweep.conduct import Summary


@dataclass(frozen=True, kw_only=True)
class TrainArguments(RunOptions):
    env: str
    """Env id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: tuple[float | str, ...] = (0.0,)
    """Eta: a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA.
    Several values train a population."""
    seed: tuple[int, ...] = (0,)
    """Seed of the run. Several values train a population."""
    preset: str = ""
    """Take settings that are not given as flags from this preset (see `bsrs presets`). By default it suits the env."""
    out: Path | None = None
    """Write the run to this folder; a population gets a folder in it per member. By default a new folder in `runs`."""
    env_kwargs: tuple[str, ...] = ()
    """Pass these settings to the env's constructor, as KEY=VALUE. The long form is --env 'Id(key=value)'."""


def train_command(algorithm: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs train ALGORITHM`: its flags and its function."""
    return algorithm_flags(algorithm, TrainArguments), partial(_train, algorithm)


def _train(algorithm: str, arguments: TrainArguments) -> None:
    """Train one run, or a population of every eta with every seed."""
    arguments = dataclasses.replace(arguments, env=_with_settings(arguments.env, arguments.env_kwargs))
    if not arguments.eta or not arguments.seed:
        raise BadInput("--eta or --seed has no value; expected at least one")
    for eta in arguments.eta:  # before anything heavy is imported
        check_eta(eta)
    configs = [_config(algorithm, arguments, eta, seed) for eta in arguments.eta for seed in arguments.seed]
    from bsrs.run import run

    folders = [(arguments.out or Path("runs")) / folder_name(config) for config in configs]
    if arguments.out is not None and len(configs) == 1:
        folders = [arguments.out]
    with show_progress(configs[0].steps, f"{algorithm} {arguments.env}") as progress:
        outcomes = run(configs, folders, arguments, progress)
    for folder, outcome in zip(folders, outcomes, strict=True):
        score = "none" if outcome.score is None else f"{outcome.score:.2f}"
        print(f"{folder}: {outcome.outcome} at step {outcome.step:,}, score {score}  {outcome.reason}".rstrip())


def _config(algorithm: str, arguments: TrainArguments, eta: float | str, seed: int) -> TrainingConfig:
    given = {**set_flags(arguments, algorithm), "eta": eta, "seed": seed}
    if arguments.preset:
        return preset(algorithm, arguments.preset, env=arguments.env, **given)
    return default_preset(algorithm, arguments.env, **given)


# --------------------------------------------------------------------------------------------------------------
# Sweeps.


@dataclass(frozen=True, kw_only=True)
class SweepCommand(SweepOptions):
    race: bool = False
    """Drop the worse half of the etas after every two seeds, and test the last one against eta = 0 on the other seeds.
    This trains fewer runs."""
    dry_run: bool = False
    """Print the planned runs, train for a few seconds to estimate the cost, and stop."""
    out: Path | None = None
    """Write the sweep to this folder, with a folder in it for each run. Repeat the command to resume."""


@dataclass(frozen=True, kw_only=True)
class SweepArguments(SweepCommand, SweepLists):
    """A sweep from flags."""

    env_kwargs: tuple[str, ...] = ()
    """Pass these settings to the envs' constructors, as KEY=VALUE."""


@dataclass(frozen=True, kw_only=True)
class PresetArguments(SweepCommand):
    """A sweep from a data file."""

    file: Positional[Path | None] = None
    """A TOML file of your own."""
    preset: str = ""
    """Run this sweep preset: paper-tabular, paper-atari, paper-pendulum, paper-mujoco, paper-target-ablation."""
    scale: str = ""
    """Choose the size: smoke (seconds), laptop (minutes to an hour on two cores) or paper."""
    set: tuple[str, ...] = ()
    """Change settings of the algorithm, as NAME=VALUE."""


def sweep_command(algorithm: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs sweep ALGORITHM`: its flags and its function."""
    return algorithm_flags(algorithm, SweepArguments), partial(_sweep_flags, algorithm)


def sweep_preset(arguments: PresetArguments) -> None:
    """Sweep what a preset or a file says."""
    if bool(arguments.file) == bool(arguments.preset):
        raise BadInput(f"expected a TOML file or one --preset of {', '.join(sweep_presets())}")
    name = arguments.preset or str(arguments.file)
    sweep = read_sweep(name, arguments.scale, _values("--set", arguments.set))
    _sweep(sweep, arguments, "-".join(filter(None, (Path(name).stem, arguments.scale))))


def _sweep_flags(algorithm: str, arguments: SweepArguments) -> None:
    for eta in arguments.eta:
        check_eta(eta)
    lists = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(SweepLists)}
    lists["env"] = tuple(_with_settings(env, arguments.env_kwargs) for env in arguments.env)
    sweep = SweepConfig(algorithm=algorithm, fields=set_flags(arguments, algorithm), **lists)
    _sweep(sweep, arguments, f"{algorithm}-{'-'.join(arguments.env)}".replace("/", "-"))


def _sweep(sweep: SweepConfig, arguments: SweepCommand, name: str) -> None:
    configs, out = expand(sweep), arguments.out or Path("runs") / name
    if arguments.dry_run:
        _print_plan(configs, out, arguments)
        return
    if arguments.race:
        from bsrs.race import run_race

        summary = run_race(configs, out, arguments)
        print(f"{out}: {len(configs)} runs at most; {', '.join(_ended(summary)) or 'all done before'}")
    else:
        from bsrs.sweep.conduct import run_sweep

        summary = run_sweep(configs, out, arguments)
        print(f"{out}: {_summary_line(summary, len(configs))}")
    for run, why in summary.problems.items():
        print(printable(f"  {run}: {why}"))
    _print_answer(configs, out)
    if summary.problems:
        raise SystemExit(1)


def _print_answer(configs: Sequence[TrainingConfig], out: Path) -> None:
    """Which eta these runs speak for, where there was a choice. Exact tables need no statistics."""
    if configs[0].algorithm == "tabular" or len({config.eta for config in configs}) < 2:
        return
    from bsrs.stats.recommend import recommend
    from bsrs.stats.records import read_runs, series_of

    planned = {folder_name(config) for config in configs}
    print_recommendations(recommend(series_of([run for run in read_runs(out)[0] if run.folder.name in planned])))


def _print_plan(configs: Sequence[TrainingConfig], out: Path, options: SweepCommand) -> None:
    """What will be run and what it costs; of a race the round that is due, and what all rounds cost at most."""
    from bsrs.race import plan_race
    from bsrs.sweep.measure import PROCESS_BYTES, core_seconds, replay_bytes
    from bsrs.sweep.view import duration

    shown, configs = plan_race(configs, out) if options.race else (configs, configs)
    tasks = tasks_left(configs, out, options)
    left = {folder.name for task in tasks for folder in task.folders}
    for name in map(folder_name, shown):
        print(name if name in left else f"{name}  (done)")
    if options.race:
        print(f"the race's next round ends with these {len(shown)} runs; at most, the whole race takes")
    seconds = core_seconds(tasks)
    memory = PROCESS_BYTES + max((sum(map(replay_bytes, task.configs)) for task in tasks), default=0.0)
    workers = options.local_workers
    where = f", {duration(seconds / workers)} with {workers} workers," if options.executor == "local" else ""
    print(
        f"{len(configs)} runs, {len(configs) - len(left)} of them done; the rest takes about {duration(seconds)} of one"
        f" core{where} and {memory / 1e9:.1f} GB of memory per worker, as measured just now"
    )
    print(describe(tasks, options))


def _summary_line(summary: Summary, planned: int) -> str:
    before = planned - len(summary.statuses) - len(summary.problems)
    words = _ended(summary) + ([f"{before} done before"] if before else [])
    return f"{planned} runs: {', '.join(words)}"


def _ended(summary: Summary) -> list[str]:
    states = Counter(status.state for status in summary.statuses)
    words = [f"{number} {state}" for state, number in sorted(states.items())]
    return words + ([f"{len(summary.problems)} without a result"] if summary.problems else [])


def _with_settings(env: str, settings: Sequence[str]) -> str:
    name = with_settings(env, _values("--env-kwargs", settings))
    assert isinstance(name, str)
    return name


def _values(flag: str, words: Sequence[str]) -> dict[str, Any]:
    """Name -> value of each NAME=VALUE."""
    pairs = [word.partition("=") for word in words]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise BadInput(f"{flag} {wrong[0]}: expected NAME=VALUE")
    return {name: read_value(value) for name, _, value in pairs}


# --------------------------------------------------------------------------------------------------------------
# Presets.


def presets(name: Positional[str] = "", preset: Positional[str] = "", json: bool = False) -> None:
    """List the presets, or print one.

    Args:
        name: An algorithm or a sweep preset. Empty lists them all.
        preset: A preset of that algorithm, to see all its settings.
        json: Print one JSON document instead.
    """
    rows, sweeps = {row.name: row for row in algorithms()}, sweep_presets()
    if name and name not in {*rows, *sweeps}:
        raise unknown("preset", name, [*rows, *sweeps])
    if preset and name in sweeps:
        raise BadInput(f"{name} is a sweep preset, which is printed whole; expected no second name")
    if preset and preset not in rows[name].presets:
        raise unknown(f"{name} preset", preset, rows[name].presets)
    if json and name in sweeps:
        print_json({"sweep": name, **tomllib.loads(sweeps[name])})
    elif json:
        found = {row: _settings(rows[row], preset) for row in ([name] if name else rows)}
        print_json({"presets": found} | ({} if name else {"sweeps": [*sweeps]}))
    elif name in sweeps:
        print(sweeps[name].strip())
    elif preset:
        values = _settings(rows[name], preset)[preset]
        print_table(f"{name} {preset}", [{"setting": key, "value": as_text(value)} for key, value in values.items()])
    elif name:
        _print_presets(rows[name])
    else:
        for row in rows.values():
            print(f"{row.name}: {', '.join(row.presets)}")
        print(f"sweeps: {', '.join(sweeps)}")


def _settings(row: Algorithm, preset: str = "") -> dict[str, dict[str, Any]]:
    """Preset -> every setting it stands for, defaults included. All presets, or one."""
    fields = [field for field in dataclasses.fields(row.config_class) if field.name not in OWN]
    values = {field.name: preset_values(row, field) for field in fields}
    return {each: {key: of[each] for key, of in values.items()} for each in ([preset] if preset else row.presets)}


def _print_presets(row: Algorithm) -> None:
    """Each preset with the envs that it suits, and as the flags that do the same."""
    for name, values in row.presets.items():
        suited = ", ".join(pattern for pattern, suits in row.suits.items() if suits == name)
        flags = " ".join(f"--{key.replace('_', '-')} {as_text(value)}" for key, value in values.items())
        print(f"{name}{f', for {suited}' if suited else ''}\n  {flags or 'the defaults'}")
    print(f"\n`bsrs presets {row.name} NAME` prints every setting of one.")
