"""Where the workers are: processes of this machine, a Ray cluster, Slurm jobs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bsrs.config.sweep import SweepOptions
from bsrs.sweep.tasks import Ended, Task


class Executor(Protocol):
    """Takes tasks, and says when they have ended. Has no memory: what matters is in the runs' folders."""

    def submit(self, tasks: Sequence[Task]) -> None:
        """Carry these out as soon as there is room."""

    def wait(self, timeout: float) -> list[Ended]:
        """The tasks that ended since the last call; waits up to `timeout` seconds for the first."""

    def cancel(self, task: Task) -> None:
        """Stop a task, or forget it if it has not begun; it is not heard of again."""

    def close(self) -> None:
        """Stop everything that is under way."""


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


__all__ = ["Executor", "make_executor"]
