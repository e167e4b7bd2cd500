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
from stable_baselines3 import DDPG, DQN, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv, SimpleMultiObsEnv
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

from bsrs import Cosine, Linear, PerState, Piecewise, RandomDynamic, Static, shaped_reward
from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.sb3 import shape
from bsrs.sb3.values import _flat_layers, reader_for
from sb3_twins import SMALL, filled, max_q


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


def sampled(model: Any, seed: int = 0, env: Any = None, size: int = 64) -> Any:
    np.random.seed(seed)  # noqa: NPY002 (what SB3 samples with)
    return model.replay_buffer.sample(size, env=env)


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
def test_the_models_own_logger_shows_eta_mean_size_and_potential(eta: float, tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), eta=eta)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(200, log_interval=1, reset_num_timesteps=False)
    model.logger.close()
    with open(tmp_path / "progress.csv") as file:
        last = list(csv.DictReader(file))[-1]
    mean, size, potential = (float(last[f"shaping/{key}"]) for key in ("mean", "abs", "potential"))
    assert float(last["shaping/eta"]) == eta
    if eta == 0.0:
        assert (mean, size, potential) == (0.0, 0.0, 0.0)
    else:
        assert size >= abs(mean) > 0
        assert potential != 0


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
        ({"value_fn": lambda model, obs: obs.sum()}, r"value_fn returned a Tensor of shape \(\)"),
        ({"value_fn": lambda model, obs: 1.0}, "value_fn returned a float"),
        ({"potential": Static(lambda obs: obs)}, "different shapes"),
        ({"eta": PerState(lambda obs: obs), "value_fn": position}, r"one number per state, here of shape \(64,\)"),
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


# ---- the short way for plain networks on flat observations


@pytest.mark.parametrize("network", ["online", "target"])
@pytest.mark.parametrize("layers", [{}, {"net_arch": []}, {"activation_fn": nn.Tanh}])
@pytest.mark.parametrize("algorithm", [DQN, TD3, DDPG])
def test_the_short_way_is_the_models_own_forward_pass(algorithm: Any, layers: dict[str, Any], network: str) -> None:
    model = algorithm("MlpPolicy", "CartPole-v1" if algorithm is DQN else "Pendulum-v1", policy_kwargs=layers)
    suffix = "" if network == "online" else "_target"
    obs = torch.randn(9, *model.observation_space.shape)
    before = obs.clone()
    with torch.no_grad():
        if algorithm is DQN:
            q_net = getattr(model, f"q_net{suffix}")
            expected, networks = q_net(obs).amax(dim=1), [q_net]
        else:
            actor, critic = getattr(model, f"actor{suffix}"), getattr(model, f"critic{suffix}")
            expected, networks = torch.cat(critic(obs, actor(obs)), dim=1).amin(dim=1), [actor, critic]
        assert all(_flat_layers(each) is not None for each in networks)
        value = reader_for(model, network)(model, obs, network, stream(0, "unused"))
    assert torch.equal(value, expected)
    assert torch.equal(obs, before)


def test_a_network_that_is_not_plain_goes_the_long_way() -> None:
    class WithDropout(BaseFeaturesExtractor):
        def __init__(self, space: spaces.Box) -> None:
            super().__init__(space, features_dim=4)
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout())

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.layers(obs)

    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": WithDropout}, **SMALL)
    model.policy.set_training_mode(True)
    read, obs = reader_for(model, "online"), torch.randn(9, 4)
    assert _flat_layers(model.q_net) is None
    with torch.no_grad():
        assert torch.equal(
            read(model, obs, "online", stream(0, "unused")), read(model, obs, "online", stream(0, "unused"))
        )


@pytest.mark.parametrize("terminal", ["zero", "keep"])
@pytest.mark.parametrize("size", [64, 200])
def test_in_few_operations_it_is_the_same_line(terminal: str, size: int) -> None:
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
