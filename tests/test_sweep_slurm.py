"""Sweeps as Slurm jobs: on a real cluster of one node where its daemons can run, and the script that is submitted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsrs.config.sweep import SlurmOptions
from bsrs.store import read_metrics, read_result
from bsrs.store.listing import list_runs
from bsrs.sweep.executors.slurm import slurm_parameters
from slurm_cluster import NoSlurm, SlurmCluster

SWEEP = (
    "sweep dqn --env CartPole-v1 --eta 0 0.5 1 --steps 3000 --learning-starts 100 --batch-size 16 --hidden 16"
    " --log-every 50 --eval-every 1000 --eval-episodes 2 --checkpoint-every 200 --no-tensorboard"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    try:
        made = SlurmCluster(folder)
    except NoSlurm as reason:
        pytest.skip(f"no Slurm here: {reason}")
    yield made
    made.close()


def wait_for_job(cluster: SlurmCluster, runs: Path, taken: set[str]) -> str:
    """The id of a job that is in the middle of a run, but none of `taken`."""
    for _ in range(600):
        time.sleep(0.2)
        for folder in sorted(runs.glob("dqn-*")):
            if (folder / "checkpoint").exists() and not (folder / "result.json").exists():
                job = cluster.run("squeue", "--noheader", "--array", "--states=R", "--format=%i").split()
                found = sorted(set(job) - taken)
                if found:
                    return found[0]
    raise AssertionError("no job came to its first checkpoint")


def test_a_sweep_survives_a_cancelled_job_and_one_without_time(cluster: SlurmCluster, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "bsrs", *SWEEP.split(), "--out", str(runs), "--executor", "slurm"]
    with subprocess.Popen(
        command, env=cluster.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sweep:
        cancelled = wait_for_job(cluster, runs, set())
        cluster.run("scancel", cancelled)
        out_of_time = wait_for_job(cluster, runs, {cancelled})
        cluster.run("scancel", "--signal=USR2", out_of_time)
        said = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, said
    assert [status.state for status in list_runs(runs)] == ["finished"] * 3
    assert f"Slurm job {cancelled} is gone; it is tried again" in said
    logs = "".join(path.read_text() for path in (runs / "slurm").rglob("*_log.out"))
    assert "Exiting gracefully after preemption/timeout" in logs
