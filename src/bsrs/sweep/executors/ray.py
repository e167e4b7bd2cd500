"""Tasks on a Ray cluster: one that is there already, or one of this machine's cores."""

from collections.abc import Sequence
from typing import Any

from bsrs.config.sweep import RayOptions
from bsrs.errors import BadInput, optional
from bsrs.sweep.tasks import Ended, Task, work


class RayExecutor:
    """Ray's scheduler queues the tasks and finds room for them; losses are ours to handle, as everywhere."""

    def __init__(self, options: RayOptions, workers: int = 0) -> None:
        self._ray = ray = optional("ray", "the ray executor", "ray")
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(options.address, workers)
        self._work = ray.remote(num_cpus=options.cpus, num_gpus=options.gpus, max_retries=0)(work)
        self._tasks: dict[Any, Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        self._tasks.update({self._work.remote(task): task for task in tasks})

    def wait(self, timeout: float) -> list[Ended]:
        references = list(self._tasks)
        if not references:
            return []
        if not self._ray.wait(references, num_returns=1, timeout=timeout)[0]:
            return []
        ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [self._answer(reference) for reference in ready]

    def _answer(self, reference: Any) -> Ended:
        task = self._tasks.pop(reference)
        try:
            answer: Ended = self._ray.get(reference)
            return answer
        except self._ray.exceptions.RayError as error:
            return Ended(task, "lost", f"Ray lost the task ({type(error).__name__})")

    def close(self) -> None:
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        if self._ours:
            self._ray.shutdown()


def _connect(address: str, workers: int) -> None:
    import logging

    import ray

    where = {"address": address} if address else {"num_cpus": workers or None, "include_dashboard": False}
    try:
        ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(f"there is no Ray cluster at {address or 'this machine'}: {error}") from None
