"""The training loop: records, evaluation, seeds, stopping and going on, divergence."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bsrs.agents.metrics import Metrics
from bsrs.config.algorithms import preset
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.envs import Envs, make
from bsrs.errors import BadInput
from bsrs.learners import DQN
from bsrs.rng import stream_seed
from bsrs.run import Records, make_agent, run
from bsrs.store import read_metrics, read_result
from bsrs.store.read import read_run
from bsrs.train import Loop, evaluate
from dying import train_and_die

QUIET = RunOptions(tensorboard=False, threads=1)


def small(env: str = "CartPole-v1", **fields: Any) -> TrainingConfig:
    """A few hundred steps that learn from early on."""
    kind = {"CartPole-v1": "classic", "MinAtar/Breakout-v0": "minatar", "PongNoFrameskip-v4": "atari"}[env]
    defaults: dict[str, Any] = {
        "steps": 400,
        "learning_starts": 50,
        "buffer_size": 200,
        "target_update_interval": 60,
        "train_freq": 4,
        "gradient_steps": 1,
        "log_every": 100,
        "eval_every": 200,
        "eval_episodes": 2,
        "eta": 1.0,
    }
    return preset("dqn", kind, env=env, **{**defaults, **fields})


def records_of(configs: list[TrainingConfig]) -> list[list[dict[str, Any]]]:
    recorders = [Records() for _ in configs]
    Loop(make_agent(configs), configs[0], [config.seed for config in configs], recorders).run()
    return [recorder.lines for recorder in recorders]


def test_what_is_recorded() -> None:
    (lines,) = records_of([small()])
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 100),
        ("train", 200),
        ("eval", 200),
        ("train", 300),
        ("train", 400),
        ("eval", 400),
    ]
    train = lines[-2]
    assert {"return", "length", "episodes", "loss", "value", "advantage", "shaping"} <= set(train)
    assert train["advantage"] >= 0
    assert lines[-1]["score"] == np.mean(lines[-1]["scores"])


def test_one_seed_repeats_and_two_differ() -> None:
    first, again, other = (records_of([small(seed=seed)])[0] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_evaluation_depends_on_weights_and_seed_only() -> None:
    config = small()
    agent = make_agent([config])
    scores = evaluate(agent, config, [0])
    assert evaluate(agent, config, [0]) == scores
    assert evaluate(agent, dataclasses.replace(config, eval_episodes=8), [1]) != evaluate(
        agent, dataclasses.replace(config, eval_episodes=8), [2]
    )


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout-v0"])
def test_evaluation_steps_what_runs_and_scores_as_if_it_stepped_all(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain loop over each member's envs, which goes on stepping those whose first episode has ended."""
    configs = [small(env, seed=seed, eval_episodes=6) for seed in (0, 3)]
    agent = make_agent(configs)
    expected, lengths = [], 0
    for p in range(2):
        envs = make(env, 6, stream_seed(configs[p].seed, "eval"), training=False)
        scores, running = np.zeros(6), np.ones(6, bool)
        envs.reset()
        while running.any():
            envs.step(agent.greedy(np.stack([envs.buffers.obs] * 2))[p])
            scores += envs.buffers.reward * running
            lengths += int(running.sum())
            running &= ~(envs.buffers.terminated | envs.buffers.truncated)
        expected.append(scores.tolist())
    steps = []
    step_some = Envs.step_some
    monkeypatch.setattr(Envs, "step_some", lambda *args: steps.append(len(args[1])) or step_some(*args))
    assert evaluate(agent, configs[0], [0, 3]) == expected
    assert sum(steps) == lengths


