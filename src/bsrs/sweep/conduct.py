"""A sweep from its configs to its end: its folder, and workers that are kept busy until every run has a result."""

import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bsrs import __version__
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.files import read_json, write_json
from bsrs.store.lock import Lock, is_held
from bsrs.store.table import RunStatus, run_status
from bsrs.sweep.plan import describe, tasks_left
from bsrs.sweep.tasks import Ended, Executor, Task
from bsrs.sweep.view import SweepView
from bsrs.writing import DiskFull, make_folder

FORMAT = 1
# How long to wait before asking again for a run that another process has.
BUSY_S = 2.0


@dataclass
class Summary:
    """How a sweep ended."""

    statuses: list[RunStatus] = field(default_factory=list)
    """Status of the runs that ended in this call."""
    problems: dict[str, str] = field(default_factory=dict)
    """Run -> why it has no result."""


def run_sweep(
    configs: Sequence[TrainingConfig],
    root: Path,
    options: SweepOptions,
    executor: Executor | None = None,
    *,
    view: type[SweepView] = SweepView,
) -> Summary:
    """Train what has not ended yet. Kill it at any time and call it again: it continues."""
    with sweep_folder(root, [folder_name(config) for config in configs]):
        tasks = tasks_left(configs, root, options)
        left = [config for task in tasks for config in task.configs]
        remove_leftovers(root, set(configs) - set(left))
        print(describe(tasks, options), file=sys.stderr, flush=True)
        if not tasks:
            return Summary()
        executor = executor or make_executor(options, root)
        watcher = view(root, left, len(configs))
        try:
            with watcher.screen:
                return run_tasks(tasks, executor, watcher, retries=options.retries)
        finally:
            executor.close()


def remove_leftovers(root: Path, ended: Collection[TrainingConfig]) -> None:
    """Remove checkpoints that a kill just before a run's end has left."""
    for folder in (root / folder_name(config) for config in ended):
        if any(os.path.lexists(folder / f"checkpoint{which}") for which in ("", ".old", ".new")):
            from bsrs.store import checkpoint  # here, because it imports torch

            checkpoint.remove(folder / "checkpoint")


def make_executor(options: SweepOptions, root: Path) -> Executor:
    """Make the executor that the options name. `root` is the sweep's folder."""
    if options.executor == "ray":
        from bsrs.sweep.executors.ray import RayExecutor

        return RayExecutor(options.ray, options.workers)
    if options.executor == "slurm":
        from bsrs.sweep.executors.slurm import SlurmExecutor

        return SlurmExecutor(options.slurm, root, options.threads)
    from bsrs.sweep.executors.local import LocalExecutor

    return LocalExecutor(options.local_workers, options.threads)


@contextmanager
def sweep_folder(root: Path, names: Sequence[str]) -> Iterator[None]:
    """Hold the sweep's folder, which remembers the names of all runs that were ever planned in it."""
    make_folder(root)
    if (root / "config.json").exists():
        raise BadInput(f"{root} is the folder of a run; expected a folder for a sweep")
    lock = Lock(root / "sweep.lock", f"the sweep {root}")
    try:
        planned = planned_runs(root)
        if set(names) - set(planned):
            runs = list(dict.fromkeys([*planned, *names]))
            write_json(root / "sweep.json", {"format": FORMAT, "version": __version__, "runs": runs})
        yield
    finally:
        lock.release()


def planned_runs(root: Path) -> list[str]:
    """Read the names of the runs that were planned in a sweep's folder."""
    path = root / "sweep.json"
    try:
        content = read_json(path)
    except FileNotFoundError:
        return []
    if not isinstance(content.get("format"), int) or content["format"] > FORMAT:
        raise BadInput(f"{path} has format {content.get('format')!r}; this version of bsrs reads up to {FORMAT}")
    runs = content.get("runs")
    if not isinstance(runs, list) or not all(isinstance(name, str) for name in runs):
        raise BadInput(f"{path} is damaged: expected the names of runs")
    return runs


def run_tasks(tasks: Sequence[Task], executor: Executor, watcher: SweepView, *, retries: int = 2) -> Summary:
    """Keep the executor busy until every run has ended. A run whose worker died is tried again, from its checkpoint."""
    schedule = _Schedule(watcher, retries)
    executor.submit(tasks)
    submitted = len(tasks)
    while submitted or schedule.waiting:
        due = [
            task
            for task, earliest in schedule.waiting.items()
            if earliest <= time.monotonic() and not any(is_held(folder / "lock") for folder in task.folders)
        ]
        for task in due:
            del schedule.waiting[task]
        executor.submit(due)
        submitted += len(due)
        for ended in executor.wait(1.0):
            submitted -= 1
            schedule.handle(ended)
        watcher.tick()
    return schedule.summary


@dataclass
class _Schedule:
    """Decides what to do about each task that ended."""

    watcher: SweepView
    retries: int
    summary: Summary = field(default_factory=Summary)
    waiting: dict[Task, float] = field(default_factory=dict)
    """Tasks to be submitted again as soon as no other process has their runs, and not before when."""
    losses: Counter[Task] = field(default_factory=Counter)
    seen_busy: set[Task] = field(default_factory=set)

    def handle(self, ended: Ended) -> None:
        task, name = ended.task, ended.task.folders[0].name
        if ended.how == "done":
            for status in map(run_status, task.folders):
                self.summary.statuses.append(status)
                self.watcher.run_ended(status)
        elif ended.how == "full":
            raise DiskFull(ended.why)
        elif ended.how == "busy":
            if task not in self.seen_busy:
                self.watcher.message(f"{ended.why}: waiting for it")
                self.seen_busy.add(task)
            self.waiting[task] = time.monotonic() + BUSY_S
        elif ended.how == "lost" and self.losses[task] < self.retries:
            self.losses[task] += 1
            them = "it is" if len(task.configs) == 1 else f"its {len(task.configs)} runs are"
            self.watcher.message(f"{name}: {ended.why}; {them} tried again")
            self.waiting[task] = 0.0
        elif len(task.configs) > 1:
            self.watcher.message(f"{ended.why}: its {len(task.configs)} runs are tried one by one")
            self.waiting |= {replace(task, configs=(config,)): 0.0 for config in task.configs}
        else:
            self.summary.problems[name] = ended.why
            self.watcher.message(f"{name}: {ended.why}")
