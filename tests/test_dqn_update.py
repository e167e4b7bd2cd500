"""One gradient step of ours against Stable-Baselines3's DQN on the same weights and the same batch."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from bsrs.agents.agent import Batch
from bsrs.agents.dqn import DQNAgent
from bsrs.config.agents import DQNConfig
from bsrs.envs import EnvSpec
from bsrs.shaping import PerState, Shaping, shaped_reward
from small_agents import scale

FRAMES = EnvSpec("PongNoFrameskip-v4", "atari", (4, 84, 84), "uint8", 255.0, 4, n_actions=6)
VECTOR = EnvSpec("CartPole-v1", "gym", (4,), "float32", n_actions=2)
B = 32


class Stand(gymnasium.Env[Any, Any]):
    """An env that exists for its spaces only."""

    def __init__(self, spec: EnvSpec) -> None:
        low, high, dtype = (0, 255, np.uint8) if spec.is_image else (-np.inf, np.inf, np.float32)
        self.observation_space = spaces.Box(low, high, spec.obs_shape, dtype)
        self.action_space = spaces.Discrete(spec.n_actions)


def draw_batch(spec: EnvSpec, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def obs() -> np.ndarray:
        if spec.is_image:
            return rng.integers(0, 256, (B, *spec.obs_shape), dtype=np.uint8)
        return rng.standard_normal((B, *spec.obs_shape), dtype=np.float32)

    return {
        "obs": obs(),
        "action": rng.integers(spec.n_actions, size=B),
        "reward": rng.standard_normal(B, dtype=np.float32),
        "next_obs": obs(),
        "terminated": rng.random(B) < 0.3,
    }


def our_batch(data: dict[str, np.ndarray], scale: float, members: int = 1) -> Batch:
    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([data[name]] * members))

    return Batch(
        tensor("obs").float() / scale,
        tensor("action"),
        tensor("reward"),
        tensor("next_obs").float() / scale,
        tensor("terminated"),
    )


def make_pair(spec: EnvSpec, **fields: Any) -> tuple[DQNAgent, Any]:
    """Our agent and SB3's model with the same online weights and the same, different, target weights."""
    from stable_baselines3 import DQN

    config = DQNConfig(env=spec.env, buffer_size=100, hidden=(64, 64), learning_rate=1e-4, **fields)
    agent = DQNAgent([config], spec, use_kernels=False)
    policy = "CnnPolicy" if spec.is_image else "MlpPolicy"
    theirs = DQN(policy, Stand(spec), buffer_size=100, learning_rate=1e-4, batch_size=B, seed=1, device="cpu")
    theirs.set_logger(__import__("stable_baselines3").common.logger.configure(None, []))
    for ours, their in ((agent.online, theirs.q_net), (agent.target, theirs.q_net_target)):
        for parameter, source in zip(ours.parameters(), their.parameters(), strict=True):
            parameter.data.copy_(source)
    mine, other = agent.optimizer.param_groups[0], theirs.policy.optimizer.param_groups[0]
    assert all(mine[name] == other[name] for name in ("lr", "betas", "eps", "weight_decay"))
    if spec.is_image:
        # Adam's first step is g / (|g| + eps): of a million gradients a few are so near 1e-8 that it shows
        # nothing but their rounding.
        mine["eps"] = other["eps"] = 1e-5
    for target in (agent.target, theirs.q_net_target):  # target networks that have fallen behind
        scale(target, 0.9)
    return agent, theirs


