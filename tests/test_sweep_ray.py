"""Sweeps on Ray: two nodes, one of which is lost in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bsrs.config.sweep import RayOptions, SweepConfig, SweepOptions
from bsrs.store.table import RunStatus, list_runs
from bsrs.sweep.conduct import run_tasks
from bsrs.sweep.plan import expand, tasks_left

ray = pytest.importorskip("ray")

SWEEP = SweepConfig(
    algorithm="dqn",
    env=("CartPole-v1",),
    eta=(0.0, 0.5, 1.0, 2.0),
    fields={"steps": 4_000, "learning_starts": 100, "batch_size": 16, "hidden": [16], "log_every": 50},
)


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.doomed = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


class RemovesANode:
    """A watcher that takes one node away as soon as both are in the middle of a run."""

    def __init__(self, cluster: Any, runs: Path) -> None:
        self._cluster, self._runs = cluster, runs
        self.said_so: list[str] = []
        self.removed = False

    def run_ended(self, status: RunStatus) -> None: ...

    def message(self, text: str) -> None:
        self.said_so.append(text)

    def tick(self) -> None:
        if not self.removed and len(list(self._runs.glob("*/checkpoint"))) >= 2:
            self._cluster.remove_node(self._cluster.doomed, allow_graceful=False)
            self.removed = True


def test_a_sweep_survives_the_loss_of_a_node(cluster: Any, tmp_path: Path) -> None:
    from bsrs.sweep.executors.ray import RayExecutor

    executor = RayExecutor(RayOptions(address=cluster.address))
    tasks = tasks_left(expand(SWEEP), tmp_path, SweepOptions(checkpoint_every=100, tensorboard=False))
    watcher = RemovesANode(cluster, tmp_path)
    try:
        summary = run_tasks(tasks, executor, watcher)
    finally:
        executor.close()
    assert watcher.removed
    assert any("Ray lost the task" in message for message in watcher.said_so)
    assert not summary.problems
    assert [status.state for status in list_runs(tmp_path)] == ["finished"] * 4