def test_evaluation_ends_where_the_policy_plays_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seaquest at the surface: the greedy action is always to do nothing."""
    monkeypatch.setattr("bsrs.train.LONGEST_EPISODE", 300)
    config = dataclasses.replace(small("MinAtar/Breakout-v0"), env="MinAtar/Seaquest-v0")
    agent = make_agent([config])
    monkeypatch.setattr(agent, "greedy", lambda obs: np.zeros(obs.shape[:2], int))
    assert np.isfinite(evaluate(agent, config, [0])).all()


def test_more_envs_take_as_many_steps_and_updates() -> None:
    one, four = (DQN(small(n_envs=n, eval_every=0)).learn() for n in (1, 4))
    assert [learner.agent.updates for learner in (one, four)] == [88, 88]  # every 4th of 400 steps, after the first 50
    steps = [next(iter(learner.agent.optimizer.state.values()))["step"].item() for learner in (one, four)]
    assert steps == [88, 88]
    assert len(four.agent.replay) == 200


def test_a_member_learns_in_company_as_it_does_alone() -> None:
    """Four members for 200 updates, one of them alone: the same to rounding."""
    etas_and_seeds = [(0.0, 0), (0.5, 1), (2.0, 0), (1.0, 3)]
    configs = [small(eta=eta, seed=seed, steps=200, train_freq=1, learning_starts=0) for eta, seed in etas_and_seeds]
    together = make_agent(configs)
    Loop(together, configs[0], [c.seed for c in configs], [Records() for _ in configs]).run()
    for member in (1, 2):
        alone = make_agent([configs[member]])
        Loop(alone, configs[member], [configs[member].seed], [Records()]).run()
        expected = alone.policy(0).tensors
        for name, tensor in together.policy(member).tensors.items():
            torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=0)


def test_a_member_of_a_convolutional_population() -> None:
    configs = [small("MinAtar/Breakout-v0", eta=eta, seed=seed, steps=120) for eta, seed in ((0.0, 0), (1.0, 5))]
    together, (alone,) = records_of(configs), records_of(configs[1:])
    for ours, expected in zip(together[1], alone, strict=True):
        assert numbers(ours) == pytest.approx(numbers(expected), rel=1e-4, abs=1e-5)


def numbers(line: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in line.items() if isinstance(value, (int, float))}


@pytest.mark.parametrize("env", ["CartPole-v1", "MinAtar/Breakout-v0", "PongNoFrameskip-v4"])
def test_stopped_and_resumed_is_bit_identical(env: str, tmp_path: Path) -> None:
    """The loop breaks down between two checkpoints; the run that goes on ends with the same bytes."""
    atari = {"steps": 250, "eval_every": 0, "eval_episodes": 1, "network": "small"}
    config = small(env, **(atari if env.startswith("Pong") else {}))
    options = dataclasses.replace(QUIET, checkpoint_every=90)
    run([config], [tmp_path / "whole"], options)

    def stop(step: int, *_: object) -> None:
        if step >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([config], [tmp_path / "stopped"], options, stop)
    assert read_result(tmp_path / "stopped") is None
    run([config], [tmp_path / "stopped"], dataclasses.replace(options, resume=True))
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


def test_the_members_of_a_population_share_its_time(tmp_path: Path) -> None:
    configs = [small(seed=seed) for seed in range(8)]
    make_agent(configs)  # compiles its passes
    began = time.monotonic()
    run(configs, [tmp_path / str(config.seed) for config in configs], QUIET)
    elapsed = time.monotonic() - began
    seconds = [read_run(tmp_path / str(config.seed)).seconds or 0.0 for config in configs]
    assert 0 < sum(seconds) <= elapsed


def test_a_population_resumes_too(tmp_path: Path) -> None:
    configs = [small(eta=eta, seed=seed) for eta, seed in ((0.0, 0), (1.0, 1))]
    options = dataclasses.replace(QUIET, checkpoint_every=90)
    whole, stopped = ([tmp_path / name / str(i) for i in range(2)] for name in ("whole", "stopped"))
    run(configs, whole, options)

    def stop(step: int, *_: object) -> None:
        if step >= 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(configs, stopped, options, stop)
    run(configs, stopped, dataclasses.replace(options, resume=True))
    for one, other in zip(stopped, whole, strict=True):
        assert_same_run(one, other)


def assert_same_run(one: Path, other: Path) -> None:
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_killed_process_resumes_bit_identical(tmp_path: Path) -> None:
    """A real process, killed by SIGKILL twice in mid-run, against one that was left alone."""
    words = "train dqn --env CartPole-v1 --eta 0.5 --steps 3000 --learning-starts 100 --buffer-size 500 --batch-size 16"
    words += " --gradient-steps 1 --log-every 100 --eval-every 1000 --eval-episodes 1 --checkpoint-every 250"
    words += " --threads 1 --no-tensorboard"
    folder = tmp_path / "killed"
    for lines in (16, 18):
        train_and_die([*words.split(), "--out", str(folder), *(["--resume"] if folder.exists() else [])], lines)
        assert read_result(folder) is None
    assert start(words, folder, resume=True).wait() == 0
    assert start(words, tmp_path / "whole", resume=False).wait() == 0
    assert_same_run(folder, tmp_path / "whole")
    assert read_metrics(folder)[-1]["step"] == 3000


def start(words: str, folder: Path, resume: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from bsrs.cli import main; main()", *words.split(), "--out", str(folder)]
    return subprocess.Popen([*command, *(["--resume"] if resume else [])], stderr=subprocess.DEVNULL)


def test_exploding_values_end_the_run_and_keep_its_records(tmp_path: Path) -> None:
    config = small(eta=1e6, learning_rate=0.1, steps=2000)
    (outcome,) = run([config], [tmp_path / "run"], QUIET)
    assert outcome.outcome == "diverged"
    assert outcome.step < 2000
    result = read_result(tmp_path / "run")
    assert result is not None
    assert result["outcome"] == "diverged"
    assert "mean" in result["reason"]
    assert read_metrics(tmp_path / "run")[-1]["step"] == outcome.step


def test_one_member_diverges_and_the_other_goes_on() -> None:
    configs = [small(eta=eta, learning_rate=0.02, steps=1200, eval_every=0) for eta in (1e8, 0.0)]
    recorders = [Records(), Records()]
    outcomes = Loop(make_agent(configs), configs[0], [0, 0], recorders).run()
    assert [outcome.outcome for outcome in outcomes] == ["diverged", "finished"]
    assert recorders[0].lines[-1]["step"] < 1200
    assert recorders[1].lines[-1]["kind"] == "eval"


def test_a_dead_network_is_told_of() -> None:
    """Of two members, the one whose first layer is off for every state."""
    configs = [small(seed=0), small(seed=1)]
    agent = make_agent(configs)
    with torch.no_grad():
        agent.online.each[1][0].bias.fill_(-1e6)
    recorders = [Records(), Records()]
    with pytest.warns(
        UserWarning, match="CartPole-v1, seed 1, step 100: its network gives every state the same"
    ) as told:
        alive, dead = Loop(agent, configs[0], [0, 1], recorders).run()
    assert len(told) == 1
    assert (alive.outcome, alive.reason, dead.outcome) == ("finished", "", "finished")
    assert "same value" in dead.reason
    spreads = [[line["spread"] for line in r.lines if line["kind"] == "train"] for r in recorders]
    assert min(spreads[0]) > 1e-3
    assert max(spreads[1]) < 1e-6


def test_configs_of_different_runs_are_no_population() -> None:
    with pytest.raises(BadInput, match=r"differ in gamma; expected .*eta.*seed.* only"):
        make_agent([small(), small(gamma=0.9)])


def test_learn_in_python() -> None:
    learner = DQN.of("CartPole-v1", eta=0.5, steps=300, learning_starts=50, eval_every=0, eval_episodes=1).learn()
    assert learner.outcome.outcome == "finished"
    assert learner.records[-1]["kind"] == "eval"
    assert learner.predict(np.zeros((3, 4), np.float32)).shape == (3,)
    assert len(learner.evaluate(episodes=3)) == 3


def test_json_of_metrics_has_no_nan(tmp_path: Path) -> None:
    run([small(eta=1e30, learning_rate=0.1, steps=600)], [tmp_path / "run"], QUIET)
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_what_updates_saw_is_the_same_after_a_checkpoint_at_any_of_them() -> None:
    """Means of 40 updates, against NumPy's, and to the last bit against those of members put back after 1, 32 or 35."""

    def fresh() -> Metrics:
        return Metrics(["square", "value"], 2, 0.9, torch.device("cpu"))

    def add(metrics: Metrics, value: torch.Tensor, other: torch.Tensor) -> None:
        metrics.add(value, other.square().mean(dim=-1))

    seen = torch.randn(40, 2, 2, 7, generator=torch.Generator().manual_seed(0))  # updates, tensors, members, rows
    whole = fresh()
    for update in seen:
        add(whole, *update)
    expected = whole.read()
    means = np.stack([seen[:, 1].square().mean(dim=(0, 2)), seen[:, 0].mean(dim=(0, 2))], axis=1)
    np.testing.assert_allclose([[each["square"], each["value"]] for each in expected], means, rtol=1e-5)
    for stop in (1, 32, 35):
        first, second = fresh(), fresh()
        for update in seen[:stop]:
            add(first, *update)
        for member in range(2):
            second.load_state(member, first.state(member))
        for update in seen[stop:]:
            add(second, *update)
        assert second.read() == expected
