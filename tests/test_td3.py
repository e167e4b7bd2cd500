"""TD3 and SAC in their loop: members, seeds, time limits, checkpoints, learning, and what is said of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from bsrs.agents.agent import Batch
from bsrs.config.agents import TD3Config
from bsrs.config.algorithms import find_algorithm, preset
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, EnvFault
from bsrs.learners import SAC, TD3
from bsrs.run import Records, make_agent, run
from bsrs.shaping import PerState, Shaping, Static
from bsrs.train import Loop
from dying import train_and_die
from small_agents import assert_same, weights

SMALL: dict[str, Any] = {"hidden": (32, 24), "batch_size": 32, "buffer_size": 1_000, "eval_every": 0, "log_every": 50}


def config(algorithm: str = "td3", **fields: Any) -> TrainingConfig:
    return find_algorithm(algorithm).config_class(**{"env": "Pendulum-v1", "steps": 200, **SMALL, **fields})  # type: ignore[call-arg]


def started(configs: list[TrainingConfig], **options: Any) -> tuple[Loop, Any]:
    agent = make_agent(configs, **options)
    loop = Loop(agent, configs[0], [c.seed for c in configs], [Records() for _ in configs])
    loop.start()
    return loop, agent


def trained(*configs: TrainingConfig, steps: int = 200, **options: Any) -> Any:
    loop, agent = started(list(configs), **options)
    for _ in range(steps):
        loop.advance()
    return agent


def q_of(agent: Any, member: int, obs: torch.Tensor) -> torch.Tensor:
    """Q of a member's critics at its actor's actions for (B, O): (n, B)."""
    everyone = obs.expand(agent.members, *obs.shape)
    return torch.from_numpy(agent.q_values(everyone.numpy(), agent.greedy(everyone.numpy()))[member])


def shape(agent: Any, batch: Batch, step: int) -> torch.Tensor:
    """The batch's rewards, shaped."""
    shaped: torch.Tensor = agent.shaped_target(batch, 0 * batch.reward, batch.reward, batch.reward, step)
    return shaped