def their_step(theirs: Any, data: dict[str, np.ndarray], reward: np.ndarray) -> None:
    """SB3's own `train`, with its replay giving out `data`."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    samples = ReplayBufferSamples(
        torch.from_numpy(data["obs"]),
        torch.from_numpy(data["action"])[:, None],
        torch.from_numpy(data["next_obs"]),
        torch.from_numpy(data["terminated"]).float()[:, None],
        torch.from_numpy(reward)[:, None],
    )
    theirs.replay_buffer.sample = lambda *args, **kwargs: samples
    theirs.train(gradient_steps=1, batch_size=B)


def assert_same_weights(agent: DQNAgent, theirs: Any) -> None:
    for ours, their in zip(agent.online.parameters(), theirs.q_net.parameters(), strict=True):
        torch.testing.assert_close(ours.detach(), their.detach(), atol=1e-6, rtol=0)


def their_value(theirs: Any, obs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return theirs.q_net(torch.from_numpy(obs)).amax(dim=1).numpy()


@pytest.mark.parametrize("spec", [VECTOR, FRAMES], ids=["vector", "frames"])
def test_plain_update_equals_sb3(spec: EnvSpec) -> None:
    agent, theirs = make_pair(spec, eta=0.0)
    for seed in range(1 if spec.is_image else 3):  # Adam magnifies rounding from its second step on
        data = draw_batch(spec, seed)
        agent.train_on(our_batch(data, spec.obs_scale), step=1)
        their_step(theirs, data, data["reward"])
    assert_same_weights(agent, theirs)


@pytest.mark.parametrize("spec", [VECTOR, FRAMES], ids=["vector", "frames"])
@pytest.mark.parametrize("terminal", ["zero", "keep"])
def test_shaped_update_equals_sb3_on_rewards_shaped_by_the_formula(spec: EnvSpec, terminal: str) -> None:
    agent, theirs = make_pair(spec, eta=2.0, terminal=terminal)
    for seed in range(1 if spec.is_image else 3):  # Adam magnifies rounding from its second step on
        data = draw_batch(spec, seed)
        value, next_value = their_value(theirs, data["obs"]), their_value(theirs, data["next_obs"])
        if terminal == "zero":
            next_value = next_value * ~data["terminated"]
        reward = data["reward"] + np.float32(2.0) * (np.float32(0.99) * next_value - value)
        agent.train_on(our_batch(data, spec.obs_scale), step=1)
        their_step(theirs, data, reward)
    assert_same_weights(agent, theirs)


def test_without_eta_the_update_is_textbook_dqn() -> None:
    """Written out once more with PyTorch's functions: exactly the same weights."""
    agent = agent_with(eta=0.0)
    network = copy.deepcopy(agent.online.each[0])
    optimizer = torch.optim.Adam(network.parameters(), agent.config.learning_rate, fused=True)
    for seed in range(3):
        batch = our_batch(draw_batch(VECTOR, seed), 1.0)
        agent.train_on(batch, 1)
        with torch.no_grad():
            target = batch.reward[0] + 0.99 * agent.target(batch.next_obs)[0].amax(-1) * ~batch.terminated[0]
        q = network(batch.obs[0])
        optimizer.zero_grad()
        torch.nn.functional.smooth_l1_loss(q.gather(-1, batch.action[0, :, None])[:, 0], target).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimizer.step()
    for ours, theirs in zip(agent.online.parameters(), network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def shaped_by(agent: DQNAgent, data: dict[str, np.ndarray], step: int = 1) -> torch.Tensor:
    """The shaping term of our update on one batch."""
    batch = our_batch(data, 1.0, agent.members)
    with torch.no_grad():
        return agent.td_target(batch, agent.online(batch.obs), step)[1]


def agent_with(**fields: Any) -> DQNAgent:
    agent = DQNAgent([DQNConfig(env="CartPole-v1", buffer_size=100, **fields)], VECTOR, use_kernels=False)
    scale(agent.target, 0.5)
    return agent


def test_target_network_as_potential() -> None:
    data = draw_batch(VECTOR)
    agent = agent_with(eta=1.5, potential_network="target")
    batch = our_batch(data, 1.0)
    with torch.no_grad():
        value, next_value = agent.target(batch.obs).amax(-1), agent.target(batch.next_obs).amax(-1)
    expected = 1.5 * (0.99 * next_value * ~batch.terminated - value)
    torch.testing.assert_close(shaped_by(agent, data), expected)


def test_soft_value_in_target_and_potential() -> None:
    data, tau = draw_batch(VECTOR), 0.3
    agent = agent_with(eta=1.0, temperature=tau)
    batch = our_batch(data, 1.0)
    with torch.no_grad():
        q, next_q, next_q_target = agent.online(batch.obs), agent.online(batch.next_obs), agent.target(batch.next_obs)
        target, _ = agent.td_target(batch, agent.online(batch.obs), 1)
    soft = [tau * np.log(np.exp(x.numpy().astype(float) / tau).sum(-1)) for x in (q, next_q, next_q_target)]
    alive = ~data["terminated"]
    expected = data["reward"] + (0.99 * soft[1] * alive - soft[0]) + 0.99 * soft[2] * alive
    np.testing.assert_allclose(target.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_double_dqn_values_the_online_networks_choice() -> None:
    data = draw_batch(VECTOR)
    agent = agent_with(eta=0.0, double=True)
    batch = our_batch(data, 1.0)
    with torch.no_grad():
        target, _ = agent.td_target(batch, agent.online(batch.obs), 1)
        choice = agent.online(batch.next_obs).argmax(-1)[0]
        valued = agent.target(batch.next_obs)[0, torch.arange(B), choice]
    expected = batch.reward[0] + 0.99 * valued * ~batch.terminated[0]
    torch.testing.assert_close(target[0], expected)


def test_split_potential_takes_the_next_value_from_the_target_network() -> None:
    data = draw_batch(VECTOR)
    agent = agent_with(eta=1.5, potential_network="split")
    batch = our_batch(data, 1.0)
    with torch.no_grad():
        value, next_value = agent.online(batch.obs).amax(-1), agent.target(batch.next_obs).amax(-1)
    expected = 1.5 * (0.99 * next_value * ~batch.terminated - value)
    torch.testing.assert_close(shaped_by(agent, data), expected)


def test_scheduled_eta_reaches_the_update() -> None:
    data = draw_batch(VECTOR)
    agent = agent_with(eta="linear:2:0:100")
    full, half = shaped_by(agent, data, step=0), shaped_by(agent, data, step=50)
    torch.testing.assert_close(half, full / 2)
    assert not shaped_by(agent, data, step=100).any()


def test_own_shaping_takes_the_place_of_eta() -> None:
    data = draw_batch(VECTOR)
    per_state = Shaping(PerState(lambda obs: obs[..., 0].abs()))
    agent = DQNAgent([DQNConfig(env="CartPole-v1", buffer_size=100)], VECTOR, shaping=per_state)
    batch = our_batch(data, 1.0)
    with torch.no_grad():
        value, next_value = agent.online(batch.obs).amax(-1), agent.online(batch.next_obs).amax(-1)
    expected = shaped_reward(
        torch.zeros(1, B),
        value,
        next_value,
        eta=batch.obs[..., 0].abs(),
        next_eta=batch.next_obs[..., 0].abs(),
        gamma=0.99,
        terminated=batch.terminated,
    )
    torch.testing.assert_close(shaped_by(agent, data), expected)
