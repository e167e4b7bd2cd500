"""From run folders to arrays: what each run recorded, and the runs that belong together as one series."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bsrs.config.base import to_dict
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, unknown
from bsrs.stats.aggregates import Array
from bsrs.stats.curves import final_score
from bsrs.store import read_config, read_metrics, read_result

ENDED = ("finished", "diverged")


class Task(NamedTuple):
    """One algorithm on one env in one sweep: runs of different sweeps may differ in anything."""

    sweep: Path
    """The folder that holds the runs' folders."""
    algorithm: str
    env: str


@dataclass(frozen=True)
class RunRecord:
    """One run as its folder tells it."""

    folder: Path
    config: TrainingConfig
    outcome: str
    """finished, diverged, failed, or unfinished while it has not ended."""
    reason: str
    seconds: float | None
    metrics: tuple[dict[str, Any], ...]

    def trace(self, name: str, kind: str = "train") -> tuple[Array, Array]:
        """Steps and values of one recorded quantity; None in the records is not a number here."""
        lines = [line for line in self.metrics if line["kind"] == kind and name in line]
        steps = np.array([line["step"] for line in lines], dtype=np.int64)
        return steps, np.array([line[name] for line in lines], dtype=np.float64)

    @property
    def task(self) -> Task:
        """What it is compared within."""
        return Task(self.folder.parent, self.config.algorithm, self.config.env)

    @property
    def step(self) -> int:
        """How far it came."""
        return max((line["step"] for line in self.metrics), default=0)

    @property
    def score(self) -> float | None:
        """Of the last evaluation."""
        scores = self.trace("score", "eval")[1]
        return float(scores[-1]) if len(scores) else None


def read_run(folder: Path) -> RunRecord:
    """The run in `folder`, ended or not."""
    config, result = read_config(folder), read_result(folder) or {}
    outcome, reason = result.get("outcome", "unfinished"), result.get("reason", "")
    return RunRecord(folder, config, outcome, reason, result.get("wall_time_s"), tuple(read_metrics(folder)))


def read_runs(root: Path) -> tuple[list[RunRecord], dict[Path, str]]:
    """Every run in `root` and below, and the folders that cannot be read with the reason."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder; expected one that holds runs")
    runs, unreadable = [], {}
    for path in sorted(root.rglob("config.json")):
        try:
            runs.append(read_run(path.parent))
        except BadInput as error:
            unreadable[path.parent] = str(error)
    return runs, unreadable


@dataclass(frozen=True, eq=False)
class Series:
    """The ended runs of one config but for the seed, in the order of their seeds: a line in a plot."""

    runs: tuple[RunRecord, ...]
    task: Task
    variant: str
    """The settings besides eta that differ among the series of its task."""
    steps: Array  # (steps,)
    curves: Array  # (runs, steps)

    @property
    def config(self) -> TrainingConfig:
        """Of any of its runs."""
        return self.runs[0].config

    @property
    def env(self) -> str:
        return self.config.env

    @property
    def eta(self) -> float | str:
        return self.config.eta

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.config.seed for run in self.runs)

    @property
    def diverged(self) -> int:
        """How many of the runs diverged."""
        return sum(run.outcome == "diverged" for run in self.runs)

    @property
    def final(self) -> Array:
        """(runs,)"""
        return final_score(self.steps, self.curves)


def series_of(runs: Sequence[RunRecord], group_by: Sequence[str] = ()) -> list[Series]:
    """The ended runs put together by config, sorted by task, variant and eta.

    With `group_by`, the sweeps are overlaid: runs that agree in these fields of the config and in eta are one series,
    whatever folder they are in and whatever else they differ in. A run that is in several folders counts once.

    A diverged run scores as badly as any evaluation of its task in `runs` from where it ended: it must not look good
    for having been evaluated just before. Failed runs (the software's fault) and unfinished ones do not count.
    """
    tasks: dict[Task, list[RunRecord]] = defaultdict(list)
    for run in {run.config: run for run in reversed(runs)}.values() if group_by else runs:
        if run.outcome in ENDED:
            tasks[run.task._replace(sweep=Path()) if group_by else run.task].append(run)
    found = [series for task, members in tasks.items() for series in _task_series(task, members, group_by)]
    return sorted(found, key=lambda s: (s.task, s.variant, isinstance(s.eta, str), s.eta))


def _task_series(task: Task, runs: Sequence[RunRecord], group_by: Sequence[str]) -> list[Series]:
    evaluations = np.concatenate([run.trace("score", "eval")[1] for run in runs])
    if not len(evaluations):
        return []
    worst = float(np.nanmin(evaluations))
    groups: dict[Any, list[RunRecord]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.config.seed, run.folder)):
        groups[_group(run.config, group_by)].append(run)
    varying = _varying_fields([members[0].config for members in groups.values()])
    varying = [name for name in varying if not group_by or name in group_by]
    return [_series(task, members, varying, worst) for members in groups.values()]


def _group(config: TrainingConfig, group_by: Sequence[str]) -> Any:
    """What runs of one series share: the config but for the seed, or eta and the fields to group by."""
    if not group_by:
        return dataclasses.replace(config, seed=0)
    fields = to_dict(config)
    for name in group_by:
        if name not in fields:
            raise unknown(f"field of a {config.algorithm} config", name, fields)
    return tuple(repr(fields[name]) for name in dict.fromkeys(["eta", *group_by]))


def _series(task: Task, runs: Sequence[RunRecord], varying: Sequence[str], worst: float) -> Series:
    config = runs[0].config
    if len({(run.config.steps, run.config.eval_every) for run in runs}) > 1:
        raise BadInput("runs of one group differ in steps or eval_every; add these to the fields to group by")
    steps = max((run.trace("score", "eval")[0] for run in runs), key=len)
    if not len(steps):  # all diverged before the first evaluation
        steps = np.array([config.steps])
    curves = np.full((len(runs), len(steps)), worst)
    for row, run in zip(curves, runs, strict=True):
        scores = run.trace("score", "eval")[1]
        row[: len(scores)] = np.nan_to_num(scores, nan=worst)
    variant = ", ".join(f"{name}={getattr(config, name)}" for name in varying)
    return Series(tuple(runs), task, variant, steps, curves)


def _varying_fields(configs: Sequence[TrainingConfig]) -> list[str]:
    settings = [to_dict(config) for config in configs]
    return [name for name in settings[0] if name != "eta" and len({repr(each[name]) for each in settings}) > 1]
