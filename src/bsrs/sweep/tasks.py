"""What a worker does, wherever it is: train one portion of a sweep's runs, in their folders."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from bsrs.config.algorithms import Algorithm, find_algorithm
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.files import DiskFull, clear_words_when_full
from bsrs.store.lock import Busy
from bsrs.store.read import folder_name, has_ended


@dataclass(frozen=True)
class Task:
    """Runs that one worker trains together."""

    root: Path
    configs: tuple[TrainingConfig, ...]
    options: RunOptions

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(folder_name(config) for config in self.configs)

    @property
    def row(self) -> Algorithm:
        return find_algorithm(self.configs[0].algorithm)

    def split(self) -> list[Self]:
        """A task for each of the runs."""
        return [replace(self, configs=(config,)) for config in self.configs]


How = Literal["done", "failed", "busy", "full", "lost"]


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    done: each run has its result; failed: an error, in `why`; busy: another process has one of the runs;
    full: the disk is full; lost: the worker died, so say the executors.
    """

    task: Task
    how: How
    why: str = ""


def work(task: Task) -> Ended:
    """Carry out a task. Never raises: whatever goes wrong is the answer."""
    try:
        with clear_words_when_full(task.root):
            _train(task)
    except Busy as error:
        return Ended(task, "busy", str(error))
    except DiskFull as error:
        return Ended(task, "full", str(error))
    except BadInput as error:
        return Ended(task, "failed", str(error))
    except Exception as error:
        return Ended(task, "failed", f"{type(error).__name__}: {error}")
    return Ended(task, "done")


def _train(task: Task) -> None:
    left = [config for config in task.configs if not has_ended(task.root / folder_name(config))]
    if left:
        task.row.train(left, [task.root / folder_name(config) for config in left], task.options)
