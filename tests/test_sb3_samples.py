"""What `shape` does to sampled batches: ends of episodes, n-step returns, every kind of buffer, potential and eta."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv, SimpleMultiObsEnv
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from bsrs import Cosine, Linear, PerState, Piecewise, RandomDynamic, Static, shaped_reward
from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.sb3 import shape
from sb3_twins import SMALL, filled, max_q, sampled


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Position x goes up by one; the reward is 1; V(s) = x is easy to see through."""

    observation_space = spaces.Box(0.0, 100.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.x = 0.0
        return np.array([self.x], dtype=np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x += 1
        return np.array([self.x], dtype=np.float32), 1.0, False, False, {}


def position(model: Any, obs: torch.Tensor) -> torch.Tensor:
    """The value function of these tests: V(s) = x."""
    return obs[:, 0]


def corridor_model(**changes: Any) -> DQN:
    return DQN("MlpPolicy", Corridor(), gamma=0.9, **{**SMALL, **changes})


def add(model: DQN, x: float, next_x: float, *, done: bool = False, time_limit: bool = False) -> None:
    obs, next_obs = np.array([[x]], dtype=np.float32), np.array([[next_x]], dtype=np.float32)
    info = {"TimeLimit.truncated": time_limit}
    model.replay_buffer.add(obs, next_obs, np.array([0]), np.array([1.0]), np.array([done]), [info])


# --------------------------------------------------------------------------------------------------------------
# Ends of episodes, with numbers.


@pytest.mark.parametrize(
    ("done", "time_limit", "terminal", "expected"),
    [
        (False, False, "zero", 1 + 2 * (0.9 * 7 - 5)),
        (True, False, "zero", 1 + 2 * (0 - 5)),
        (True, True, "zero", 1 + 2 * (0.9 * 7 - 5)),  # a time limit is not the end
        (True, False, "keep", 1 + 2 * (0.9 * 7 - 5)),  # what the authors' code did
    ],
)
def test_the_next_potential_is_zero_at_true_ends_only(
    done: bool, time_limit: bool, terminal: str, expected: float
) -> None:
    model = corridor_model()
    add(model, 5.0, 7.0, done=done, time_limit=time_limit)
    shape(model, eta=2.0, terminal=terminal, value_fn=position)
    np.testing.assert_allclose(sampled(model).rewards, expected, rtol=1e-6)
    assert model.replay_buffer.rewards[0, 0] == 1.0  # what is stored stays as it was


@pytest.mark.parametrize("end", ["none", "termination", "time limit"])
def test_n_step_returns_are_those_of_one_step_shaping(end: str) -> None:
    """The discounted sum of shaped rewards telescopes: `R_n + eta * (gamma^n V(s_n) - V(s_0))`, shorter at an end."""
    model = corridor_model(n_steps=3)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    for x in range(5):
        last = x == 1 and end != "none"
        add(model, float(x), x + 1.0, done=last, time_limit=last and end == "time limit")
    shape(model, eta=0.5, value_fn=position)
    samples = sampled(model)
    for x, reward in zip(samples.observations[:, 0].tolist(), samples.rewards[:, 0].tolist(), strict=True):
        steps = list(range(int(x), min(int(x) + 3, 2 if end != "none" and x < 2 else 5)))
        ended = end == "termination" and steps[-1] == 1
        one_step = [1 + 0.5 * (0.9 * (t + 1) * (not (ended and t == 1)) - t) for t in steps]
        assert reward == pytest.approx(sum(0.9**k * r for k, r in enumerate(one_step)), rel=1e-5)


# --------------------------------------------------------------------------------------------------------------
# Every kind of buffer: the same batch, plain and shaped.


def assert_shaped_by_its_network(model: Any, env: Any = None, eta: float = 1.5) -> None:
    plain = sampled(model, env=env)
    shape(model, eta=eta)
    shaped = sampled(model, env=env)
    with torch.no_grad():
        value, next_value = (max_q(model, obs)[:, None] for obs in (plain.observations, plain.next_observations))
    discount = (model.gamma if plain.discounts is None else plain.discounts) * (1 - plain.dones)
    torch.testing.assert_close(shaped.rewards, plain.rewards + eta * (discount * next_value - value))
    model.learn(40, reset_num_timesteps=False)  # and training goes on


def test_hindsight_goals_are_shaped_at_the_relabelled_observations() -> None:
    env = BitFlippingEnv(n_bits=4, continuous=False)
    model = DQN("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, **SMALL).learn(60)
    assert_shaped_by_its_network(model)


def test_dict_observations() -> None:
    env = SimpleMultiObsEnv(random_start=False, discrete_actions=True)
    assert_shaped_by_its_network(DQN("MultiInputPolicy", env, **{**SMALL, "buffer_size": 100}).learn(60))


def test_n_step_buffer_by_its_discounts() -> None:
    assert_shaped_by_its_network(filled("sb3 DQN", n_steps=3))


def test_optimize_memory_usage() -> None:
    kwargs = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    assert_shaped_by_its_network(filled("sb3 DQN", **kwargs))


def test_several_envs() -> None:
    envs = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 3)
    assert_shaped_by_its_network(DQN("MlpPolicy", envs, **SMALL).learn(60))


def test_vec_normalize_shapes_what_the_networks_see() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    model = DQN("MlpPolicy", env, **SMALL).learn(60)
    plain, normalised = sampled(model), sampled(model, env=env)
    assert not torch.equal(plain.observations, normalised.observations)
    assert_shaped_by_its_network(model, env=env)


def test_images() -> None:
    from stable_baselines3.common.envs import FakeImageEnv

    env = FakeImageEnv(action_dim=3, screen_height=40, screen_width=40, discrete=True)
    assert_shaped_by_its_network(DQN("CnnPolicy", env, **{**SMALL, "buffer_size": 100}).learn(60))


# --------------------------------------------------------------------------------------------------------------
# Potentials and shape-scales.


@pytest.mark.parametrize(
    ("eta", "at_500"),
    [
        ("linear:0:2:1000", 1.0),
        (Linear(0.0, 2.0, 1000), 1.0),
        (Cosine(2.0, 0.0, 1000), 1.0),
        (Piecewise(((0, 5.0), (500, 3.0))), 3.0),
        (lambda step, state=None: step / 1000, 0.5),
    ],
)
def test_eta_may_be_scheduled_over_num_timesteps(eta: Any, at_500: float) -> None:
    model = corridor_model()
    add(model, 5.0, 7.0)
    shape(model, eta, value_fn=position)
    model.num_timesteps = 500
    np.testing.assert_allclose(sampled(model).rewards, 1 + at_500 * (0.9 * 7 - 5), rtol=1e-5)


def test_eta_may_depend_on_the_state_at_both_ends() -> None:
    model = corridor_model()
    add(model, 5.0, 7.0)
    shape(model, PerState(lambda obs: 0.1 * obs[:, 0]), value_fn=position)
    np.testing.assert_allclose(sampled(model).rewards, 1 + (0.7 * 0.9 * 7 - 0.5 * 5), rtol=1e-5)


def test_a_static_potential_does_not_ask_the_networks() -> None:
    model = corridor_model()
    add(model, 5.0, 7.0)
    model.policy.q_net = None
    shape(model, 2.0, potential=Static(lambda obs: obs[:, 0] ** 2))
    np.testing.assert_allclose(sampled(model).rewards, 1 + 2 * (0.9 * 49 - 25), rtol=1e-5)


def test_discrete_states_look_up_tables_of_potentials_and_etas() -> None:
    model = DQN("MlpPolicy", "FrozenLake-v1", **SMALL).learn(60)
    potential, eta = np.arange(16.0), np.linspace(0.0, 1.0, 16)
    plain = sampled(model)
    shape(model, PerState(eta), potential=Static(potential))
    state, next_state = plain.observations[:, 0].numpy(), plain.next_observations[:, 0].numpy()
    phi, next_phi = (eta * potential)[state], (eta * potential)[next_state] * (1 - plain.dones[:, 0].numpy())
    expected = plain.rewards[:, 0].numpy() + 0.99 * next_phi - phi
    np.testing.assert_allclose(sampled(model).rewards[:, 0], expected, rtol=1e-5)


def test_random_potentials_are_redrawn_over_time_from_their_seed() -> None:
    model = DQN("MlpPolicy", "FrozenLake-v1", **SMALL).learn(60)
    plain = sampled(model)
    shape(model, 1.0, potential=RandomDynamic(seed=4, period=10, n_states=16))
    model.num_timesteps = 30
    table = stream(4, "random potential", 3).uniform(-1.0, 1.0, 16)
    phi, next_phi = (table[obs[:, 0].numpy()] for obs in (plain.observations, plain.next_observations))
    expected = plain.rewards[:, 0].numpy() + 0.99 * next_phi * (1 - plain.dones[:, 0].numpy()) - phi
    shaped = sampled(model).rewards[:, 0]
    np.testing.assert_allclose(shaped, expected, rtol=1e-4, atol=1e-6)
    model.num_timesteps = 40
    assert not torch.equal(sampled(model).rewards[:, 0], shaped)


@pytest.mark.parametrize("eta", [2.0, 0.0])
def test_the_models_own_logger_shows_eta_value_and_returns_with_and_without_shaping(eta: float, tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), eta=eta)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(200, log_interval=1, reset_num_timesteps=False)
    model.logger.close()
    with open(tmp_path / "progress.csv") as file:
        last = {name: float(text) for name, text in list(csv.DictReader(file))[-1].items() if text}
    assert last["shaping/eta"] == eta
    total, raw = last["shaping/ep_sum"], last["rollout/ep_rew_mean"]
    assert last["shaping/ep_shaped_rew_mean"] == pytest.approx(raw + total)
    assert total == pytest.approx(last["shaping/mean"] * last["rollout/ep_len_mean"], rel=1e-4)
    assert (total == 0) == (eta == 0)
    assert ("shaping/value" in last) == (eta != 0)


def test_logged_returns_have_the_envs_own_units(tmp_path: Path) -> None:
    """Normalised rewards are divided by the same number at every step, and so is what shaping adds to them."""
    env = VecNormalize(make_vec_env("CartPole-v1", 1, seed=0))
    model = shape(DQN("MlpPolicy", env, **SMALL), eta=2.0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(200)
    model.bsrs_shaper._sum, model.bsrs_shaper._count = 3.0, 2
    model.bsrs_shaper.log(model)
    logged, length = model.logger.name_to_value, np.mean([info["l"] for info in model.ep_info_buffer])
    expected = 1.5 * length * np.sqrt(env.ret_rms.var + env.epsilon)
    assert logged["shaping/ep_sum"] == pytest.approx(expected)


# --------------------------------------------------------------------------------------------------------------
# Bad input.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"network": "targt"}, "unknown network 'targt': did you mean target?"),
        ({"terminal": "none"}, "unknown terminal 'none'"),
        ({"eta": float("nan")}, "expected a finite number"),
        ({"eta": "liner:0:1:10"}, "unknown shape-scale 'liner': did you mean linear"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    model = corridor_model()
    with pytest.raises(BadInput, match=message.replace("?", r"\?")):
        shape(model, **arguments)
    assert type(model) is DQN  # and nothing has been changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eta": 2.0, "value_fn": lambda model, obs: obs.sum()}, r"value_fn returned a Tensor of shape \(\)"),
        ({"eta": 2.0, "value_fn": lambda model, obs: 1.0}, "value_fn returned a float"),
        ({"eta": 2.0, "potential": Static(lambda obs: obs)}, r"potential\(s\) came out with shape \(64, 1\)"),
        (
            {"eta": PerState(lambda obs: obs), "value_fn": position},
            r"\(64, 1\); expected one number per state, shape \(64,\)",
        ),
    ],
)
def test_functions_that_return_the_wrong_shape_are_named(arguments: dict[str, Any], message: str) -> None:
    model = shape(corridor_model(), **arguments)
    add(model, 5.0, 7.0)
    with pytest.raises(BadInput, match=message):
        sampled(model)


def test_random_potentials_refuse_dict_observations() -> None:
    env = SimpleMultiObsEnv(random_start=False, discrete_actions=True)
    model = DQN("MultiInputPolicy", env, **{**SMALL, "buffer_size": 100})
    with pytest.raises(BadInput, match="a random potential needs observations in one array"):
        shape(model, 1.0, potential=RandomDynamic(seed=0))


@pytest.mark.parametrize("terminal", ["zero", "keep"])
@pytest.mark.parametrize("size", [64, 200])
def test_it_is_the_line_whether_both_states_go_through_the_network_together_or_apart(terminal: str, size: int) -> None:
    model = filled("sb3 DQN")
    plain = sampled(model, size=size)
    shaped = sampled(shape(model, eta=1.5, terminal=terminal), size=size)
    with torch.no_grad():
        value, next_value = (max_q(model, obs)[:, None] for obs in (plain.observations, plain.next_observations))
    ends = plain.dones if terminal == "zero" else None
    assert plain.dones.any()
    expected = shaped_reward(plain.rewards, value, next_value, eta=1.5, gamma=model.gamma, terminated=ends)
    torch.testing.assert_close(shaped.rewards, expected, rtol=1e-6, atol=1e-6)
    if terminal == "zero":
        ended = plain.dones.bool()
        torch.testing.assert_close(shaped.rewards[ended], (plain.rewards - 1.5 * value)[ended], rtol=1e-6, atol=1e-6)
