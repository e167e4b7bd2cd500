"""What a worker does, wherever it is: train one portion of a sweep's runs, in their folders."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, Self

from bsrs.config.algorithms import Algorithm, find_algorithm
from bsrs.config.settings import folder_name
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.lock import Busy, is_held
from bsrs.store.read import has_ended
from bsrs.writing import DiskFull, explained


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
    def folders(self) -> list[Path]:
        return [self.root / name for name in self.names]

    @property
    def row(self) -> Algorithm:
        return find_algorithm(self.configs[0].algorithm)

    def is_held(self) -> bool:
        """Whether a process has one of its runs."""
        return any(is_held(folder / "lock") for folder in self.folders)

    def split(self) -> list[Self]:
        """A task for each of the runs."""
        return [replace(self, configs=(config,)) for config in self.configs]


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    done: each run has its result; failed: an error, in `why`; busy: another process has one of the runs;
    full: the disk is full; lost: the worker died, so say the executors.
    """

    task: Task
    how: Literal["done", "failed", "busy", "full", "lost"]
    why: str = ""


def clean_up(ended: Sequence[Path]) -> None:
    """Remove checkpoints that a kill just before a run's end has left."""
    for folder in ended:
        if any(os.path.lexists(folder / f"checkpoint{which}") for which in ("", ".old", ".new")):
            from bsrs.store import checkpoint  # here, because it imports torch

            checkpoint.remove(folder / "checkpoint")


class Executor(Protocol):
    """Takes tasks, and says when they have ended. Has no memory: what matters is in the runs' folders."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Carry these out as soon as there is room."""

    def wait(self, timeout: float) -> list[Ended]:
        """The tasks that ended since the last call; waits up to `timeout` seconds for the first."""

    def close(self) -> None:
        """Stop everything that is under way."""


def work(task: Task) -> Ended:
    """Execute a task. Never raises: whatever goes wrong is the answer."""
    try:
        with explained(task.root):
            ended = [folder for folder in task.folders if has_ended(folder)]
            clean_up(ended)
            left = [pair for pair in zip(task.configs, task.folders, strict=True) if pair[1] not in ended]
            if left:
                task.row.train(*zip(*left, strict=True), task.options)
    except Busy as error:
        return Ended(task, "busy", str(error))
    except DiskFull as error:
        return Ended(task, "full", str(error))
    except BadInput as error:
        return Ended(task, "failed", str(error))
    except Exception as error:
        return Ended(task, "failed", f"{type(error).__name__}: {error}")
    return Ended(task, "done")