# ---- members and seeds


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
@pytest.mark.parametrize("potential", ["policy", "replay"])
def test_a_member_learns_as_it_does_alone(algorithm: str, potential: str) -> None:
    """After 200 updates; the transitions come from random play, so that the env does not amplify the rounding."""
    fields = {"potential": potential, "learning_starts": 1_000}
    members = [config(algorithm, eta=eta, seed=seed, **fields) for seed, eta in enumerate((2.0, 0.0, -0.5))]
    obs = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32))
    together, *each = [trained(*some, steps=100) for some in (members, *([member] for member in members))]
    for agent in (together, *each):
        for _ in range(200):
            agent.updates += 1
            agent.kernel.train(100)
    everywhere = np.stack([obs.numpy()] * 3)
    for p, alone in enumerate(each):
        torch.testing.assert_close(q_of(together, p, obs), q_of(alone, 0, obs), atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(together.greedy(everywhere)[p], alone.greedy(everywhere[:1])[0], atol=1e-4)


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_one_seed_repeats_and_two_differ(algorithm: str) -> None:
    first, again, other = (trained(config(algorithm, seed=seed), steps=20) for seed in (0, 0, 1))
    one, same, another = map(weights, (first, again, other))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.allclose(one["critics/each.0.network.0.weight"], another["critics/each.0.network.0.weight"])


def test_eta_of_zero_is_plain_whatever_the_potential() -> None:
    plain = weights(trained(config(), steps=30))
    for fields in ({"potential": "replay"}, {"potential_network": "target"}, {"eta": "linear:0:0:10"}):
        assert_same(weights(trained(config(**fields), steps=30)), plain)


def test_members_may_differ_only_in_what_is_a_number_per_member() -> None:
    with pytest.raises(BadInput, match=r"differ in gamma; expected .*eta.*seed.* only"):
        make_agent([config(), config(gamma=0.5)])


# ---- potentials and shape-scales


def test_shaping_by_a_static_potential_of_our_own() -> None:
    """A constant potential c adds eta * c * (gamma - 1) to every reward that no end follows."""
    constant = Shaping(2.0, Static(lambda obs: torch.full(obs.shape[:-1], 5.0)))
    agent = trained(config(), steps=20, shaping=constant)
    batch = agent.sample()
    shaped = shape(agent, batch, step=0)
    torch.testing.assert_close(shaped, batch.reward + 2.0 * 5.0 * (agent.config.gamma - 1))


def test_eta_may_depend_on_the_state() -> None:
    by_angle = Shaping(PerState(lambda obs: obs[..., 0]), Static(lambda obs: torch.ones(obs.shape[:-1])))
    agent = trained(config(), steps=20, shaping=by_angle)
    batch = agent.sample()
    expected = batch.reward + agent.config.gamma * batch.next_obs[..., 0] - batch.obs[..., 0]
    torch.testing.assert_close(shape(agent, batch, step=0), expected)


def test_scheduled_eta_reaches_the_update() -> None:
    late, plain = (weights(trained(of, steps=40)) for of in (config(eta="piecewise:0=0,30=2"), config()))
    assert not torch.allclose(late["critics/each.0.network.0.weight"], plain["critics/each.0.network.0.weight"])
    assert [line["shaping"] == 0 for line in _records(config(eta="piecewise:0=0,101=2"))] == [True, True, False, False]


def _records(of: TrainingConfig) -> list[dict[str, Any]]:
    return [line for line in TD3(of).learn().records if line["kind"] == "train"]


def test_ddpg_is_td3_with_one_critic_and_no_delay() -> None:
    ddpg = preset("td3", "ddpg", env="Pendulum-v1", **SMALL)
    assert isinstance(ddpg, TD3Config)
    agent = trained(ddpg, steps=10)
    assert len(agent.critics.each[0].each) == 1
    before = weights(agent)["policy/0.weight"]
    agent.update(11)
    assert not torch.equal(weights(agent)["policy/0.weight"], before)


# ---- acting


def test_actions_are_in_the_envs_units_and_bounds() -> None:
    agent = make_agent([config(exploration_noise=5.0)])
    obs = np.random.default_rng(0).normal(size=(1, 100, 3)).astype(np.float32)
    noisy = agent.act(obs, step=0)
    assert noisy.shape == (1, 100, 1)
    assert noisy.min() == -2
    assert noisy.max() == 2
    assert np.abs(agent.greedy(obs)).max() < 2


def test_random_actions_fill_the_range_until_learning_starts() -> None:
    agent = make_agent([config(learning_starts=100)])
    obs = np.zeros((1, 1_000, 3), np.float32)
    drawn = agent.act(obs, step=99)
    assert drawn.std() == pytest.approx(4 / np.sqrt(12), rel=0.1)
    assert np.ptp(agent.act(obs, step=100)) == 0


def test_gradient_steps_follow_the_env_steps() -> None:
    assert trained(config(n_envs=3, learning_starts=9), steps=5).updates == 6
    assert trained(config(train_freq=4, gradient_steps=1), steps=9).updates == 2


# ---- time limits


def test_pendulums_time_limit_bootstraps() -> None:
    agent = trained(config(learning_starts=10_000), steps=201)
    arrays, _ = agent.replay.state(0)
    assert not arrays["terminated"].any()
    # The last transition of the episode leads on, not to the start of the next one.
    assert not np.allclose(arrays["next_obs"][199], arrays["obs"][200])
    np.testing.assert_array_equal(arrays["next_obs"][198], arrays["obs"][199])


def test_a_fall_is_an_end() -> None:
    agent = trained(config(env="Hopper-v4", learning_starts=10_000), steps=201)
    arrays, _ = agent.replay.state(0)
    assert arrays["terminated"].any()
    assert arrays["action"].min() >= -1


@pytest.mark.parametrize(
    "env", ["Hopper-v5", "Humanoid-v4", "Humanoid-v5", "HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Reacher-v5"]
)
def test_mujoco_envs_train(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings where it is
    agent = trained(preset("td3", "mujoco", env=env, eta=1.0, **SMALL, learning_starts=3), steps=6)
    assert agent.updates == 3


# ---- checkpoints


@pytest.mark.parametrize(("algorithm", "env"), [("td3", "Pendulum-v1"), ("sac", "Pendulum-v1"), ("td3", "Hopper-v4")])
def test_a_restored_agent_goes_on_bit_for_bit(algorithm: str, env: str) -> None:
    noisy = {"exploration_noise": 0.1} if algorithm == "td3" else {}
    of = [config(algorithm, env=env, eta=1.0, seed=seed, **noisy) for seed in (3, 4)]
    loop, agent = started(of)
    for _ in range(61):
        loop.advance()
    states = [loop.state(p) for p in range(2)]
    other_loop, other = started(of)
    for p, state in enumerate(states):
        other_loop.load_state(p, state)
    for _ in range(61):
        loop.advance()
        other_loop.advance()
    for member in range(2):
        assert_same(weights(agent, member), weights(other, member))
    assert agent.metrics() == other.metrics()


@pytest.mark.parametrize("env", ["Pendulum-v1", "Hopper-v4"])
def test_a_killed_run_resumes_bit_for_bit(env: str, tmp_path: Path) -> None:
    words = f"train td3 --env {env} --eta 1 --seed 5 --steps 900 --hidden 32 24 --batch-size 32 --buffer-size 500"
    words += " --learning-starts 50 --log-every 50 --eval-every 300 --eval-episodes 2 --checkpoint-every 200"
    command = [sys.executable, "-m", "bsrs", *words.split(), "--threads", "1", "--no-tensorboard"]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    train_and_die([*command[3:], "--out", str(tmp_path / "broken")], lines=6)
    assert not (tmp_path / "broken" / "result.json").exists()
    subprocess.run([*command, "--out", str(tmp_path / "broken"), "--resume"], check=True, capture_output=True)
    whole, resumed = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "broken"))
    assert resumed == whole
    model, resumed_model = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "broken"))
    assert resumed_model == model


