"""What a worker does, wherever it is: train one portion of a sweep's runs, in their folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal, Protocol

from bsrs.config.algorithms import find_algorithm
from bsrs.config.settings import folder_name
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.lock import Busy
from bsrs.store.read import has_ended
from bsrs.writing import DiskFull, explained


@dataclass(frozen=True)
class Task:
    """Runs that one worker trains together."""

    root: Path
    configs: tuple[TrainingConfig, ...]
    options: RunOptions

    @property
    def folders(self) -> list[Path]:
        return [self.root / folder_name(config) for config in self.configs]


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    done: each run has its result; failed: an error, in `why`; busy: another process has one of the runs;
    full: the disk is full; lost: the worker died, which only the executors notice.
    """

    task: Task
    how: Literal["done", "failed", "busy", "full", "lost"]
    why: str = ""


class Executor(Protocol):
    """Takes tasks, and reports when they have ended. Has no memory: what matters is in the runs' folders."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Start these as soon as there is room."""

    def wait(self, timeout: float) -> list[Ended]:
        """Return the tasks that ended since the last call; wait up to `timeout` seconds for the first."""

    def close(self) -> None:
        """Stop everything that is running."""


def work(task: Task) -> Ended:
    """Execute a task. Never raises: what went wrong is in the answer."""
    try:
        with explained(task.root):
            left = [(c, folder) for c, folder in zip(task.configs, task.folders, strict=True) if not has_ended(folder)]
            if left:
                train = resolve_name(find_algorithm(task.configs[0].algorithm).run)
                train(*zip(*left, strict=True), task.options)
    except Busy as error:
        return Ended(task, "busy", str(error))
    except DiskFull as error:
        return Ended(task, "full", str(error))
    except BadInput as error:
        return Ended(task, "failed", str(error))
    except Exception as error:
        return Ended(task, "failed", f"{type(error).__name__}: {error}")
    return Ended(task, "done")
