"""PPO and A2C: rollouts are shaped by the values at collection, also where episodes end inside them."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecNormalize

from bsrs import PerState, Static
from bsrs.errors import BadInput
from bsrs.sb3 import load, shape, unshape
from bsrs.shaping import Seen, ShapeScale

ETA, GAMMA = 0.5, 0.9


class Walk(gym.Env[np.ndarray, np.int64]):
    """x goes up by one from 0; the episode ends at 3, truly or by a time limit, in turns."""

    observation_space = spaces.Box(0.0, 10.0, (1,))
    action_space = spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.x = 0.0
        self.episode += 1
        return np.array([self.x], dtype=np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x += 1
        ended = self.x == 3
        obs = np.array([self.x], dtype=np.float32)
        return obs, 1.0, ended and self.episode % 2 == 1, ended and self.episode % 2 == 0, {}


def build(algorithm: Any, env: Any, steps: int, **kwargs: Any) -> Any:
    batch = {"batch_size": steps, "n_epochs": 2} if algorithm is PPO else {}  # A2C has none
    return algorithm("MlpPolicy", env, n_steps=steps, seed=0, device="cpu", **batch, **kwargs)


class Rewards:
    """What a rollout's rewards, values and advantages are once it is collected."""

    def __init__(self, model: Any) -> None:
        train = model.train

        def keep_and_train() -> None:
            buffer = model.rollout_buffer
            self.rewards, self.values = buffer.rewards.copy(), buffer.values.copy()
            self.advantages = buffer.advantages.copy()
            train()

        model.train = keep_and_train


def value_of(model: Any, x: float) -> float:
    with torch.no_grad():
        return float(model.policy.predict_values(torch.tensor([[x]]))[0, 0])


