"""From a few lists to runs, and from runs to tasks."""

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from bsrs.config.algorithms import find_algorithm, first_match, preset
from bsrs.config.base import from_dict
from bsrs.config.settings import folder_name
from bsrs.config.sweep import Options, RunOptions, SweepConfig, SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.envs.defaults import default_preset, spec_of
from bsrs.errors import BadInput, unknown
from bsrs.store.files import read_bytes
from bsrs.store.read import checkpoint_step, has_ended
from bsrs.sweep.measure import PROCESS_BYTES, machine_bytes, replay_bytes
from bsrs.sweep.tasks import Task

SCALES = ("smoke", "laptop", "paper")


def expand(sweep: SweepConfig) -> list[TrainingConfig]:
    """List every run of the sweep. The seed changes slowest: a sweep stopped early has tried every eta."""
    find_algorithm(sweep.algorithm)
    for name in ("env", "eta", "seed"):
        if any(name in settings for settings in (sweep.fields, sweep.grid, *sweep.only.values())):
            raise BadInput(f"{name} is among the sweep's settings; expected it as a list of its own")
    bases = []
    for env in sweep.env:
        own = dict(sweep.only.get(env, {}))
        name = own.pop("preset", sweep.preset)
        make = partial(preset, sweep.algorithm, name) if name else partial(default_preset, sweep.algorithm)
        for values in itertools.product(*sweep.grid.values()):
            bases.append(make(env=env, **{**sweep.fields, **own, **dict(zip(sweep.grid, values, strict=True))}))
    etas = [float(eta) if isinstance(eta, (int, float)) else eta for eta in sweep.eta]
    seeds = range(sweep.first_seed, sweep.first_seed + sweep.seeds)
    return [dataclasses.replace(base, eta=eta, seed=seed) for seed in seeds for base in bases for eta in etas]


# --------------------------------------------------------------------------------------------------------------
# Sweeps as data files: the project's presets and the user's own.


def read_sweep(name: str, scale: str, changes: dict[str, Any]) -> SweepConfig:
    """Read a preset by name or a TOML file by path, at a scale, with some settings of the algorithm changed."""
    path, presets = Path(name), sweep_presets()
    if name in presets:
        text = presets[name]
    elif path.suffix == ".toml" and path.is_file():
        text = read_bytes(path).decode(errors="replace")
    elif path.suffix == ".toml":
        raise BadInput(f"there is no file {name}")
    else:
        raise unknown("sweep preset", name, presets)
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not TOML: {error}") from None
    if "like" in content:  # another preset with some settings changed
        return read_sweep(str(content["like"]), scale, {**_table(content, "fields", name), **changes})
    return _at_scale(content, name, scale, changes)


def sweep_presets() -> dict[str, str]:
    """Read the project's sweep presets: name -> TOML."""
    found = [path for path in files("bsrs.presets").iterdir() if path.name.endswith(".toml")]
    return {path.name.removesuffix(".toml"): path.read_text() for path in sorted(found, key=lambda path: path.name)}


def _at_scale(content: dict[str, Any], name: str, scale: str, changes: dict[str, Any]) -> SweepConfig:
    scales = _table(content, "scale", name)
    if scale and scale not in scales:
        raise unknown(f"scale of {name}", scale, scales) if scales else BadInput(f"{name} has no scales")
    if scales and not scale:
        raise BadInput(f"{name} has the scales {', '.join(scales)}: choose one with --scale")
    own = _table(scales, scale, name)
    merged = {key: value for key, value in {**content, **own}.items() if key not in ("scale", "about")}
    merged["fields"] = {**_table(content, "fields", name), **_table(own, "fields", name), **changes}
    found = from_dict(SweepConfig, merged, name)
    lists = [each.get("env") for each in (content, *scales.values()) if isinstance(each, dict)]
    known = [str(env) for envs in lists if isinstance(envs, list) for env in envs]
    for env, settings in found.only.items():
        if env not in known:
            raise unknown(f"env of {name} under only", env, known)
        for key in changes:  # what was changed on the command line is changed for all envs
            settings.pop(key, None)
    return found


def _table(content: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{name}: {key} is {repr(table)[:40]}; expected a table")
    return table


# --------------------------------------------------------------------------------------------------------------
# Tasks: what is left to do, in portions for one worker.


def tasks_left(configs: Sequence[TrainingConfig], root: Path, options: SweepOptions) -> list[Task]:
    """Group the runs that have not ended into populations: members of one agent that are equally far.

    Runs that have begun are divided as the whole sweep was, the others so that every worker has something to do.
    """
    alike: dict[Any, list[TrainingConfig]] = {}
    fresh = sum(not (root / folder_name(config) / "config.json").exists() for config in configs)
    for config in configs:
        folder = root / folder_name(config)
        with suppress(BadInput):  # damaged: the worker will say so
            if has_ended(folder):
                continue
        mixed = find_algorithm(config.algorithm).member_fields
        key = (config.algorithm, *(value for name, value in vars(config).items() if name not in mixed))
        begun = (folder / "config.json").exists()
        alike.setdefault((key, begun, checkpoint_step(folder)), []).append(config)
    sizes = [members(group[0], len(configs) if begun else fresh, options) for (_, begun, _), group in alike.items()]
    portions = [
        tuple(group[first : first + size])
        for group, size in zip(alike.values(), sizes, strict=True)
        for first in range(0, len(group), size)
    ]
    order = {config: number for number, config in enumerate(configs)}
    portions.sort(key=lambda portion: order[portion[0]])
    return [Task(root, portion, run_options(portion[0], options)) for portion in portions]


def members(config: TrainingConfig, runs: int, options: SweepOptions) -> int:
    """Choose how many of a sweep's runs a population has: as many as make a core fastest, in equal portions for all
    workers, within the memory."""
    if options.members or options.executor != "local":
        return options.members or 1
    row = find_algorithm(config.algorithm)
    spec = spec_of(config.env) if row.agent else None
    most = first_match(row.populations, spec.kind if spec and not spec.is_large else "large", config.env)
    memory = 0.8 * machine_bytes() / options.local_workers - PROCESS_BYTES
    most = max(1, min(most, int(memory // max(replay_bytes(config), 1))))
    rounds = math.ceil(runs / (options.local_workers * most))
    return math.ceil(runs / (options.local_workers * rounds))


def describe(tasks: Sequence[Task], options: SweepOptions) -> str:
    """Describe the plan in one line."""
    runs = sum(len(task.configs) for task in tasks)
    largest = max((len(task.configs) for task in tasks), default=0)
    how = f" in {len(tasks)} populations of up to {largest} members" if largest > 1 else ""
    where = f"{options.local_workers} local workers" if options.executor == "local" else options.executor
    return f"{runs} runs to train{how}, {where}" if runs else "every run is done"


def run_options(config: TrainingConfig, options: SweepOptions) -> RunOptions:
    """Derive how a run of the sweep is executed."""
    has_images = find_algorithm(config.algorithm).agent is not None and spec_of(config.env).is_image
    every = options.checkpoint_every or (50_000 if has_images else 10_000)
    shared = {field.name: getattr(options, field.name) for field in dataclasses.fields(Options)}
    return RunOptions(resume=True, threads=options.threads, checkpoint_every=every, **shared)
