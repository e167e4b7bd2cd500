"""Read runs, and combine those that differ only in the seed into series."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bsrs.config.settings import RunSettings
from bsrs.errors import BadInput, unknown
from bsrs.stats.aggregates import Array
from bsrs.stats.curves import area_under_curve, final_score
from bsrs.store.read import ENDED, RunRecord, read_run, read_runs


class Task(NamedTuple):
    """One algorithm on one env in one sweep. Runs of different sweeps may differ in any setting."""

    sweep: Path
    """Path to the folder with the run folders."""
    algorithm: str
    env: str


@dataclass(frozen=True, eq=False)
class Series:
    """The finished runs of one config, ordered by seed: a line in a plot."""

    runs: tuple[RunRecord, ...]
    task: Task
    variant: str
    """Settings other than eta that differ between the series of the task."""
    steps: Array  # (steps,)
    curves: Array  # (runs, steps)
    # The fields below are computed from these.
    config: RunSettings = field(init=False)
    """Config of the first run."""
    env: str = field(init=False)
    eta: float | str = field(init=False)
    seeds: tuple[int, ...] = field(init=False)
    diverged: int = field(init=False)
    """Number of runs that diverged."""
    area: Array = field(init=False)
    """Mean score over training of each run: (runs,)."""
    final: Array = field(init=False)
    """Final score of each run: (runs,)."""

    def __post_init__(self) -> None:
        config = self.runs[0].config
        vars(self).update(
            config=config,
            env=config.env,
            eta=config.eta,
            seeds=tuple(run.config.seed for run in self.runs),
            diverged=sum(run.outcome == "diverged" for run in self.runs),
            area=area_under_curve(self.steps, self.curves),
            final=final_score(self.steps, self.curves),
        )


def series_of(runs: Sequence[RunRecord], group_by: Sequence[str] = ()) -> list[Series]:
    """Group the ended runs by config, sorted by task, variant and eta.

    With `group_by`, sweeps are overlaid: runs with equal values of these config fields and of eta form one series,
    whatever folder they are in. A run that is in several folders counts once.

    After a run diverges, it counts with the worst score of any evaluation of its task in `runs`. Otherwise it could
    look good because it was evaluated just before. Failed and unfinished runs do not count.
    """
    tasks: dict[Task, list[RunRecord]] = defaultdict(list)
    for run in {run.config: run for run in reversed(runs)}.values() if group_by else runs:
        if run.outcome in ENDED:
            sweep = Path() if group_by else run.folder.parent
            tasks[Task(sweep, run.config.algorithm, run.config.env)].append(run)
    found = [series for task, members in tasks.items() for series in _task_series(task, members, group_by)]
    return sorted(found, key=lambda s: (s.task, s.variant, isinstance(s.eta, str), s.eta))


def _task_series(task: Task, runs: Sequence[RunRecord], group_by: Sequence[str]) -> list[Series]:
    evaluations = np.concatenate([run.trace("score", "eval")[1] for run in runs])
    if not len(evaluations):
        return []
    worst = float(np.nanmin(evaluations))
    groups: dict[Any, list[RunRecord]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.config.seed, run.folder)):
        own = run.config.meaning
        if strange := [name for name in group_by if not hasattr(run.config, name)]:
            raise unknown(f"setting of a {run.config.algorithm} run", strange[0], run.config.fields)
        counted = {"eta", *group_by} if group_by else own.keys() - {"seed"}
        groups[frozenset((name, repr(getattr(run.config, name))) for name in counted)].append(run)
    settings = [members[0].config for members in groups.values()]
    names = dict.fromkeys(
        group_by or [name for each in settings for name in each.meaning if name not in ("eta", "seed")]
    )
    varying = [name for name in names if len({repr(getattr(each, name, None)) for each in settings}) > 1]
    return [_series(task, members, varying, worst) for members in groups.values()]


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
        if len(scores) < len(steps) and run.outcome != "diverged":
            raise BadInput(
                f"{run.folder} finished with {len(scores)} evaluations, others of its kind with {len(steps)}"
            )
        row[: len(scores)] = np.nan_to_num(scores, nan=worst)
    variant = ", ".join(f"{name}={getattr(config, name)}" for name in varying if hasattr(config, name))
    return Series(tuple(runs), task, variant, steps, curves)


__all__ = ["RunRecord", "Series", "Task", "read_run", "read_runs", "series_of"]
