"""Nothing damaged passes for whole: seals, checksums, and files that are not what they should be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bsrs import DQN
from bsrs.config.settings import folder_name
from bsrs.errors import BadInput
from bsrs.report import read_study
from bsrs.rng import stream
from bsrs.store import checkpoint, read_model, read_run, read_runs
from bsrs.store.files import Damaged, Lines
from bsrs.store.lock import Lock, is_held
from bsrs.store.run import Run
from bsrs.store.table import list_runs
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.plan import expand
from bsrs.train import Outcome
from bsrs.writing import Denied
from run_folders import config, write_run
from sweeping import OPTIONS, HereExecutor, begin, finished, metrics, small_sweep
from test_store import CONFIG, POLICY, STATE, stopped_run

SWEEP = small_sweep(fields={"eval_every": 100})
FIRST, SECOND = expand(SWEEP)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound")
    finished(SWEEP, root)
    return root


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """Two finished runs, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "store"))


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def halve(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# --------------------------------------------------------------------------------------------------------------
# Finished runs


DAMAGES: dict[str, Callable[[Path], object]] = {
    "half of the records": lambda run: halve(run / "metrics.jsonl"),
    "an edited record": lambda run: edit(run / "metrics.jsonl", '"step": 100, "score": ', '"step": 100, "score": 9'),
    "an edited result": lambda run: edit(run / "result.json", '"score": ', '"score": 9'),
    "another outcome": lambda run: edit(run / "result.json", '"finished"', '"diverged"'),
    "a flipped weight": lambda run: flip(run / "model.safetensors", -5),
    "another config": lambda run: edit(run / "config.json", '"seed": 0', '"seed": 00'),
    "no records": lambda run: (run / "metrics.jsonl").unlink(),
    "no config": lambda run: (run / "config.json").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_finished_run_is_told_and_counts_nowhere(store: Path, damage: str) -> None:
    folder = store / folder_name(FIRST)
    DAMAGES[damage](folder)
    assert [status.state for status in list_runs(store)] == ["damaged", "finished"]
    runs, damaged = read_runs(store)
    assert ([run.folder.name for run in runs], list(damaged)) == ([folder_name(SECOND)], [folder])
    study = read_study([store])
    assert len(study.rows) == 1
    assert list(study.unreadable) == [folder]
    with pytest.raises(BadInput):
        DQN.load(folder)
    if damage != "no config":  # then it is no run's folder any more, and left alone
        assert folder.name in run_sweep(expand(SWEEP), store, OPTIONS, HereExecutor()).problems


def test_every_flipped_bit_of_a_finished_run_is_told(store: Path) -> None:
    folder = store / folder_name(FIRST)
    rng = stream(0, "flips")
    for path in [*sorted(folder.glob("*.json*")), folder / "model.safetensors"]:
        content = path.read_bytes()
        for at in rng.integers(len(content), size=40).tolist():
            flip(path, at, at % 8)
            with pytest.raises(BadInput):
                read_run(folder)
            path.write_bytes(content)
    assert read_run(folder).sealed


def test_model_and_timing_need_not_be_kept(store: Path) -> None:
    folder = store / folder_name(FIRST)
    (folder / "model.safetensors").unlink()
    (folder / "timing.jsonl").unlink()
    assert read_run(folder).outcome == "finished"
    with pytest.raises(BadInput, match="has no model"):
        read_model(folder)


def test_runs_of_older_versions_are_read_without_a_seal(tmp_path: Path) -> None:
    folder = write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0, 2.0, 3.0, 4.0])
    assert (read_run(folder).score, read_run(folder).sealed) == (4.0, False)
    halve(folder / "metrics.jsonl")
    with pytest.raises(Damaged, match="lacks evaluations"):
        read_run(folder)
    assert [status.state for status in list_runs(tmp_path)] == ["damaged"]


# --------------------------------------------------------------------------------------------------------------
# Checkpoints


def resumed(config: object, root: Path) -> None:
    run_sweep([config], root, OPTIONS, HereExecutor())  # type: ignore[list-item]


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\xff\xff", b"garbage"])
def test_an_array_that_is_none_costs_time_only(sound: Path, tmp_path: Path, content: bytes) -> None:
    folder = begin(FIRST, tmp_path)
    next((folder / "checkpoint").glob("*.npy")).write_bytes(content)
    with pytest.warns(UserWarning, match=r"checkpoint .* is damaged .*: the run starts again"):
        resumed(FIRST, tmp_path)
    assert metrics(tmp_path)[folder.name] == metrics(sound)[folder.name]


def test_every_flipped_bit_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint.save(folder, STATE, {"wall_time_s": 1.5})
    rng = stream(0, "flips")
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for at in rng.integers(len(content), size=60).tolist():
            flip(path, at, at % 8)
            with pytest.raises(Damaged):
                checkpoint.load(folder)
            path.write_bytes(content)
    assert checkpoint.load(folder)[1] == {"wall_time_s": 1.5}


def test_a_checkpoint_that_does_not_fit_costs_time_only(sound: Path, tmp_path: Path) -> None:
    """Its checksums are right, but it is not this run's."""
    folder = begin(FIRST, tmp_path)
    state, about = checkpoint.load(folder / "checkpoint")
    checkpoint.save(folder / "checkpoint", type(state)(state.tensors, {}, state.info), about)
    with pytest.warns(UserWarning, match="cannot be used .*: the run starts again"):
        resumed(FIRST, tmp_path)
    assert metrics(tmp_path)[folder.name] == metrics(sound)[folder.name]


