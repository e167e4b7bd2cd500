"""Tasks as Slurm jobs, in arrays, through submitit.

A job that runs out of time is requeued and continues from its runs' checkpoints. Which jobs are alive is
asked of `squeue`, for not every cluster keeps accounts.
"""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bsrs.config.sweep import SlurmOptions
from bsrs.errors import BadInput, optional
from bsrs.sweep.executors import THREADS
from bsrs.sweep.tasks import Ended, Task, work

# Clusters refuse longer arrays by default.
MOST_IN_ARRAY = 1_000
POLL_S = 1.0
SQUEUE_S = 3.0


class Job:
    """What a job calls. submitit pickles it, and calls `checkpoint` when time has run out."""

    _out_of_time = False

    def __call__(self, task: Task) -> Ended:
        ended = work(task)
        # When time has run out, Slurm may end submitit's request to requeue the job: then it is the job that failed.
        return replace(ended, how="lost") if ended.how == "failed" and self._out_of_time else ended

    def checkpoint(self, task: Task) -> Any:
        """Submit the same task again: how far its runs are is in their folders."""
        from submitit.helpers import DelayedSubmission

        self._out_of_time = True
        return DelayedSubmission(Job(), task)


class SlurmExecutor:
    """Jobs that live in `root/slurm`."""

    def __init__(self, options: SlurmOptions, root: Path, threads: int = 1) -> None:
        submitit = optional("submitit", "the slurm executor", "slurm")
        try:
            self._slurm = submitit.SlurmExecutor(root / "slurm", max_num_timeout=options.requeues)
        except RuntimeError:
            raise BadInput("the slurm executor was asked for, but srun is not found on this machine") from None
        self._refusal = submitit.core.utils.FailedJobError
        self._slurm.update_parameters(**slurm_parameters(options, threads))
        self._jobs: dict[Any, Task] = {}
        self._asked, self._missing = 0.0, set[str]()

    def submit(self, tasks: Sequence[Task]) -> None:
        for first in range(0, len(tasks), MOST_IN_ARRAY):
            some = tasks[first : first + MOST_IN_ARRAY]
            try:
                jobs = self._slurm.map_array(Job(), some)
            except self._refusal as error:
                raise BadInput(f"Slurm refused the jobs: {error}") from None
            self._jobs.update(zip(jobs, some, strict=True))

    def wait(self, timeout: float) -> list[Ended]:
        until = time.monotonic() + timeout
        while not (ended := self._ended()) and time.monotonic() < until:
            time.sleep(min(POLL_S, timeout))
        return ended

    def _ended(self) -> list[Ended]:
        done = [job for job in self._jobs if job.paths.result_pickle.exists()]
        lost = [job for job in self._lost() if job not in done]
        answers = [self._answer(job) for job in done]
        return answers + [Ended(self._jobs.pop(job), "lost", f"Slurm job {job.job_id} is gone") for job in lost]

    def _answer(self, job: Any) -> Ended:
        task = self._jobs.pop(job)
        try:
            answer: Ended = job.result()
            return answer
        except Exception as error:  # whatever ended the job is in its log
            return Ended(task, "lost", f"Slurm job {job.job_id} failed: {str(error).splitlines()[0]}")

    def _lost(self) -> list[Any]:
        """Find jobs that the queue did not know twice in a row, so that a result has had time to appear."""
        if time.monotonic() - self._asked < SQUEUE_S or not self._jobs:
            return []
        self._asked = time.monotonic()
        queued = _queue()
        if queued is None:
            return []
        missing = {job.job_id for job in self._jobs} - queued
        twice = missing & self._missing
        self._missing = missing
        return [job for job in self._jobs if job.job_id in twice]

    def close(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)


def slurm_parameters(options: SlurmOptions, threads: int) -> dict[str, Any]:
    """Translate the options for submitit."""
    parameters: dict[str, Any] = {
        "job_name": "bsrs",
        "time": options.time_min,
        "cpus_per_task": options.cpus,
        "array_parallelism": options.parallel,
        "setup": [f"export {name}={threads}" for name in THREADS],
    }
    for name in ("partition", "account", "qos", "constraint"):
        if getattr(options, name):
            parameters[name] = getattr(options, name)
    if options.gpus:
        parameters["gpus_per_node"] = options.gpus
    if options.mem_gb:
        parameters["mem"] = f"{round(options.mem_gb * 1024)}M"
    return parameters


def _queue() -> set[str] | None:
    """List the ids of this user's jobs that are waiting or running; None if Slurm does not answer just now."""
    try:
        answer = subprocess.run(
            ["squeue", "--me", "--noheader", "--array", "--format=%i"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(answer.stdout.split()) if answer.returncode == 0 else None
