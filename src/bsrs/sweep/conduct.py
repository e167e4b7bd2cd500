"""A sweep from its configs to its end: its folder, and workers that are kept busy until every run has a result."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bsrs import __version__
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.files import read_json, write_json
from bsrs.store.lock import Lock
from bsrs.store.table import RunStatus, run_status
from bsrs.sweep.plan import describe, tasks_left
from bsrs.sweep.tasks import Ended, Executor, Task, clean_up
from bsrs.sweep.view import SweepView, show_sweep
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
    show: Callable[..., AbstractContextManager[SweepView]] = show_sweep,
) -> Summary:
    """Train what has not ended yet. Kill it at any time and call it again: it continues."""
    with sweep_folder(root, [folder_name(config) for config in configs]):
        tasks = tasks_left(configs, root, options)
        left = {name for task in tasks for name in task.names}
        clean_up([root / name for name in map(folder_name, configs) if name not in left])
        executor = executor or make_executor(options, root)
        try:
            with show(root, [config for task in tasks for config in task.configs], len(configs)) as watcher:
                watcher.message(describe(tasks, options))
                return run_tasks(tasks, executor, watcher, retries=options.retries)
        finally:
            executor.close()


def make_executor(options: SweepOptions, root: Path) -> Executor:
    """The executor that the options ask for. `root` is the sweep's folder."""
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
    """The sweep's folder, held by this process; it remembers the names of all runs that were ever planned in it."""
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
    """The names of the runs that were planned in a sweep's folder."""
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
    """Until every run has ended. A run whose worker died is tried again, from its checkpoint."""
    schedule = _Schedule(watcher, retries)
    executor.submit(tasks)
    submitted = len(tasks)
    while submitted or schedule.waiting:
        due = schedule.due()
        executor.submit(due)
        submitted += len(due)
        for ended in executor.wait(1.0):
            submitted -= 1
            schedule.handle(ended)
        watcher.tick()
    return schedule.summary


@dataclass
class _Schedule:
    """What to do about each task that ended."""

    watcher: SweepView
    retries: int
    summary: Summary = field(default_factory=Summary)
    waiting: list[tuple[float, Task]] = field(default_factory=list)
    """Tasks to be submitted again, and not before when."""
    losses: Counter[tuple[str, ...]] = field(default_factory=Counter)
    seen_busy: set[tuple[str, ...]] = field(default_factory=set)

    def due(self) -> list[Task]:
        """The tasks whose time has come and whose runs no other process has; they are not waiting any more."""
        now = time.monotonic()
        due = [pair for pair in self.waiting if pair[0] <= now and not pair[1].is_held()]
        self.waiting = [pair for pair in self.waiting if pair not in due]
        return [task for _, task in due]

    def handle(self, ended: Ended) -> None:
        task = ended.task
        if ended.how == "done":
            for status in (run_status(folder, verify=False) for folder in task.folders):
                self.summary.statuses.append(status)
                self.watcher.run_ended(status)
        elif ended.how == "full":
            raise DiskFull(ended.why)
        elif ended.how == "busy":
            if task.names not in self.seen_busy:
                self.watcher.message(f"{ended.why}: waiting for it")
                self.seen_busy.add(task.names)
            self.waiting.append((time.monotonic() + BUSY_S, task))
        elif ended.how == "lost" and self.losses[task.names] < self.retries:
            self.losses[task.names] += 1
            them = "it is" if len(task.configs) == 1 else f"its {len(task.configs)} runs are"
            self.watcher.message(f"{task.names[0]}: {ended.why}; {them} tried again")
            self.waiting.append((0.0, task))
        elif len(task.configs) > 1:
            self.watcher.message(f"{ended.why}: its {len(task.configs)} runs are tried one by one")
            self.waiting += [(0.0, single) for single in task.split()]
        else:
            self.summary.problems[task.names[0]] = ended.why
            self.watcher.message(f"{task.names[0]}: {ended.why}")