def test_everything_is_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the rename must not find files without their content."""
    synced: set[int] = set()
    whole: list[bool] = []
    fsync, rename = os.fsync, Path.rename

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    def note_rename(path: Path, target: Path) -> Path:
        if path.name == "checkpoint.new":
            whole.append({each.stat().st_ino for each in (path, *path.iterdir())} <= synced)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    checkpoint.save(tmp_path / "checkpoint", STATE, {})
    assert whole == [True]


def test_checkpoints_of_the_first_format_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint.save(folder, STATE, {"version": 1})
    content = json.loads((folder / "state.json").read_text())
    del content["checksum"]
    content["format"] = 1
    content["checksums"] = {name: mark["checksum"] for name, mark in content["checksums"].items()}
    content["checksums"]["replay.obs.npy"] = zlib.crc32(STATE.arrays["replay/obs"].tobytes())
    (folder / "state.json").write_text(json.dumps(content))
    loaded = checkpoint.load(folder)
    np.testing.assert_array_equal(loaded[0].arrays["replay/obs"], STATE.arrays["replay/obs"])
    assert torch.equal(loaded[0].tensors["w"], STATE.tensors["w"])


def test_the_lock_is_released_when_the_records_cannot_be_opened(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    (tmp_path / "timing.jsonl").unlink()
    (tmp_path / "timing.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"timing\.jsonl"):
        Run(tmp_path, CONFIG, resume=True)
    assert not is_held(tmp_path / "lock")


# --------------------------------------------------------------------------------------------------------------
# Files that are none


STRANGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a file": lambda path: path.symlink_to("/etc/passwd"),
    "nested too deep": lambda path: path.write_bytes(b"[" * 100_000),
    "nested too deep in lines": lambda path: path.write_bytes(b'{"kind": "eval", "step": ' + b"[" * 100_000 + b"\n"),
    "a long number": lambda path: path.write_bytes(b'{"format": ' + b"9" * 5_000 + b"}\n"),
    "a large number": lambda path: path.write_bytes(
        b'{"kind": "eval", "step": 1' + b"0" * 30 + b', "format": 1' + b"0" * 30 + b"}\n"
    ),
    "not a number": lambda path: path.write_bytes(b'{"kind": "eval", "step": NaN, "format": Infinity}\n'),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00\xd8" * 100),
    "a list": lambda path: path.write_bytes(b"[]\n"),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json", "model.safetensors"])
def test_a_strange_file_makes_a_row(store: Path, name: str, kind: str) -> None:
    for folder in (store / folder_name(FIRST), write_run(store, config("CartPole-v1", 0.0, 0), [1.0])):
        (folder / name).unlink(missing_ok=True)
        STRANGE[kind](folder / name)
    states = [status.state for status in list_runs(store)]
    assert states.count("damaged") == (1 if name == "model.safetensors" else 2)  # the older run does not seal its model
    assert len(read_runs(store)[1]) == states.count("damaged")


@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind.startswith("a ") and "number" not in kind])
def test_a_strange_file_does_not_hold_up_who_writes(tmp_path: Path, kind: str) -> None:
    STRANGE[kind](path := tmp_path / "file")
    for write in (partial(Lock, path, "it"), partial(Lines, path)):
        if kind == "a list":
            write()
        else:
            with pytest.raises(BadInput):
                write()
    assert is_held(path) is (kind == "a list")


def continue_run(folder: Path) -> None:
    run = Run(folder, CONFIG, resume=True)
    try:
        run.load()
        run.finish(Outcome("finished", 100, 1.0), POLICY)
    finally:
        run.close()


def test_writing_does_not_follow_a_link(tmp_path: Path) -> None:
    """A foreign folder that is continued must not lead to other files: links would be truncated."""
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    for name in ("lock", "metrics.jsonl", "timing.jsonl"):
        for link, why in ((Path.symlink_to, "is a link"), (Path.hardlink_to, "has a second name")):
            run = tmp_path / f"{name}-{link.__name__}"
            stopped_run(run)
            (run / name).unlink(missing_ok=True)
            link(run / name, precious)
            with pytest.raises(Denied, match=why):
                continue_run(run)
            assert precious.read_text() == "years of work"


def test_a_link_to_be_replaced_is_replaced_itself(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    for name in ("result.json", "result.json.new", "model.safetensors", "checkpoint.new"):
        for link in (Path.symlink_to, Path.hardlink_to):
            run = tmp_path / f"{name}-{link.__name__}"
            stopped_run(run)
            link(run / name, precious)
            if name == "result.json":
                with pytest.raises(BadInput):  # it is no result
                    continue_run(run)
            else:
                continue_run(run)
                assert (run / "result.json").is_file()
            assert precious.read_text() == "years of work"


def test_a_linked_folder_is_not_written_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    stopped_run(tmp_path / "run")
    (tmp_path / "run" / "tensorboard").symlink_to(elsewhere)
    run = Run(tmp_path / "run", CONFIG, resume=True, track=("tensorboard",))
    with pytest.raises(Denied, match="tensorboard is a link"):
        run.load()
    run.close()
    (elsewhere / "precious").write_text("years of work")
    (tmp_path / "run" / "metrics.csv").symlink_to(elsewhere / "precious")
    run = Run(tmp_path / "run", CONFIG, resume=True, track=("csv",))
    with pytest.raises(Denied, match=r"metrics\.csv is a link"):
        run.load()
    run.close()
    assert (elsewhere / "precious").read_text() == "years of work"
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(Denied, match="is a link"):
        Run(tmp_path / "link", CONFIG, resume=True)
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]


def test_a_store_with_loops_and_depth(store: Path) -> None:
    (store / "loop").symlink_to(store)
    here = os.getcwd()
    try:
        os.chdir(store)
        for _ in range(1_500):
            os.mkdir("d")
            os.chdir("d")
        assert [status.state for status in list_runs(store)].count("finished") == 2
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", store / "d"], check=True)  # too deep for shutil
