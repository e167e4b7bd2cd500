"""A sweep from its configs to its end: the folder, the tasks, the workers and the view put together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.store.names import folder_name
from bsrs.sweep.executors import Executor, make_executor
from bsrs.sweep.plan import tasks_left
from bsrs.sweep.schedule import Summary, carry_out, sweep_folder
from bsrs.sweep.view import watch


def run_sweep(
    configs: Sequence[TrainingConfig], root: Path, options: SweepOptions, executor: Executor | None = None
) -> Summary:
    """Train what has not ended yet. Kill it at any time and call it again: it goes on."""
    with sweep_folder(root, [folder_name(config) for config in configs]):
        tasks = tasks_left(configs, root, options)
        left = [config for task in tasks for config in task.configs]
        executor = executor or make_executor(options, root)
        try:
            with watch(root, left, len(configs)) as watcher:
                return carry_out(tasks, executor, watcher, retries=options.retries)
        finally:
            executor.close()
