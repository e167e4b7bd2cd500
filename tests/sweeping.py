"""What the tests of sweeps share: a small sweep, and workers and watchers that are easy to see through."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepConfig, SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.store.table import RunStatus
from bsrs.sweep.plan import expand, run_options
from bsrs.sweep.tasks import Ended, Task, work

OPTIONS = SweepOptions(workers=2, members=1, checkpoint_every=60, tensorboard=False)


def small_sweep(**changes: Any) -> SweepConfig:
    """Two runs of DQN on CartPole that are done in an instant."""
    fields = {
        "steps": 300,
        "learning_starts": 50,
        "buffer_size": 200,
        "batch_size": 8,
        "hidden": [8],
        "log_every": 50,
        "eval_every": 0,
        "eval_episodes": 1,
        **changes.pop("fields", {}),
    }
    return SweepConfig(**{"algorithm": "dqn", "env": ("CartPole-v1",), "eta": (0.0, 1.0), **changes, "fields": fields})


class HereExecutor:
    """Does the tasks itself, one by one."""

    def __init__(self) -> None:
        self._queue: deque[Task] = deque()

    def submit(self, tasks: Sequence[Task]) -> None:
        self._queue.extend(tasks)

    def wait(self, timeout: float) -> list[Ended]:
        return [work(self._queue.popleft())] if self._queue else []

    def close(self) -> None:
        self._queue.clear()


class Notes:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.ended: list[RunStatus] = []

    def run_ended(self, status: RunStatus) -> None:
        self.ended.append(status)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def tick(self) -> None: ...


class _PowerCut(BaseException):
    """Not an Exception: a run does not get to say that it failed."""


def begin(config: TrainingConfig, root: Path, step: int = 150) -> Path:
    """A run that was cut off at `step`, in its folder."""
    from bsrs.run import run

    def cut(at: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None:
        if at >= step:
            raise _PowerCut

    folder = root / folder_name(config)
    try:
        run([config], [folder], run_options(config, OPTIONS), cut)
    except _PowerCut:
        return folder
    raise AssertionError("the run came to its end")


def finished(sweep: SweepConfig, root: Path) -> dict[str, bytes]:
    """The metrics of the sweep's runs, undisturbed."""
    for config in expand(sweep):
        assert work(Task(root, (config,), run_options(config, OPTIONS))).how == "done"
    return metrics(root)


def metrics(root: Path) -> dict[str, bytes]:
    """Run -> its metrics, byte for byte."""
    return {path.parent.name: path.read_bytes() for path in root.glob("*/metrics.jsonl")}
