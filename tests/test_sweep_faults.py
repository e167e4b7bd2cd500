"""What can go wrong with a sweep ends in a recovery or in a clear message, and nothing finished is lost."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bsrs.config.settings import folder_name
from bsrs.errors import BadInput
from bsrs.store.lock import Busy, Lock, is_held
from bsrs.store.table import list_runs, read_records
from bsrs.sweep.conduct import run_sweep, run_tasks, sweep_folder
from bsrs.sweep.executors.local import LocalExecutor
from bsrs.sweep.plan import expand, tasks_left
from bsrs.writing import DiskFull
from sweeping import OPTIONS, HereExecutor, Notes, begin, finished, metrics, small_sweep

SWEEP = small_sweep()
FIRST, SECOND = expand(SWEEP)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return finished(SWEEP, tmp_path_factory.mktemp("undisturbed"))


# --------------------------------------------------------------------------------------------------------------
# Damaged files


def test_a_truncated_checkpoint_costs_time_only(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = begin(FIRST, tmp_path)
    tensors = folder / "checkpoint" / "tensors.safetensors"
    os.truncate(tensors, tensors.stat().st_size // 2)
    with pytest.warns(UserWarning, match="the run starts again"):
        assert not run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor()).problems
    assert metrics(tmp_path) == undisturbed
    assert (folder / "checkpoint.damaged").exists()


def test_a_checkpoint_without_its_last_file_costs_time_only(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = begin(FIRST, tmp_path)
    (folder / "checkpoint" / "state.json").unlink()
    with pytest.warns(UserWarning, match="the run starts again"):
        assert not run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor()).problems
    assert metrics(tmp_path) == undisturbed


def test_a_corrupt_line_of_an_unfinished_run_is_made_again(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    folder = begin(FIRST, tmp_path)
    lines = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(lines.replace(b"train", b"tra\0n", 1))
    with pytest.warns(UserWarning, match="not as it was at the last checkpoint: the run starts again"):
        assert not run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor()).problems
    assert metrics(tmp_path) == undisturbed


def test_a_corrupt_line_of_a_finished_run_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    finished(SWEEP, tmp_path)
    damaged = tmp_path / folder_name(FIRST) / "metrics.jsonl"
    lines = damaged.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(b"".join([lines[0], b'{"kind": \n', *lines[1:]]))
    with pytest.warns(UserWarning, match=r"metrics\.jsonl has changed since the run ended"):
        assert set(read_records(tmp_path).name) == {folder_name(SECOND)}
    assert [status.state for status in list_runs(tmp_path)] == ["damaged", "finished"]
    summary = run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert "has changed since the run ended" in summary.problems[folder_name(FIRST)]


def test_a_config_edited_by_hand_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    folder = begin(FIRST, tmp_path)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"batch_size": 8', '"batch_size": 9'))
    summary = run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert "was changed after the run began" in summary.problems[folder.name]
    assert [status.name for status in summary.statuses] == [folder_name(SECOND)]


def test_a_run_of_a_newer_version_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    folder = begin(FIRST, tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "format": 99}))
    summary = run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert "has format 99; this version of bsrs reads up to" in summary.problems[folder.name]
    assert len(summary.statuses) == 1
    assert [status.state for status in list_runs(tmp_path)] == ["damaged", "finished"]


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"format": 99, "series": []}')
    with pytest.raises(BadInput, match=r"sweep\.json has format 99"):
        run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert not list(tmp_path.glob("dqn-*"))


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / folder_name(FIRST)
    strange.mkdir()
    (strange / "thesis.tex").write_text("years of work")
    summary = run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert "holds thesis.tex but no run" in summary.problems[strange.name]
    assert sorted(path.name for path in strange.iterdir()) == ["thesis.tex"]


# --------------------------------------------------------------------------------------------------------------
# Two at once


def test_two_sweeps_on_one_folder(tmp_path: Path) -> None:
    with (
        sweep_folder(tmp_path, []),
        pytest.raises(Busy, match=f"is being run by another process .process {os.getpid()}"),
    ):
        run_sweep(expand(SWEEP), tmp_path, OPTIONS, HereExecutor())
    assert not list(tmp_path.glob("dqn-*"))


class LetsGo(Notes):
    """Releases a lock once it has been told that someone waits for it."""

    def __init__(self, lock: Lock) -> None:
        super().__init__()
        self._lock = lock

    def message(self, text: str) -> None:
        super().message(text)
        self._lock.release()


def test_a_run_that_another_process_has_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / folder_name(FIRST)
    folder.mkdir()
    watcher = LetsGo(Lock(folder / "lock", "the run"))
    summary = run_tasks(tasks_left(expand(SWEEP), tmp_path, OPTIONS), HereExecutor(), watcher)
    assert len(watcher.messages) == 1
    assert "waiting for it" in watcher.messages[0]
    assert len(summary.statuses) == 2


# --------------------------------------------------------------------------------------------------------------
# Processes that die


class Killer(Notes):
    """Kills the worker that has `run`, as the system does when memory runs out, up to `times` times."""

    def __init__(self, run: Path, times: int) -> None:
        super().__init__()
        self._run, self._left = run, times

    def tick(self) -> None:
        lock = self._run / "lock"
        if self._left and (self._run / "metrics.jsonl").exists() and is_held(lock):
            os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
            self._left -= 1


@pytest.mark.parametrize(("times", "recovers"), [(1, True), (5, False)])
def test_a_worker_killed_by_the_system(tmp_path: Path, times: int, recovers: bool) -> None:
    steps = 60_000 if recovers else 400_000  # it must not end between two kills, which are a second apart
    long, short = expand(small_sweep(fields={"steps": steps, "gradient_steps": 1}))[0], FIRST
    options = dataclasses.replace(OPTIONS, checkpoint_every=1_000)
    killer = Killer(tmp_path / folder_name(long), times)
    executor = LocalExecutor(2)
    try:
        summary = run_tasks(tasks_left([long, short], tmp_path, options), executor, killer, retries=2)
    finally:
        executor.close()
    assert "the worker was killed" in killer.messages[0]
    assert set(summary.problems) == (set() if recovers else {folder_name(long)})
    assert folder_name(short) in {status.name for status in summary.statuses}


def test_a_worker_that_died_with_nothing_to_do_is_replaced(tmp_path: Path) -> None:
    first, second = tasks_left(expand(SWEEP), tmp_path, OPTIONS)
    executor = LocalExecutor(1)
    try:
        assert len(run_tasks([first], executor, Notes()).statuses) == 1
        os.kill(json.loads((first.folders[0] / "lock").read_text())["pid"], signal.SIGKILL)
        time.sleep(0.2)
        assert len(run_tasks([second], executor, Notes()).statuses) == 1
    finally:
        executor.close()


def test_workers_die_with_the_sweep(tmp_path: Path) -> None:
    sweep = small_sweep(fields={"steps": 100_000}, eta=(0.0,))
    program = (
        "from sweeping import *; from bsrs.sweep.conduct import run_sweep;"
        f"run_sweep(expand(small_sweep(fields={{'steps': 100_000}}, eta=(0.0,))), Path({str(tmp_path)!r}), OPTIONS)"
    )
    lock = tmp_path / folder_name(expand(sweep)[0]) / "lock"
    with subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent) as sweeping:
        _wait_until(lambda: is_held(lock))
        sweeping.kill()
    _wait_until(lambda: not is_held(lock))


def test_interrupted_at_the_keyboard(tmp_path: Path) -> None:
    command = f"sweep dqn --env CartPole-v1 --steps 100000 --checkpoint-every 200 --out {tmp_path}".split()
    with subprocess.Popen(
        [sys.executable, "-m", "bsrs", *command],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    ) as sweep:
        _wait_until(lambda: any(tmp_path.glob("*/checkpoint")))
        sweep.send_signal(signal.SIGINT)
        said = sweep.communicate(timeout=60)[1]
    assert sweep.returncode == 130
    assert said.splitlines()[-1] == "bsrs: interrupted"
    assert [status.state for status in list_runs(tmp_path)] == ["interrupted"]


def _wait_until(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


# --------------------------------------------------------------------------------------------------------------
# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_stops_the_sweep_and_more_space_continues_it(
    small_disk: Path, undisturbed: dict[str, bytes]
) -> None:
    with pytest.raises(DiskFull, match="no space left"):
        run_sweep(expand(SWEEP), small_disk, OPTIONS, HereExecutor())
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert not run_sweep(expand(SWEEP), small_disk, OPTIONS, HereExecutor()).problems
    assert metrics(small_disk) == undisturbed
