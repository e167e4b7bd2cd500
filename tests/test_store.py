"""Run folders: refusals, the lock, damaged files, a full disk."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bsrs.agents.agent import State
from bsrs.config.agents import DQNConfig
from bsrs.config.settings import RunSettings
from bsrs.errors import BadInput
from bsrs.store import checkpoint, read_config, read_metrics, read_model, read_result
from bsrs.store.files import Lines
from bsrs.store.read import checkpoints
from bsrs.store.run import Run
from bsrs.train import Outcome

CONFIG = DQNConfig(env="CartPole-v1", eta=0.5, steps=100)
STATE = State(
    {"w": torch.arange(6.0).reshape(2, 3)},
    {"replay/obs": np.arange(12, dtype=np.uint8).reshape(3, 4)},
    {"step": 50, "rng": {"state": 2**100}},
)
POLICY = State({"w": torch.ones(2)})


def opened(folder: Path, config: DQNConfig = CONFIG, resume: bool = False) -> Run:
    return Run(folder, config, resume=resume)


def stopped_run(folder: Path) -> None:
    """A run that was stopped after a checkpoint and one more record."""
    run = opened(folder)
    run.load()
    run.append({"kind": "train", "step": 50})
    run.save(STATE)
    run.append({"kind": "train", "step": 60})
    run.close()


def test_a_run_from_beginning_to_end(tmp_path: Path) -> None:
    run = opened(tmp_path)
    assert run.load() is None
    run.append({"kind": "train", "step": 1, "loss": float("nan")})
    run.save(STATE)
    run.finish(Outcome("finished", 100, 7.5), POLICY)
    run.close()
    assert read_config(tmp_path) == RunSettings.of(CONFIG)
    assert read_metrics(tmp_path) == [{"kind": "train", "step": 1, "loss": None}]
    result = read_result(tmp_path)
    assert result is not None
    assert (result["outcome"], result["step"], result["score"]) == ("finished", 100, 7.5)
    assert result["wall_time_s"] >= 0
    assert "torch" in result["versions"]
    assert torch.equal(read_model(tmp_path)[1].tensors["w"], POLICY.tensors["w"])
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_comes_back_and_newer_records_go(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    run = opened(tmp_path, resume=True)
    state = run.load()
    run.close()
    assert state is not None
    assert torch.equal(state.tensors["w"], STATE.tensors["w"])
    np.testing.assert_array_equal(state.arrays["replay/obs"], STATE.arrays["replay/obs"])
    assert state.info == STATE.info
    assert read_metrics(tmp_path) == [{"kind": "train", "step": 50}]


def test_the_tensorboard_files_hold_the_records(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = Run(tmp_path, CONFIG, track=("tensorboard",))
    run.load()
    run.append({"kind": "eval", "step": 10, "score": 3.0, "scores": [2.0, 4.0]})
    run.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("eval/score")] == [(10, 3.0)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eta": 0.7}, "holds another run .*eta 0.5, not 0.7"),
        ({}, "unfinished; choose another folder, or let it resume"),
    ],
)
def test_a_folder_with_a_run_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    stopped_run(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(BadInput, match=says):
        opened(tmp_path, dataclasses.replace(CONFIG, **change))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_an_ended_run_is_not_run_again(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.load()
    run.finish(Outcome("diverged", 40, None, "mean value is 1e9"), POLICY)
    run.close()
    with pytest.raises(BadInput, match="ended already: diverged at step 40"):
        opened(tmp_path, resume=True)


def test_a_failed_run_may_be_tried_again(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.load()
    run.fail(RuntimeError("the env broke"))
    run.close()
    assert read_result(tmp_path)["reason"] == "RuntimeError: the env broke"  # type: ignore[index]
    run = opened(tmp_path, resume=True)
    run.load()
    assert read_result(tmp_path) is None
    run.close()


def test_a_folder_with_strange_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(BadInput, match=r"holds thesis\.txt but no run"):
        opened(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file cannot be used: File exists"):
        opened(tmp_path / "file")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = opened(tmp_path)
    with pytest.raises(BadInput, match="being run by another process"):
        opened(tmp_path, resume=True)
    run.close()
    opened(tmp_path, resume=True).close()


def test_a_config_edited_by_hand_is_noticed(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"eta": 0.5', '"eta": 0.6'))
    with pytest.raises(BadInput, match="changed after the run began"):
        read_config(tmp_path)


def test_a_config_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(BadInput, match="format 99"):
        read_config(tmp_path)


@pytest.mark.parametrize("file", ["tensors.safetensors", "replay.obs.npy", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_a_damaged_checkpoint_is_said_to_be(tmp_path: Path, file: str, damage: str) -> None:
    stopped_run(tmp_path)
    path = tmp_path / "checkpoint" / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "truncated" else content[:-3] + b"xyz")
    run = opened(tmp_path, resume=True)
    with pytest.raises(BadInput, match=r"checkpoint|damaged"), pytest.warns(UserWarning, match="starts again"):
        run.load()
    assert run.load() is None  # it is out of the way
    run.close()


def test_killed_between_the_two_renames(tmp_path: Path) -> None:
    """The old checkpoint is whole under its other name, and is found there."""
    stopped_run(tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "checkpoint.old")
    run = opened(tmp_path, resume=True)
    assert run.load() is not None
    run.close()


class Killed(BaseException):
    """The process ends here."""


class KillsAtFileStep:
    """An audit hook, which Python asks before whatever it does with a file; hooks stay for ever, so it can be idle."""

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left is not None and event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed


def test_a_save_killed_at_any_step_leaves_a_whole_checkpoint_and_can_be_repeated(tmp_path: Path) -> None:
    folder, killer = tmp_path / "checkpoint", KillsAtFileStep()
    checkpoint.save(folder, STATE, {"version": 0})
    last, steps, ended = 0, 0, False
    while not ended:
        killer.left = steps
        try:
            checkpoint.save(folder, STATE, {"version": last + 1})
            ended = True
        except Killed:
            steps += 1
        killer.left = None
        found = checkpoints(tmp_path)
        loaded = checkpoint.load(found[max(found)].path)
        assert torch.equal(loaded[0].tensors["w"], STATE.tensors["w"])
        assert loaded[1]["version"] in (last, last + 1)
        last = loaded[1]["version"]
    assert steps > 10
    assert last > 1  # some were killed after the new one was in its place
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_half_written_line_does_not_count(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind": "train", "st')
    assert [line["step"] for line in read_metrics(tmp_path)] == [50, 60]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    stopped_run(tmp_path)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b"oops\n")
    with pytest.raises(BadInput, match="line 3"):
        read_metrics(tmp_path)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk takes half of a line: the line is withdrawn, and the sentence says what to do."""
    lines = Lines(tmp_path / "metrics.jsonl")
    lines.append({"step": 1})
    write = os.write

    def fill(descriptor: int, content: bytes) -> int:
        write(descriptor, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fill)
    with pytest.raises(BadInput, match="no space left"):
        lines.append({"step": 2})
    monkeypatch.undo()
    lines.append({"step": 3})
    lines.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 3}\n'


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_run(tmp_path)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    run = opened(tmp_path, resume=True)
    run.load()
    with pytest.raises(BadInput, match="no space left"):
        run.save(dataclasses.replace(STATE, info={"step": 99}))
    run.close()
    assert checkpoint.load(tmp_path / "checkpoint")[0].info["step"] == 50
