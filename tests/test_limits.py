"""What a config may ask for, who is to blame when actions are not numbers, and what foreign text may do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsrs import DQN
from bsrs.agents.agent import Array, State
from bsrs.cli import main
from bsrs.config.agents import TD3Config
from bsrs.config.base import to_dict
from bsrs.config.settings import RunSettings
from bsrs.config.sweep import RunOptions, SweepConfig, SweepOptions
from bsrs.config.training import OffPolicyConfig, TrainingConfig
from bsrs.errors import BadInput, printable
from bsrs.run import Records, make_agent
from bsrs.scales import as_scale
from bsrs.store import checkpoint, read_model, read_run
from bsrs.store.table import list_runs
from bsrs.sweep.plan import expand, read_sweep
from bsrs.tabular.grids import GridMap
from bsrs.train import Loop
from run_folders import config, write_run
from sweeping import begin, small_sweep


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": float("nan")},
        {"learning_rate": float("inf")},
        {"learning_rate": float("nan")},
        {"max_grad_norm": float("inf")},
        {"temperature": float("inf")},
        {"eta": float("nan")},
        {"eta": "linear:0:1:0"},
        {"eta": "cosine:0:inf:10"},
        {"eta": "piecewise:0=nan"},
        {"hidden": (0,)},
        {"hidden": ()},
        {"hidden": (90_000, 90_000)},
        {"hidden": (2,) * 101},
        {"n_envs": 10**6},
        {"eval_episodes": 10**9},
        {"batch_size": 10**9},
        {"buffer_size": 10**15},
        {"steps": 10**18},
        {"gradient_steps": 10**9},
        {"seed": 2**70},
        {"env": "Cart\x1b[2JPole-v1"},
        {"env": ""},
    ],
)
def test_settings_that_cannot_train_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        config(**{"env": "CartPole-v1", "eta": 0.0, "seed": 0, **wrong})


@pytest.mark.parametrize("text", ["linear:0:1:-5", "linear:nan:1:5", "cosine:0:1:0", "piecewise:0=1,5=inf"])
def test_schedules_have_a_length_and_finite_ends(text: str) -> None:
    with pytest.raises(BadInput, match="schedule of eta"):
        as_scale(text)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (RunOptions, {"device": "meta"}),
        (RunOptions, {"device": "gpu"}),
        (RunOptions, {"threads": -1}),
        (RunOptions, {"checkpoint_every": -1}),
        (SweepOptions, {"device": "meta"}),
        (SweepOptions, {"workers": 10**6}),
        (SweepOptions, {"retries": -1}),
    ],
)
def test_options_that_cannot_work_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(wrong))):
        kind(**wrong)


def test_a_sweep_of_too_many_runs_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(BadInput, match="seeds is 1000000000"):
        SweepConfig(algorithm="dqn", env=("CartPole-v1",), seeds=10**9)
    with pytest.raises(BadInput, match="100,000,000 runs"):
        SweepConfig(algorithm="dqn", env=("a", "b"), eta=tuple(map(float, range(100))), seeds=500_000)


@pytest.mark.parametrize("text", ["x = " + "9" * 5_000, "x = " + "[" * 5_000, "\ud800", "scale = 3", "fields = 1"])
def test_a_strange_sweep_file_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sweep.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(BadInput, match=r"sweep\.toml"):
        read_sweep(str(path), "", {})


def test_a_system_error_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tabular", "solve", "--map", str(tmp_path / ("x" * 5_000))])
    assert ended.value.code == 2
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "dqn", "--env", "CartPole-v1", "--eta"], "has no value"),
        (["train", "dqn", "--env", ":"], "is no name of a module"),
        (["runs", ".", "--plugin", "../../../etc/passwd"], "is no name of a module"),
    ],
)
def test_what_the_attack_found(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_an_empty_folder_can_be_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["runs", str(tmp_path), "--sql", "select eta, step from runs join records using (name, eta, step)"])
    assert "0 rows" in capsys.readouterr().out


def test_a_sweep_file_cannot_name_the_algorithm_twice(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('algorithm = "dqn"\nenv = ["CartPole-v1"]\n[fields]\nalgorithm = "dqn"\n')
    with pytest.raises(BadInput, match="unknown field 'algorithm'"):
        expand(read_sweep(str(tmp_path / "a.toml"), "", {}))


# --------------------------------------------------------------------------------------------------------------
# Actions that are not numbers


class Broken:
    """An agent whose first member's policy breaks at a step, in training or only where it is greedy."""

    def __init__(self, agent: Any, step: int, greedy: bool) -> None:
        self._agent, self._step, self._greedy = agent, step, greedy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def act(self, obs: Array, step: int) -> Array:
        actions: Array = np.array(self._agent.act(obs, step))
        if step >= self._step and not self._greedy:
            actions[0] = np.nan
        return actions

    def greedy(self, obs: Array) -> Array:
        actions: Array = np.array(self._agent.greedy(obs))
        actions[0] = np.nan
        return actions


