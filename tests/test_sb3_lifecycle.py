"""Shape and unshape, by the line or the callback; the algorithms that are not known; and that it learns."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import ARS
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.dqn.policies import DQNPolicy

from bsrs import Static
from bsrs.errors import BadInput
from bsrs.sb3 import ShapeCallback, shape, unshape
from sb3_twins import SMALL, build, filled, rewards


def test_shaping_again_changes_eta() -> None:
    model, other = shape(filled("sb3 DQN"), eta=1.0), shape(filled("sb3 DQN"), eta=2.0)
    assert not torch.equal(rewards(model), rewards(other))
    assert shape(model, eta=2.0) is model
    assert torch.equal(rewards(model), rewards(other))
    assert type(model) is type(other)


def test_unshape_gives_the_plain_model_back() -> None:
    model = filled("sb3 DQN")
    attributes, plain = set(vars(model)), rewards(model)
    shape(model, eta=2.0)
    assert isinstance(model, DQN)
    assert isinstance(model.replay_buffer, ReplayBuffer)
    assert not torch.equal(rewards(model), plain)
    assert unshape(model) is model
    assert (type(model), type(model.replay_buffer)) == (DQN, ReplayBuffer)
    assert set(vars(model)) == attributes
    assert torch.equal(rewards(model), plain)
    with pytest.raises(BadInput, match="not shaped"):
        unshape(model)


# --------------------------------------------------------------------------------------------------------------
# What is not known.


class Novel(OffPolicyAlgorithm):
    """An algorithm that nobody has heard of."""

    def __init__(self) -> None:
        super().__init__(DQNPolicy, "CartPole-v1", 1e-3, buffer_size=100, sde_support=False, device="cpu")
        self._setup_model()


def test_an_unknown_algorithm_is_told_how_to_say_where_its_value_is() -> None:
    with pytest.raises(BadInput, match="does not know where Novel keeps its value estimate: pass value_fn"):
        shape(Novel(), eta=1.0)
    model = shape(Novel(), eta=1.0, value_fn=lambda model, obs: model.policy.q_net(obs).amax(dim=1))
    obs = np.zeros((1, 4), dtype=np.float32)
    model.replay_buffer.add(obs, obs, np.array([0]), np.array([1.0]), np.array([False]), [{}])
    value = model.policy.q_net(torch.zeros(1, 4)).amax().item()
    np.testing.assert_allclose(rewards(model), 1 + (0.99 - 1) * value, rtol=1e-5)


class TunedDQN(DQN):
    """A DQN of somebody's own."""


def test_a_subclass_of_a_known_algorithm_is_known() -> None:
    assert shape(TunedDQN("MlpPolicy", "CartPole-v1", **SMALL), eta=1.0).learn(80).num_timesteps == 80


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DQN, "expected a built .* and got the class DQN"),
        ("DQN", "expected a built .* and got a str"),
        (DQN("MlpPolicy", "CartPole-v1", _init_setup_model=False), "no networks yet"),
        (ARS("LinearPolicy", "CartPole-v1"), "ARS learns no value estimate"),
    ],
)
def test_what_cannot_be_shaped(model: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        shape(model)


def test_crossq_has_no_target_network() -> None:
    with pytest.raises(BadInput, match="CrossQ has no target network"):
        shape(build("contrib CrossQ"), network="target")


# --------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1200)
def test_a_shaped_dqn_solves_cartpole() -> None:
    """One of the evaluations on the way (20 greedy episodes each) reaches 475 of 500 points."""
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        learning_starts=1_000,
        buffer_size=50_000,
        target_update_interval=200,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.1,
        exploration_final_eps=0.02,
        seed=0,
    )
    solved = StopTrainingOnRewardThreshold(475)
    watch = EvalCallback(Monitor(gym.make("CartPole-v1")), solved, n_eval_episodes=20, eval_freq=3_000, verbose=0)
    shape(model, eta=0.5).learn(50_000, callback=watch)
    assert watch.best_mean_reward >= 475


def test_the_callback_shapes_when_training_starts_and_only_once() -> None:
    model, callback = filled("sb3 DQN"), ShapeCallback(eta=2.0, terminal="keep")
    assert type(model) is DQN
    for _ in range(2):
        model.learn(40, callback=callback, reset_num_timesteps=False)
    assert model.bsrs_shaper.settings.terminal == "keep"
    unshape(model)
    assert type(model) is DQN
    model.learn(40, callback=callback, reset_num_timesteps=False)
    assert model.bsrs_shaper.settings.terminal == "keep"  # not silently plain


def test_another_callback_in_a_second_learn_continues_or_shapes_anew() -> None:
    def potential(obs: Any) -> Any:
        return obs[:, 0]

    model = filled("sb3 DQN").learn(
        20, callback=ShapeCallback(1.0, potential=Static(potential)), reset_num_timesteps=False
    )
    shaper = model.bsrs_shaper
    model.learn(20, callback=ShapeCallback(1.0, potential=Static(potential)), reset_num_timesteps=False)
    assert model.bsrs_shaper is shaper  # with what it remembers
    for changes in ({"eta": 1.0, "potential": Static(lambda obs: obs[:, 1])}, {"eta": 0.5}, {"eta": "linear:0:1:100"}):
        model.learn(20, callback=ShapeCallback(**changes), reset_num_timesteps=False)
        assert model.bsrs_shaper is not shaper
        shaper = model.bsrs_shaper
    assert model.bsrs_shaper.settings.eta == "linear:0:1:100"


def test_a_callback_with_wrong_arguments_says_so_before_anything_is_built() -> None:
    with pytest.raises(BadInput, match="unknown terminal"):
        ShapeCallback(terminal="none")
    with pytest.raises(TypeError, match="network_name"):
        ShapeCallback(network_name="target")
