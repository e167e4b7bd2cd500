"""Pickles in SB3 files: the short form of what `make attack` does, and the ways that were open once."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN

from attack import pickles as attack
from bsrs.errors import BadInput
from bsrs.sb3 import load, shape
from bsrs.sb3.pickles import read_pickle
from sb3_twins import build


def test_hostile_pickles_write_import_and_execute_nothing() -> None:
    counts, wrong = attack.attack(60, seed=1)
    assert wrong == []
    assert sum(counts.values()) == 60
    assert sum(number for what, number in counts.items() if what.endswith("refused")) > 30


def test_the_watch_sees_what_it_is_for(tmp_path: Path) -> None:
    with attack.watched() as events:
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_text("x")
        eval("1")
    assert [event.split()[0] for event in events] == ["os.mkdir", "open", "compile", "exec"]


@pytest.mark.parametrize(
    "thing",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.zeros((0, 4), np.float32),
        np.array(True),
        np.float32(0.5),
        np.int64(-3),
        {"a": [1, (2, "b"), None], "c": {1, 2}},
        OrderedDict(a=np.uint8([1, 2])),
        deque([1, 2], maxlen=3),
        gym.spaces.Dict({"box": gym.spaces.Box(-1, 1, (2,)), "n": gym.spaces.MultiDiscrete([2, 3])}),
    ],
    ids=lambda thing: type(thing).__name__,
)
@pytest.mark.parametrize("protocol", [4, 5])
def test_what_models_hold_is_read_as_pickle_reads_it(thing: Any, protocol: int) -> None:
    read = read_pickle(pickle.dumps(thing, protocol))
    assert type(read) is type(thing)
    if isinstance(thing, np.ndarray):
        assert (read.dtype, read.shape, read.flags.writeable) == (thing.dtype, thing.shape, True)
    np.testing.assert_equal(read, thing)


def test_a_random_generator_continues_where_it_was() -> None:
    space = gym.spaces.Discrete(1000, seed=3)
    space.sample()
    read = read_pickle(pickle.dumps(space))
    assert [read.sample() for _ in range(5)] == [space.sample() for _ in range(5)]


@pytest.mark.parametrize(
    "thing",
    [
        np.array([{}], dtype=object),
        np.zeros(2, dtype=[("a", "f4")]),
        np.zeros(2, dtype=">f4"),
        np.array(["text"]),
        np.random.MT19937(0),
        {(1, 2): 3},
        slice(1, 2),
    ],
    ids=lambda thing: str(getattr(thing, "dtype", type(thing).__name__)),
)
def test_what_no_model_needs_is_refused(thing: Any) -> None:
    with pytest.raises(BadInput):
        read_pickle(pickle.dumps(thing))


def test_an_entry_that_takes_forever_to_hash_is_refused() -> None:
    nested = (
        pickle.EMPTY_TUPLE
        + pickle.MEMOIZE
        + b"".join(pickle.BINGET + bytes([depth]) + pickle.TUPLE2 + pickle.MEMOIZE for depth in range(60))
    )
    with pytest.raises(BadInput):
        read_pickle(nested + pickle.EMPTY_DICT + pickle.BINGET + b"\x3c" + pickle.NONE + pickle.SETITEM + pickle.STOP)


# ---- what is not in a pickle


def edited(path: Path, **changes: Any) -> Path:
    with zipfile.ZipFile(path) as old:
        contents = {name: old.read(name) for name in old.namelist()}
    data = json.loads(contents["data"])
    for name, value in changes.items():
        data[name] = {**data.get(name, {}), **value} if name == "bsrs_shaping" else value
    with zipfile.ZipFile(path, "w") as new:
        for name, content in contents.items():
            new.writestr(name, json.dumps(data) if name == "data" else content)
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    shape(build("sb3 DQN"), eta=0.5).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file when it is imported."""
    (tmp_path / "evil_twin.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nEta = None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "imported"


def test_a_file_does_not_choose_an_env_to_import(saved: Path, planted: Path) -> None:
    model = load(edited(saved, env="evil_twin:Env-v0"), DQN)
    assert model.env is None
    assert not planted.exists()


def test_a_file_does_not_choose_an_eta_to_import(saved: Path, planted: Path) -> None:
    for eta in ("evil_twin:Eta", "evil_twin:Eta(a=1)"):
        with pytest.raises(BadInput, match=r"pass eta=\.\.\. to load again"):
            load(edited(saved, bsrs_shaping={"eta": eta}), DQN)
    assert not planted.exists()


def test_a_file_does_not_choose_where_logs_are_written(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = edited(saved, tensorboard_log="/somewhere/else")
    assert load(path, DQN).tensorboard_log is None
    assert "tensorboard_log is left out" in capsys.readouterr().err
    assert load(path, DQN, tensorboard_log="mine").tensorboard_log == "mine"
    assert load(path, DQN, trust=True).tensorboard_log == "/somewhere/else"


def test_a_name_must_be_in_a_module_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    code = pickle.dumps(DQN.policy_aliases["MlpPolicy"])
    assert read_pickle(code) is DQN.policy_aliases["MlpPolicy"]
    monkeypatch.delitem(sys.modules, "stable_baselines3.dqn.policies")
    with pytest.raises(BadInput, match=r"refers to stable_baselines3\.dqn\.policies\.DQNPolicy"):
        read_pickle(code)
