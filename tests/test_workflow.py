"""What people do from day to day: train, interrupt, resume, watch, load one of many, complete a command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import bsrs
from bsrs.cli import main
from bsrs.cli.show import show_progress
from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput, by_closeness, listed, unknown
from bsrs.store.read import pick_run
from bsrs.sweep.plan import tasks_left
from bsrs.sweep.view import SweepView
from run_folders import config as small_config
from run_folders import write_run, write_sweep

SMALL = {"steps": 300, "learning_starts": 100, "eval_every": 100, "log_every": 100, "eval_episodes": 1}
WORDS = "train dqn --env CartPole-v1 --steps 300 --learning-starts 100 --eval-every 0 --eval-episodes 1".split()


def fails(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    return capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------
# Training.


def test_train_resumes_by_itself_and_says_so(tmp_path, monkeypatch, capsys):
    words = [*WORDS, "--checkpoint-every", "100", "--log-every", "50", "--no-tensorboard"]
    main([*words, "--out", str(tmp_path / "whole")])
    save = bsrs.run.Run.save

    def killed_after_saving(self, state):
        save(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bsrs.run.Run.save", killed_after_saving)
        with pytest.raises(SystemExit):
            main([*words, "--out", str(tmp_path / "killed")])
    capsys.readouterr()
    assert "unfinished; choose another folder" in fails(
        capsys, *words, "--no-resume", "--out", str(tmp_path / "killed")
    )
    assert "another run (seed 0, not 1)" in fails(capsys, *words, "--seed", "1", "--out", str(tmp_path / "killed"))
    main([*words, "--out", str(tmp_path / "killed")])
    assert "holds this run, unfinished: it resumes at step 100" in capsys.readouterr().err
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "has ended already: finished" in fails(capsys, *words, "--out", str(tmp_path / "killed"))


def test_failed_runs_keep_their_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_env.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Broken(CartPoleEnv):\n    steps = 0\n    def step(self, action):\n        self.steps += 1\n"
        "        return super().step(action) if self.steps < 40 else self.no_such_attribute\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [*WORDS, "--out", str(tmp_path / "runs" / "run")]
    words[words.index("CartPole-v1")] = "broken_env:Broken"
    with pytest.raises((AttributeError, SystemExit)):
        main(words)
    kept = (tmp_path / "runs" / "run" / "traceback.txt").read_text()
    assert re.search(r"broken_env\.py.*no_such_attribute", kept, re.DOTALL)
    capsys.readouterr()
    main(["runs", str(tmp_path / "runs")])
    assert "traceback.txt)" in capsys.readouterr().out


def test_a_callback_sees_every_record_and_ends_training():
    seen = []

    def watch(agent, record):
        seen.append((agent.step, record["kind"]))
        return record["kind"] != "eval" or record["step"] < 200

    agent = bsrs.DQN.of("CartPole-v1", **SMALL).learn(callback=watch)
    assert seen == [(100, "train"), (100, "eval"), (200, "train"), (200, "eval")]
    assert agent.step == agent.outcome.step == 200
    assert agent.outcome.reason == "the callback ended it"
    assert [line["step"] for line in agent.records] == [100, 100, 200, 200]


def test_what_an_agent_shows_of_itself():
    agent = bsrs.DQN.of("CartPole-v1", eta=0.5, seed=3, **SMALL)
    assert repr(agent) == "<DQN on CartPole-v1, eta 0.5, seed 3: not trained>"
    agent.learn()
    assert re.fullmatch(r"<DQN on CartPole-v1, eta 0.5, seed 3: trained for 300 steps, score \d+\.00>", repr(agent))


@pytest.mark.parametrize(
    ("kind", "env"), [(bsrs.DQN, "CartPole-v1"), (bsrs.TD3, "Pendulum-v1"), (bsrs.SAC, "Pendulum-v1")]
)
def test_predict_explores_where_asked(kind, env):
    explores = {"exploration_noise": 0.5} if kind is bsrs.TD3 else {}
    agent = kind.of(env, hidden=(8, 8), **explores, n_envs=2)
    obs = np.full(4 if kind is bsrs.DQN else 3, 0.1, np.float32)
    assert agent.predict(obs, deterministic=True) == agent.predict(obs)
    drawn = [agent.predict(obs, deterministic=False) for _ in range(20)]
    assert len({float(np.ravel(action)[0]) for action in drawn}) > 1
    assert agent.predict(np.stack([obs] * 3), deterministic=False).shape[0] == 3


def test_training_on_says_when_there_will_be_no_update(tmp_path, capsys):
    bsrs.DQN.of("CartPole-v1", **SMALL).learn().save(tmp_path / "run")
    bsrs.load(tmp_path / "run").learn(50)
    assert "no update will happen in these 50 steps" in capsys.readouterr().err
    bsrs.load(tmp_path / "run").learn(150)
    assert "no update" not in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------
# Many runs.


def test_one_run_of_a_sweep_is_picked_by_eta_and_seed(tmp_path):
    write_sweep(tmp_path, ["CartPole-v1"], [0.0, 2.0, "auto"], seeds=2)
    assert "eta2-seed1" in pick_run(tmp_path, 2.0, 1).name
    assert "etaauto-seed0" in pick_run(tmp_path, "auto", 0).name
    with pytest.raises(BadInput, match=r"holds 6 runs: .*by eta \(0\.0, 2\.0, auto\) and seed \(0, 1\)"):
        bsrs.load(tmp_path)
    with pytest.raises(BadInput, match=r"no run with that eta and seed; it has eta 0\.0, 2\.0, auto, seed 0, 1"):
        bsrs.load(tmp_path, eta=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no run"):
        bsrs.load(tmp_path / "empty")


def test_a_sweeps_folder_can_be_loaded_played_and_exported(tmp_path, capsys):
    for seed in (0, 1):
        bsrs.DQN.of("CartPole-v1", eta=0.5, seed=seed, **SMALL).learn().save(tmp_path / "sweep" / f"run{seed}")
    assert bsrs.load(tmp_path / "sweep", eta=0.5, seed=1).config.seed == 1
    main(["play", str(tmp_path / "sweep"), "--run-seed", "1", "--most-steps", "5", "--out", str(tmp_path / "play.gif")])
    main(["export", str(tmp_path / "sweep"), "--eta", "0.5", "--seed", "0", "--format", "torchscript"])
    assert (tmp_path / "sweep" / "run0" / "policy.pt").exists()
    assert "choose one by its folder, or by eta" in fails(capsys, "play", str(tmp_path / "sweep"))


def test_the_view_of_a_sweep_says_how_many_runs_it_does_not_list(tmp_path, monkeypatch, capsys):
    configs = [small_config("CartPole-v1", 0.0, seed) for seed in range(24)]
    monkeypatch.setattr("bsrs.sweep.view.is_held", lambda path: True)
    monkeypatch.setattr("bsrs.sweep.view.SECONDS_BETWEEN_LINES", 0.0)
    SweepView(tmp_path, configs, 24).tick()
    said = capsys.readouterr().err.splitlines()
    assert "24 running" in said[0]
    assert len(said) == 1 + 16 + 1
    assert said[-1].strip() == "and 8 more"


def planned(settings):
    return [each.as_config() for each in settings]


def test_an_extended_sweep_uses_all_workers(tmp_path):
    options = SweepOptions(workers=2)
    first = [small_config("CartPole-v1", 0.5, seed) for seed in range(30)]
    more = [small_config("CartPole-v1", 0.5, seed) for seed in range(30, 36)]
    assert [len(task.configs) for task in tasks_left(planned(first), tmp_path, options)] == [15, 15]
    for each in first:
        write_run(tmp_path, each, [1.0] * 10)
    assert [len(task.configs) for task in tasks_left(planned([*first, *more]), tmp_path, options)] == [3, 3]


def test_time_left_counts_from_the_start_of_learning(capsys):
    with show_progress(1000, "t") as progress:
        progress(100, 1e6, None, {"return": 1.0})
    assert "left" not in capsys.readouterr().err
    with show_progress(1000, "t") as progress:
        progress(100, 10.0, None, {"return": 1.0, "loss": 0.1})
    assert "90 s left" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------
# Messages.


def test_lists_are_cut_with_dots_and_sorted_by_closeness():
    names = [f"{letter}{letter}{letter}" for letter in "abcdefghijklmnop"]
    assert listed(names).endswith(", ...")
    assert listed(names[:3]) == "aaa, bbb, ccc"
    assert by_closeness("ccp", names)[:2] == ["ccc", "ppp"]
    assert str(unknown("thing", "pxx", names)).startswith("unknown thing 'pxx': expected one of ppp, ")
    assert str(unknown("thing", "AAA", names)) == "unknown thing 'AAA': did you mean aaa?"


@pytest.mark.parametrize(
    ("typed", "field"),
    [("lr", "learning_rate"), ("net_arch", "hidden"), ("buffer", "buffer_size"), ("total_timesteps", "steps"),
     ("eps", "exploration_final_eps")],
)  # fmt: skip
def test_what_people_type_for_a_setting(typed, field):
    from bsrs.cli.flags import flags_of
    from bsrs.cli.training import train_command

    with pytest.raises(BadInput, match=f"unknown field '{typed}': it is called {field} here"):
        bsrs.DQN.of("CartPole-v1", **{typed: 1})
    assert f"--{typed.replace('_', '-')}" in flags_of(train_command("dqn")[0])


def test_an_alias_sets_the_field(tmp_path):
    main([*WORDS, "--lr", "0.002", "--net-arch", "8", "8", "--out", str(tmp_path / "run")])
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert settings["learning_rate"] == 0.002
    assert settings["hidden"] == [8, 8]


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_a_bad_eta_is_refused_before_anything_heavy_is_imported(command):
    code = (
        "import sys\nfrom bsrs.cli import main\n"
        f"try: main('{command} dqn --env CartPole-v1 --eta high'.split())\n"
        "except SystemExit as stop: print(stop.code, [m for m in ('torch', 'numba', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"
    assert "eta 'high' cannot be read" in done.stderr


def test_presets_as_json(capsys):
    main(["presets", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["presets"]["dqn"]["classic"]["gamma"] == 0.99
    assert "paper-pendulum" in found["sweeps"]
    main(["presets", "td3", "--json"])
    assert json.loads(capsys.readouterr().out)["presets"]["td3"]["small"]["steps"] == 100_000
    main(["presets", "paper-pendulum", "--json"])
    assert json.loads(capsys.readouterr().out)["sweep"] == "paper-pendulum"
    main(["presets", "td3", "small", "--json"])
    assert json.loads(capsys.readouterr().out)["presets"]["td3"].keys() == {"small"}
    assert "unknown preset 'dqnn': did you mean dqn" in fails(capsys, "presets", "dqnn", "--json")


def test_presets_are_printed_uncut_however_narrow_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    main(["presets", "td3"])
    listed = capsys.readouterr().out
    assert "pendulum, for gym:Pendulum-*\n  --steps 20_000" in listed
    assert "--exploration-noise 0.1" in listed
    main(["presets", "td3", "pendulum"])
    one = capsys.readouterr().out
    assert "exploration_noise" in one
    assert "400 300" in one
    assert "unknown td3 preset 'pendulm': did you mean pendulum" in fails(capsys, "presets", "td3", "pendulm")
    assert "expected no second name" in fails(capsys, "presets", "paper-pendulum", "smoke")


def test_an_unknown_choice_lists_all_of_them_or_the_closest(capsys):
    flags = ["train", "dqn", "--env", "CartPole-v1", "--activation"]
    assert "unknown --activation 'foo': expected one of elu, gelu, relu, silu, tanh (see" in fails(
        capsys, *flags, "foo"
    )
    assert "unknown --activation 'rel': did you mean relu" in fails(capsys, *flags, "rel")


def test_a_table_of_ones_own_has_no_board_to_plot(capsys):
    said = fails(capsys, "tabular", "solve", "--mdp", "my_tables:maze", "--plot", "board.png")
    assert "--plot draws maps, FrozenLake, CliffWalking and Taxi; my_tables:maze has no board" in said


def test_completion_for_fish(capsys):
    main(["completion", "fish"])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("complete -c bsrs ") for line in lines)
    assert "complete -c bsrs -n __fish_use_subcommand -a train" in lines
    assert any(
        "__fish_seen_subcommand_from train; and __fish_seen_subcommand_from dqn' -l eta" in line for line in lines
    )
    assert any("-l potential-network -x -a 'online target split'" in line for line in lines)


# --------------------------------------------------------------------------------------------------------------
# What a run leaves for others.


def test_records_as_csv_are_resumed_with_the_run(tmp_path, monkeypatch):
    words = [*WORDS, "--checkpoint-every", "150", "--log-every", "50", "--no-tensorboard", "--track", "csv"]
    main([*words, "--out", str(tmp_path / "whole")])
    recorded = bsrs.train.Loop._record

    def killed_later(self, *arguments):
        recorded(self, *arguments)
        if self.step == 200:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bsrs.train.Loop._record", killed_later)
        with pytest.raises(SystemExit):
            main([*words, "--out", str(tmp_path / "killed")])
    main([*words, "--out", str(tmp_path / "killed")])
    rows = [
        [line for line in (tmp_path / name / "metrics.csv").read_text().splitlines() if "timing/" not in line]
        for name in ("whole", "killed")
    ]
    assert rows[0] == rows[1]
    assert rows[0][0] == "step,name,value"
    assert any(re.fullmatch(r"300,eval/score,\d+\.\d+", row) for row in rows[0])
    assert not (tmp_path / "whole" / "tensorboard").exists()


def test_every_tracker_has_the_same_flag(tmp_path):
    main([*WORDS, "--no-tensorboard", "--track", "tensorboard", "csv", "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "tensorboard").is_dir()
    assert (tmp_path / "run" / "metrics.csv").exists()


def test_the_card_of_a_run_says_what_it_is_and_how_to_repeat_it(tmp_path):
    folder = tmp_path / "shared"
    main([*WORDS, "--eta", "0.5", "--eval-episodes", "5", "--hidden", "8", "8", "--out", str(folder)])
    card = (folder / "README.md").read_text()
    assert "# DQN on CartPole-v1, eta 0.5" in card
    assert re.search(r"95% interval \d+\.\d\d to \d+\.\d\d over 5 greedy episodes", card)
    assert re.search(r"torch \d+\.", card)
    words = shlex.split(re.search(r"```sh\n(.*)\n```", card).group(1))
    main([*words[1:], "--out", str(tmp_path / "again")])  # the command of the card repeats the run
    for name in ("metrics.jsonl", "model.safetensors", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_the_card_says_what_has_to_be_passed(tmp_path):
    bsrs.DQN.of("CartPole-v1", eta=lambda step: 0.5, **SMALL).learn().save(tmp_path / "run")
    assert "agent = bsrs.load('run', eta=...)" in (tmp_path / "run" / "README.md").read_text()