@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize("terminal", ["zero", "keep"])
def test_rewards_are_shaped_by_hand_computed_values(algorithm: Any, terminal: str) -> None:
    model = build(algorithm, Walk(), 8, gamma=GAMMA)
    shape(model, eta=ETA, terminal=terminal)
    v = [value_of(model, float(x)) for x in range(4)]
    kept = Rewards(model)
    model.learn(8)
    # x: 0 1 2 | 0 1 2 | 0 1   first a true end, then a time limit (where SB3 adds gamma * V(3) to the reward)
    at_true_end = GAMMA * v[3] if terminal == "keep" else 0.0
    step = [ETA * (GAMMA * v[x + 1] - v[x]) for x in range(3)]
    first = [1 + step[0], 1 + step[1], 1 + ETA * (at_true_end - v[2])]
    second = [1 + step[0], 1 + step[1], 1 + GAMMA * v[3] + step[2]]
    np.testing.assert_allclose(kept.rewards[:, 0], [*first, *second, *first[:2]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_advantages_come_from_the_shaped_rewards(algorithm: Any) -> None:
    """With the same values at collection, shaping adds to each TD error its own bonus, and GAE sums them up."""
    shaped, plain = (build(algorithm, Walk(), 3, gamma=GAMMA, gae_lambda=0.8) for _ in range(2))
    shape(shaped, eta=ETA)
    kept, kept_plain = Rewards(shaped), Rewards(plain)
    shaped.learn(3)
    plain.learn(3)
    np.testing.assert_array_equal(kept.values, kept_plain.values)
    bonus = (kept.rewards - kept_plain.rewards)[:, 0]
    decay = GAMMA * 0.8
    expected = [bonus[0] + decay * bonus[1] + decay**2 * bonus[2], bonus[1] + decay * bonus[2], bonus[2]]
    np.testing.assert_allclose((kept.advantages - kept_plain.advantages)[:, 0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_eta_zero_is_the_plain_model_bit_for_bit_over_1000_steps(algorithm: Any) -> None:
    def trained(eta: float | None) -> dict[str, torch.Tensor]:
        env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
        model = build(algorithm, env, 50)
        state: dict[str, torch.Tensor] = (model if eta is None else shape(model, eta)).learn(1_000).policy.state_dict()
        return state

    plain, off, on = trained(None), trained(0.0), trained(0.5)
    assert all(torch.equal(off[name], plain[name]) for name in plain)
    assert any(not torch.equal(on[name], plain[name]) for name in plain)


def test_potentials_and_etas_of_the_state_see_the_true_last_observation() -> None:
    model = build(PPO, Walk(), 6, gamma=GAMMA)
    v3 = value_of(model, 3.0)
    shape(model, PerState(lambda obs: obs[:, 0]), potential=Static(lambda obs: 10 + obs[:, 0]))
    kept = Rewards(model)
    model.learn(6)
    phi = [x * (10 + x) for x in range(4)]
    step = [1 + GAMMA * phi[x + 1] - phi[x] for x in range(3)]
    expected = [step[0], step[1], 1 - phi[2], step[0], step[1], step[2] + GAMMA * v3]
    np.testing.assert_allclose(kept.rewards[:, 0], expected, rtol=1e-5)


class FewInfos(VecEnvWrapper):  # type: ignore[misc]
    """A vector env that has infos only at ends, as procgen, and forgets every other last observation."""

    ends = 0

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        self.ends += int(dones[0])
        if dones[0] and self.ends % 2 == 0:
            del infos[0]["terminal_observation"]
        return obs, rewards, dones, infos if dones[0] else []


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_vector_envs_may_leave_out_infos_and_last_observations(algorithm: Any) -> None:
    model = shape(build(algorithm, FewInfos(DummyVecEnv([Walk])), 6, gamma=GAMMA), eta=ETA)
    v = [value_of(model, float(x)) for x in range(3)]
    kept = Rewards(model)
    model.learn(6)
    step = [1 + ETA * (GAMMA * v[x + 1] - v[x]) for x in range(2)]
    last = 1 - ETA * v[2]  # first a true end, then a time limit whose observation is lost: SB3 does not bootstrap there
    np.testing.assert_allclose(kept.rewards[:, 0], [*step, last, *step, last], rtol=1e-5, atol=1e-6)


def test_a_value_function_of_ones_own_serves_both_ends() -> None:
    model = build(PPO, Walk(), 3, gamma=GAMMA)
    shape(model, eta=ETA, value_fn=lambda model, obs: obs[:, 0])
    kept = Rewards(model)
    model.learn(3)
    expected = [1 + ETA * (GAMMA * 1 - 0), 1 + ETA * (GAMMA * 2 - 1), 1 + ETA * (0 - 2)]
    np.testing.assert_allclose(kept.rewards[:, 0], expected, rtol=1e-5)


def test_it_runs_with_dict_observations_normalisation_and_action_masks() -> None:
    from sb3_contrib.common.envs import InvalidActionEnvDiscrete
    from stable_baselines3.common.envs import SimpleMultiObsEnv

    shape(PPO("MultiInputPolicy", SimpleMultiObsEnv(), n_steps=32, batch_size=32, device="cpu"), eta=ETA).learn(64)
    env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=0))
    shape(A2C("MlpPolicy", env, n_steps=32, device="cpu"), eta=ETA).learn(128)
    masked = InvalidActionEnvDiscrete(dim=8, n_invalid_actions=4)
    shape(MaskablePPO("MlpPolicy", masked, n_steps=32, batch_size=32, device="cpu"), eta=ETA).learn(64)


def test_save_load_unshape(tmp_path: Any) -> None:
    model = shape(build(PPO, "CartPole-v1", 32), eta=ETA).learn(64)
    model.save(tmp_path / "ppo.zip")
    with warnings.catch_warnings(action="error"):
        assert type(PPO.load(tmp_path / "ppo.zip")) is PPO
    loaded = load(tmp_path / "ppo.zip", PPO, env=gym.make("CartPole-v1"))
    assert loaded.bsrs_shaper.settings == model.bsrs_shaper.settings
    assert type(unshape(loaded.learn(64))) is PPO


def test_what_on_policy_algorithms_cannot_do() -> None:
    with pytest.raises(BadInput, match="PPO has no target network"):
        shape(PPO("MlpPolicy", "CartPole-v1", device="cpu"), network="target")


class LongWalk(Walk):
    """The same, but the episode ends at 4, first by a time limit and then truly."""

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, *_ = super().step(action)
        ended = self.x == 4
        return obs, reward, ended and self.episode % 2 == 0, ended and self.episode % 2 == 1, {}


@pytest.mark.parametrize("policy", [{}, {"enable_critic_lstm": False, "shared_lstm": True}])
def test_recurrent_ppo_is_shaped_by_values_that_remember_the_episode(policy: dict[str, Any]) -> None:
    kwargs = {"policy_kwargs": {"lstm_hidden_size": 8, "n_lstm_layers": 2, **policy}}
    envs = DummyVecEnv([Walk, LongWalk])
    model = shape(
        RecurrentPPO("MlpLstmPolicy", envs, n_steps=9, batch_size=9, gamma=GAMMA, seed=0, device="cpu", **kwargs), ETA
    )
    expected = np.stack([by_hand(model, length, first_is_true) for length, first_is_true in ((3, True), (4, False))], 1)
    kept = Rewards(model)
    model.learn(18)
    np.testing.assert_allclose(kept.rewards, expected, rtol=1e-5, atol=1e-6)


def by_hand(model: Any, length: int, first_is_true: bool) -> list[float]:
    """Nine shaped rewards of a walk, its observations given one by one to the LSTM."""

    def value(x: int, states: Any) -> float:
        with torch.no_grad():
            return float(model.policy.predict_values(torch.tensor([[float(x)]]), states.vf, torch.zeros(1)))

    def after(x: int, states: Any) -> Any:
        with torch.no_grad():
            return model.policy.forward(torch.tensor([[float(x)]]), states, torch.zeros(1))[3]

    none = torch.zeros(2, 1, 8)
    rewards: list[float] = []
    for episode in range(3):
        states, is_true = RNNStates((none, none), (none, none)), (episode % 2 == 0) == first_is_true
        for x in range(length):
            v, states = value(x, states), after(x, states)
            next_v, ended = value(x + 1, states), x + 1 == length
            bootstrapped = GAMMA * next_v if ended and not is_true else 0.0  # by SB3
            rewards.append(1 + bootstrapped + ETA * (GAMMA * next_v * (not (ended and is_true)) - v))
    return rewards[:9]


def test_recurrent_ppo_at_eta_zero_is_the_plain_model_and_is_loaded_shaped(tmp_path: Any) -> None:
    def model() -> Any:
        return RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=32, batch_size=32, seed=0, device="cpu")

    plain, off, on = model().learn(64), shape(model(), 0.0).learn(64), shape(model(), ETA).learn(64)
    weights = [each.policy.state_dict() for each in (plain, off, on)]
    assert all(torch.equal(weights[1][name], weights[0][name]) for name in weights[0])
    assert any(not torch.equal(weights[2][name], weights[0][name]) for name in weights[0])
    on.save(tmp_path / "model.zip")
    assert load(tmp_path / "model.zip", RecurrentPPO).bsrs_shaper.settings == on.bsrs_shaper.settings


def test_an_eta_that_learns_sees_the_envs_own_rewards_once_per_rollout() -> None:
    class Noted(ShapeScale):
        depends_on_state = False
        update_every = 1

        def init(self) -> dict[str, Any]:
            return {"rewards": [], "terminated": [], "steps": []}

        def at(self, memory: dict[str, Any], step: int, state: Any = None) -> float:
            return ETA

        def update(self, memory: dict[str, Any], seen: Seen) -> dict[str, Any]:
            new = {"rewards": seen.reward.tolist(), "terminated": seen.terminated.tolist(), "steps": [seen.step]}
            return {name: memory[name] + new[name] for name in memory}

    model = shape(build(PPO, Walk(), 8, gamma=GAMMA), Noted()).learn(16)
    memory = model.bsrs_shaper.state()["scale"]["memory"]
    assert memory["rewards"] == [1.0] * 16  # at the time limits SB3 has added gamma * V(s')
    assert memory["terminated"] == [x % 6 == 2 for x in range(16)]
    assert memory["steps"] == [8, 16]