@pytest.mark.parametrize("greedy", [False, True])
def test_a_policy_that_is_not_finite_has_diverged_and_the_others_finish(greedy: bool) -> None:
    """A fault of the env would excuse it from the statistics."""
    configs = [
        TD3Config(env="Pendulum-v1", eta=eta, steps=60, hidden=(8,), log_every=20, eval_every=30, eval_episodes=1)
        for eta in (0.0, 1.0)
    ]
    alone, records = Records(), [Records(), Records()]
    Loop(make_agent(configs[1:]), configs[1], [0], [alone]).run()
    agent: Any = Broken(make_agent(configs), 25, greedy)
    broken, sound = Loop(agent, configs[0], [0, 0], records).run()
    assert (broken.outcome, broken.step) == ("diverged", 30 if greedy else 25)
    assert "not finite" in broken.reason
    assert (sound.outcome, sound.step) == ("finished", 60)
    assert [line["step"] for line in records[1].lines] == [line["step"] for line in alone.lines]


# --------------------------------------------------------------------------------------------------------------
# Foreign folders


def foreign_run(root: Path, env: str) -> Path:
    """A run that was made elsewhere, with an env of its maker's own."""
    folder = begin(expand(small_sweep())[0], root)
    content = json.loads((folder / "config.json").read_text())
    content["config"]["env"] = env
    content["identity"] = RunSettings.read(content["algorithm"], content["config"]).identity
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_a_folder_cannot_make_us_import_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = foreign_run(tmp_path / "runs", "evilmod:Foo-v0")
    (tmp_path / "evilmod.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        main(["play", str(folder)])
    assert "imports code" in capsys.readouterr().err
    with pytest.raises(BadInput, match="imports code"):
        DQN.load(folder)
    main(["runs", str(folder)])
    assert "evilmod" not in sys.modules
    with pytest.raises(SystemExit):  # it has no such env after all
        main(["play", str(folder), "--trust"])
    assert "evilmod" in sys.modules


def test_an_env_of_ones_own_is_read_but_not_made(tmp_path: Path) -> None:
    folder = foreign_run(tmp_path, "mine:Foo-v0")
    assert read_run(folder).config.env == "mine:Foo-v0"
    with pytest.raises(BadInput, match="say --trust"):
        read_model(folder)


def test_text_of_a_folder_does_not_act_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0], "failed", "\x1b]0;owned\x07\x1b[2J\u202egood")
    run.rename(tmp_path / "a\x1b[31m\nb\udcff")
    main(["runs", str(tmp_path)])
    out = capsys.readouterr().out
    assert printable(out, keep="\n") == out
    assert r"\x1b[2J" in out
    assert [status.state for status in list_runs(tmp_path)] == ["failed"]


def test_names_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a\udcff", config("CartPole-v1", 0.0, 0), [1.0])
    main(["report", str(tmp_path / "a\udcff"), "-o", str(tmp_path / "b\udcff")])
    assert (tmp_path / "b\udcff").stat().st_size > 1_000_000
    main(["runs", str(tmp_path)])
    assert "1 finished" in capsys.readouterr().out


def test_a_map_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "map").write_bytes(b"SF\xc5G")
    with pytest.raises(BadInput, match="unknown letter"):
        GridMap.named(str(tmp_path / "map"))


def test_a_checkpoint_without_an_agent(tmp_path: Path) -> None:
    folder = begin(expand(small_sweep())[0], tmp_path)
    checkpoint.save(folder / "checkpoint", State(info={"step": 1}), {})
    with pytest.raises(BadInput, match=r"checkpoint .* is damaged"):
        read_model(folder)


def test_limits_leave_every_preset_alone() -> None:
    """The largest that we know of is the paper's own."""
    from bsrs.config.algorithms import algorithms, preset

    for row in algorithms():
        for name in row.presets:
            made: TrainingConfig = preset(row.name, name, env="CartPole-v1")
            assert to_dict(made)
            assert not isinstance(made, OffPolicyConfig) or made.buffer_size <= 10**7
