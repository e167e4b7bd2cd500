"""A shaped model stays a Stable-Baselines3 model: what users do with theirs works, and nothing is shaped twice."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy
from torch import nn

import bsrs.sb3
from bsrs import Static
from bsrs.errors import BadInput
from bsrs.sb3 import load, shape
from sb3_twins import BY_HAND, SMALL, build, filled, max_q, parameters, rewards, train


def small_ppo() -> PPO:
    return PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu")


def expected_rewards(model: Any, eta: float) -> torch.Tensor:
    """Shaped by hand, once, by the networks that the model has now."""
    np.random.seed(0)  # noqa: NPY002 (what SB3 samples with)
    plain = model.replay_buffer.sample(32)
    with torch.no_grad():
        value, next_value = (max_q(model, obs)[:, None] for obs in (plain.observations, plain.next_observations))
    return plain.rewards + eta * (model.gamma * next_value * (1 - plain.dones) - value)


# ---- buffers


@pytest.mark.parametrize("how", ["its own", "another model's", "saved by another model", "a plain one"])
def test_assigned_buffers_are_shaped_once_and_by_their_own_model(how: str, tmp_path: Path) -> None:
    model, donor = shape(filled("sb3 DQN"), 2.0), shape(filled("sb3 DQN", seed=8), 5.0)
    before = rewards(donor)
    if how == "its own":
        model.replay_buffer = model.replay_buffer
    elif how == "another model's":
        model.replay_buffer = donor.replay_buffer
    elif how == "saved by another model":
        donor.save_replay_buffer(tmp_path / "buffer.pkl")
        model.load_replay_buffer(tmp_path / "buffer.pkl")
    else:
        model.replay_buffer = filled("sb3 DQN", seed=9).replay_buffer
    torch.testing.assert_close(rewards(model), expected_rewards(model, 2.0))
    torch.testing.assert_close(rewards(donor), before)
    assert type(model.replay_buffer) is ReplayBuffer


def test_train_gets_the_shaped_batch_of_an_assigned_buffer() -> None:
    """Two updates of a twin whose rewards are shaped by hand give the same weights."""
    settings = {"policy_kwargs": {"net_arch": [16], "optimizer_class": torch.optim.SGD}, "learning_rate": 0.1}
    model, twin = (filled("sb3 DQN", **settings) for _ in range(2))
    shape(model, 5.0)
    other = filled("sb3 DQN", seed=8).replay_buffer
    model.replay_buffer = shape(filled("sb3 DQN", seed=8), 3.0).replay_buffer
    sample = other.sample

    def by_hand(*args: Any, **kwargs: Any) -> Any:
        samples = sample(*args, **kwargs)
        with torch.no_grad():
            value, next_value = (max_q(twin, obs)[:, None] for obs in (samples.observations, samples.next_observations))
        bonus = 5.0 * (twin.gamma * next_value * (1 - samples.dones) - value)
        return samples._replace(rewards=samples.rewards + bonus)

    other.sample = by_hand
    twin.replay_buffer = other
    for each in (model, twin):
        train(each, gradient_steps=2)
    for ours, theirs in zip(parameters(model), parameters(twin), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_buffers_can_be_taken_away() -> None:
    model = shape(filled("sb3 DQN"), 2.0)
    model.replay_buffer = None
    assert model.replay_buffer is None
    del model.replay_buffer
    assert not hasattr(model, "replay_buffer")


def test_an_error_in_training_leaves_the_buffer_as_it_was() -> None:
    model = shape(filled("sb3 DQN"), 2.0)
    buffer, forward = model.replay_buffer, model.q_net_target.forward
    model.q_net_target.forward = lambda obs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        train(model)
    assert model.replay_buffer is buffer
    model.q_net_target.forward = forward
    train(model)


@pytest.mark.parametrize("change", ["another buffer", "_setup_model"])
def test_ppo_stays_shaped(change: str) -> None:
    model = shape(small_ppo().learn(32), 0.5)
    if change == "_setup_model":
        model._setup_model()
    else:
        old = model.rollout_buffer
        model.rollout_buffer = RolloutBuffer(32, old.observation_space, old.action_space, "cpu", 0.95, 0.99, 1)
    model.learn(32)
    assert np.abs(model.rollout_buffer.rewards - 1).max() > 1e-3  # each of CartPole's own rewards is 1


# ---- networks


@pytest.mark.parametrize("change", ["replaced layers", "a replaced network", "spectral_norm", "loaded parameters"])
def test_v_is_always_that_of_the_current_networks(change: str) -> None:
    model = shape(filled("sb3 DQN"), 2.0)
    before = rewards(model)  # whatever is kept is kept now
    if change == "replaced layers":
        model.q_net.q_net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    elif change == "a replaced network":
        model.q_net = model.policy.q_net = model.policy.make_q_net()
    elif change == "spectral_norm":
        nn.utils.parametrizations.spectral_norm(model.q_net.q_net[0])
    else:
        model.set_parameters(filled("sb3 DQN", seed=8).get_parameters())
    model.policy.set_training_mode(False)
    torch.testing.assert_close(rewards(model), expected_rewards(model, 2.0))
    assert not torch.equal(rewards(model), before)


# ---- copies, pickles, files, classes


COPIES: dict[str, Any] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "cloudpickle": lambda model: cloudpickle.loads(cloudpickle.dumps(model)),
}


@pytest.mark.parametrize("eta", ["auto", 2.0])
@pytest.mark.parametrize("how", COPIES)
def test_copies_learn_and_are_shaped_on_their_own(how: str, eta: Any) -> None:
    model = shape(filled("sb3 DQN"), eta)
    copied = COPIES[how](model)
    assert isinstance(copied, DQN)
    assert torch.equal(rewards(copied), rewards(model))
    assert copied.bsrs_shaper is not model.bsrs_shaper
    copied.learn(80, reset_num_timesteps=False)
    shape(copied, 1.0)
    assert not torch.equal(rewards(copied), rewards(model))


def test_copies_of_on_policy_models_learn() -> None:
    model = shape(small_ppo(), 0.5)  # once PPO has learned, its tensors have no deepcopy without us either
    for make in COPIES.values():
        copied = make(model).learn(32, reset_num_timesteps=False)
        assert np.abs(copied.rollout_buffer.rewards - 1).max() > 1e-3


@pytest.mark.parametrize("make", [lambda: build("sb3 DQN"), small_ppo], ids=["DQN", "PPO"])
def test_its_class_makes_and_loads_plain_models(make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = type(make())
    model = shape(make(), 0.5)
    assert type(type(model)("MlpPolicy", "CartPole-v1", device="cpu")) is plain
    assert (type(model).__name__, type(model).__module__) == (plain.__name__, plain.__module__)
    model.save(tmp_path / "model.zip")
    for load_with in (model.load, type(model).load, plain.load):
        caplog.clear()
        with warnings.catch_warnings(action="error"):
            loaded = load_with(tmp_path / "model.zip", env=gym.make("CartPole-v1"))
        assert type(loaded) is plain
        assert "bsrs.sb3.load(path, Algorithm) loads it shaped" in caplog.text
        for ours, theirs in zip(parameters(loaded), parameters(model), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_saving_leaves_no_trace_in_the_model(tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), 2.0)
    before = set(vars(model))
    model.save(tmp_path / "model.zip")
    assert set(vars(model)) == before


def test_her_models_are_loaded_without_trust(tmp_path: Path) -> None:
    kwargs = {"replay_buffer_kwargs": {"goal_selection_strategy": GoalSelectionStrategy.FINAL, "n_sampled_goal": 2}}
    env = BitFlippingEnv(n_bits=4, continuous=False)
    model = shape(DQN("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, **kwargs, **SMALL), 1.0)
    model.learn(80).save(tmp_path / "model.zip")
    loaded = load(tmp_path / "model.zip", DQN, env=env).learn(80)
    assert loaded.replay_buffer.goal_selection_strategy is GoalSelectionStrategy.FINAL


def test_classes_are_not_kept() -> None:
    class Mine(DQN):
        """A class that goes."""

    reference = weakref.ref(type(shape(Mine("MlpPolicy", "CartPole-v1", **SMALL), 1.0)))
    del Mine
    for _ in range(3):
        gc.collect()
    assert reference() is None


def test_models_of_one_class_share_one() -> None:
    """SBX compiles its programs once per class."""
    assert type(shape(build("sb3 DQN"), 1.0)) is type(shape(build("sb3 DQN"), 2.0))


# ---- V, potentials and notices


@pytest.mark.parametrize(("eta", "notice"), [(-1.0, True), (50, True), ("50", True), (5.0, False), (0, False)])
def test_unusual_etas_print_a_notice(eta: Any, notice: bool, capsys: pytest.CaptureFixture[str]) -> None:
    shape(build("sb3 DQN"), eta)
    assert ("usually make training worse" in capsys.readouterr().err) == notice


def test_an_eta_that_is_no_number_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match="expected one number at every step"):
        shape(build("sb3 DQN"), lambda step: "much")


@pytest.mark.parametrize("name", ["sb3 DQN", "contrib QRDQN", "sb3 TD3", "sb3 DDPG"])
def test_value_is_v_of_the_online_networks(name: str) -> None:
    model = filled(name)
    obs = np.stack([model.observation_space.sample() for _ in range(3)])
    with torch.no_grad():
        by_hand = BY_HAND[name](model, torch.as_tensor(obs))
    for each in (model, shape(model, 2.0, network="target")):
        np.testing.assert_allclose(bsrs.sb3.value(each, obs), by_hand, rtol=1e-5)
        assert bsrs.sb3.value(each, obs[0]) == pytest.approx(float(by_hand[0]), rel=1e-5)


def test_value_in_a_callback_moves_no_random_stream() -> None:
    def trained(watch: bool) -> Any:
        seen: list[float] = []

        def callback(local: dict[str, Any], _: Any) -> bool:
            if watch:
                seen.extend(bsrs.sb3.value(local["self"], local["new_obs"]))
            return True

        model = shape(build("sb3 SAC"), 1.0).learn(100, callback=callback)
        assert len(seen) == (100 if watch else 0)
        assert np.isfinite(seen).all()
        return model

    for ours, theirs in zip(parameters(trained(True)), parameters(trained(False)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_value_of_ppo_and_of_ones_own_function() -> None:
    model, obs = small_ppo(), np.ones((2, 4), dtype=np.float32)
    with torch.no_grad():
        by_hand = model.policy.predict_values(torch.as_tensor(obs))[:, 0]
    np.testing.assert_allclose(bsrs.sb3.value(model, obs), by_hand)
    shape(model, 0.5, value_fn=lambda model, obs: obs.sum(dim=1))
    assert bsrs.sb3.value(model, obs).tolist() == [4.0, 4.0]


def test_a_bare_function_is_a_potential() -> None:
    model = shape(filled("sb3 DQN"), 2.0, potential=lambda obs: obs[:, 0])
    named = shape(filled("sb3 DQN"), 2.0, potential=Static(lambda obs: obs[:, 0]))
    assert torch.equal(rewards(model), rewards(named))