def test_a_population_from_the_command_line_and_back(tmp_path: Path) -> None:
    words = "train sac --env Pendulum-v1 --eta 0 2 --seed 0 1 --steps 100 --hidden 16 --batch-size 8 --threads 1"
    command = [sys.executable, "-m", "bsrs", *words.split(), "--no-tensorboard", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 4
    assert {json.loads((folder / "result.json").read_text())["outcome"] for folder in folders} == {"finished"}
    score = json.loads((folders[0] / "result.json").read_text())["score"]
    assert np.mean(SAC.load(folders[0]).evaluate(episodes=10)) == pytest.approx(score, rel=1e-4)


# ---- learning


@pytest.mark.parametrize(("learner", "steps"), [(TD3, 4_500), (SAC, 3_000)])
def test_pendulum_is_learnt(learner: type[TD3] | type[SAC], steps: int) -> None:
    """A small network, one seed, a few steps; the preset's own claim is an experiment: see `docs/td3.md`."""
    noisy = {"exploration_noise": 0.1} if learner is TD3 else {}
    fields: dict[str, Any] = {"hidden": (64, 64), "batch_size": 64, "buffer_size": 10_000, "log_every": 1_000, **noisy}
    outcome = learner(config(learner.algorithm, eta=1.0, steps=steps, seed=3, **fields)).learn().outcome
    assert outcome.score > -300  # random play has about -1200


# ---- bad input


class Broken(gymnasium.Env[Any, Any]):
    """Goes wrong at its fifth step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, wrong: str, unbounded: bool = False) -> None:
        self.wrong, self.t = wrong, 0
        if unbounded:
            self.action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        bad = self.t == 5
        obs = np.full(2, np.nan if bad and self.wrong == "observation" else 0.0, np.float32)
        return obs, float("inf") if bad and self.wrong == "reward" else 0.0, False, False, {}


@pytest.fixture
def broken_envs() -> Any:
    for name, kwargs in {
        "BadObs-v0": {"wrong": "observation"},
        "BadReward-v0": {"wrong": "reward"},
        "Unbounded-v0": {"wrong": "", "unbounded": True},
    }.items():
        gymnasium.register(name, Broken, kwargs=kwargs)
    yield
    for name in ("BadObs-v0", "BadReward-v0", "Unbounded-v0"):
        del gymnasium.registry[name]


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_action_spaces_that_are_not_a_box_of_finite_size(algorithm: str, broken_envs: Any) -> None:
    with pytest.raises(BadInput, match=r"'CartPole-v1' has discrete actions; expected .* such as Pendulum-v1"):
        make_agent([config(algorithm, env="CartPole-v1")])
    with pytest.raises(BadInput, match=r"'Unbounded-v0' has unbounded actions"):
        make_agent([config(algorithm, env="Unbounded-v0")])


@pytest.mark.parametrize(("env", "words"), [("BadObs-v0", "observation"), ("BadReward-v0", "reward")])
def test_numbers_that_are_not_finite_end_the_run_and_are_recorded(
    env: str, words: str, broken_envs: Any, tmp_path: Path
) -> None:
    with pytest.raises(EnvFault, match=words):
        run([config(env=env)], [tmp_path / "run"], RunOptions(tensorboard=False))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["outcome"] == "failed"
    assert words in result["reason"]
    assert env in result["reason"]


def test_values_that_explode_are_an_outcome(tmp_path: Path) -> None:
    explosive = config(eta=-20.0, potential="replay", learning_rate=0.05, tau=0.5)  # below -1 the operator expands
    (outcome,) = run([explosive], [tmp_path / "run"], RunOptions(tensorboard=False))
    assert outcome.outcome == "diverged"
    assert "value" in outcome.reason or "loss" in outcome.reason
    assert json.loads((tmp_path / "run" / "result.json").read_text())["outcome"] == "diverged"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gradient_steps": 0}, "gradient_steps is 0"),
        ({"hidden": ()}, "hidden is"),
        ({"learning_rate": 0.0}, "learning_rate is 0"),
        ({"tau": 1.5}, "tau is 1.5; expected between 0 and 1"),
        ({"policy_delay": 0}, "policy_delay is 0"),
        ({"eta": "linear:0:1"}, "cannot be read"),
    ],
)
def test_bad_settings_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        config(**fields)
