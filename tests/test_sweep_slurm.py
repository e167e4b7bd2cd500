"""Sweeps as Slurm jobs: on a real cluster of one node where its daemons can run, and the script that is submitted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsrs.config.sweep import SlurmOptions
from bsrs.errors import BadInput
from bsrs.store.table import list_runs
from bsrs.sweep.executors.slurm import Job, SlurmExecutor
from bsrs.sweep.plan import expand, tasks_left
from slurm_cluster import NoSlurm, SlurmCluster
from sweeping import OPTIONS, small_sweep

submitit = pytest.importorskip("submitit")

# Long enough that no run ends before `scancel` takes effect, at a learning rate with which none diverges.
SWEEP = (
    "sweep dqn --env CartPole-v1 --eta 0 0.5 1 --steps 90000 --learning-starts 100 --learning-rate 1e-5"
    " --batch-size 16 --hidden 16 --log-every 50 --eval-every 1000 --eval-episodes 2 --checkpoint-every 500"
    " --no-tensorboard"
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


def wait_for_job(cluster: SlurmCluster, runs: Path, taken: int = -1) -> int:
    """The place in the first array of a job in the middle of its run, but not `taken`; jobs follow the etas."""
    for _ in range(600):
        time.sleep(0.2)
        queued = set(cluster.run("squeue", "--noheader", "--array", "--states=R", "--format=%i").split())
        for place, folder in enumerate(sorted(runs.glob("dqn-*-eta*"))):
            begun = (folder / "checkpoint").exists() and not (folder / "result.json").exists()
            if begun and place != taken and f"1_{place}" in queued:
                return place
    raise AssertionError("no job came to its first checkpoint")


def test_a_sweep_survives_a_cancelled_job_and_one_without_time(cluster: SlurmCluster, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "bsrs", *SWEEP.split(), "--out", str(runs), "--executor", "slurm"]
    with subprocess.Popen(
        command, env=cluster.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as sweep:
        cancelled = wait_for_job(cluster, runs)
        cluster.run("scancel", f"1_{cancelled}")
        out_of_time = wait_for_job(cluster, runs, cancelled)
        cluster.run("scancel", "--signal=USR2", f"1_{out_of_time}")
        said = sweep.communicate(timeout=240)[0]
    assert sweep.returncode == 0, said
    assert [status.state for status in list_runs(runs)] == ["finished"] * 3
    assert f"Slurm job 1_{cancelled} is gone; it is tried again" in said
    # Slurm may kill a requeued job before submitit says that it exits: that it was started again is what counts.
    log = (runs / "slurm" / f"1_{out_of_time}_0_log.out").read_text()
    assert "Caught signal SIGUSR2" in log
    assert log.count("Starting with JobEnvironment") == 2, log


def test_the_script_that_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs no cluster: `sbatch` keeps the script it is given, and refuses the second."""
    tools = tmp_path / "tools"
    tools.mkdir()
    kept = tmp_path / "kept.sh"
    sbatch = f'[ -e {kept} ] && {{ echo "no such account" >&2; exit 1; }}; cp "$1" {kept}; echo Submitted batch job 12'
    for name, body in {"srun": "exit 0", "sbatch": sbatch, "squeue": "echo 12_0", "scancel": "exit 0"}.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    options = SlurmOptions(partition="gpu", account="me", time_min=90, cpus=2, gpus=1, mem_gb=1.5, parallel=1)
    executor = SlurmExecutor(options, tmp_path / "runs", threads=2)
    tasks = tasks_left(expand(small_sweep()), tmp_path / "runs", OPTIONS)
    executor.submit(tasks)
    script = kept.read_text()
    flags = {line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")}
    expected = {"partition=gpu", "account=me", "time=90", "cpus-per-task=2", "gpus-per-node=1", "mem=1536M"}
    assert expected | {"array=0-1%1", "job-name=bsrs", "signal=USR2@90"} <= flags
    assert "export OMP_NUM_THREADS=2" in script.splitlines()
    with pytest.raises(BadInput, match=r"Slurm refused the jobs: .*no such account"):
        executor.submit(tasks)
    executor.close()


def test_a_job_goes_on_where_it_was_when_its_time_is_over(tmp_path: Path) -> None:
    (task,) = tasks_left(expand(small_sweep(eta=(0.0,))), tmp_path, OPTIONS)
    again = Job().checkpoint(task)
    assert again.function(*again.args).how == "done"
    assert [status.state for status in list_runs(tmp_path)] == ["finished"]


def test_no_slurm_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="srun is not found on this machine"):
        SlurmExecutor(SlurmOptions(), tmp_path)
