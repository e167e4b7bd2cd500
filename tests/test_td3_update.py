"""TD3's gradient steps against Stable-Baselines3's, on the same weights, batches and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor, nn

from bsrs.agents.agent import Batch
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import TD3Config
from bsrs.envs import EnvSpec

SPEC = EnvSpec("Pendulum-v1", "gym", (3,), "float32", action_low=(-2.0,), action_high=(2.0,))
GAMMA, SIZE, HIDDEN = 0.98, 64, (48, 32)


def config(**fields: Any) -> TD3Config:
    return TD3Config(env="Pendulum-v1", **{"hidden": HIDDEN, "batch_size": SIZE, **fields})


def random_batch(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    obs, next_obs = (torch.from_numpy(rng.standard_normal((1, SIZE, 3), np.float32)) for _ in range(2))
    action = torch.from_numpy(rng.uniform(-1, 1, (1, SIZE, 1)).astype(np.float32))
    reward = torch.from_numpy(rng.standard_normal((1, SIZE), np.float32))
    terminated = torch.from_numpy(rng.random((1, SIZE)) < 0.2)
    return Batch(obs, action, reward, next_obs, terminated)


def linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def sb3_twin(agent: TD3Agent) -> TD3:
    """SB3's TD3 with the agent's weights."""
    config = agent.config
    model = TD3(
        "MlpPolicy",
        "Pendulum-v1",
        gamma=config.gamma,
        learning_rate=config.learning_rate,
        tau=config.tau,
        policy_delay=config.policy_delay,
        policy_kwargs={"net_arch": list(config.hidden), "n_critics": config.n_critics},
        buffer_size=10,
        device="cpu",
    )
    model.learn(1)  # sets up the logger
    with torch.no_grad():
        for target in (model.actor, model.actor_target):
            copy_weights(linears(agent.actor), linears(target))
        for target in (model.critic, model.critic_target):
            for ours, network in zip(critics_of(agent.critics), target.q_networks, strict=True):
                copy_weights(linears(ours), linears(network))
    return model


def critics_of(members: Any) -> list[nn.Module]:
    """The first member's critics."""
    return list(members.each[0].each)


def copy_weights(source: list[nn.Linear], target: list[nn.Linear]) -> None:
    for ours, theirs in zip(source, target, strict=True):
        theirs.weight.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)


def sb3_steps(model: TD3, batches: list[Batch], agent_config: TD3Config) -> None:
    """SB3's own `train` on those batches and that noise, their rewards shaped by the formula."""
    pending = iter(batches)

    def sample(*_: Any, **__: Any) -> ReplayBufferSamples:
        batch = next(pending)
        torch.manual_seed(0)  # SB3 draws its noise right after this
        batch_noise = torch.empty(SIZE, 1).normal_(0, 0.2)
        assert torch.allclose(batch_noise, 0.2 * same_noise(), atol=1e-7)
        torch.manual_seed(0)
        reward = shaped_by_hand(model, batch, agent_config, batch_noise)
        fields = [batch.obs[0], batch.action[0], batch.next_obs[0]]
        return ReplayBufferSamples(*fields, batch.terminated[0, :, None].float(), reward)

    model.replay_buffer.sample = sample
    with torch.random.fork_rng():
        model.train(gradient_steps=len(batches), batch_size=SIZE)


@torch.no_grad()
def shaped_by_hand(model: TD3, batch: Batch, config: TD3Config, noise: Tensor) -> Tensor:
    """`r + eta * (gamma * (1 - terminated) * V(s') - V(s))` with SB3's networks: (B, 1)."""
    obs, action, next_obs = batch.obs[0], batch.action[0], batch.next_obs[0]
    critic = model.critic if config.potential_network == "online" else model.critic_target
    if config.potential == "policy":
        at, next_at = model.actor(obs), model.actor(next_obs)
    else:
        at, next_at = action, (model.actor_target(next_obs) + noise.clamp(-0.5, 0.5)).clamp(-1, 1)
    value = torch.cat(critic(obs, at), dim=1).min(dim=1, keepdim=True).values
    next_value = torch.cat(critic(next_obs, next_at), dim=1).min(dim=1, keepdim=True).values
    alive = 1 - batch.terminated[0, :, None].float() if config.terminal == "zero" else 1.0
    return batch.reward[0, :, None] + float(config.eta) * (GAMMA * alive * next_value - value)


def assert_same_networks(agent: TD3Agent, model: TD3, atol: float = 1e-5) -> None:
    pairs = [(agent.actor, model.actor), (agent.target_actor, model.actor_target)]
    pairs += zip(critics_of(agent.critics), model.critic.q_networks, strict=True)
    pairs += zip(critics_of(agent.target_critics), model.critic_target.q_networks, strict=True)
    for ours, theirs in pairs:
        for our_layer, their_layer in zip(linears(ours), linears(theirs), strict=True):
            torch.testing.assert_close(our_layer.weight, their_layer.weight, atol=atol, rtol=0)
            torch.testing.assert_close(our_layer.bias, their_layer.bias, atol=atol, rtol=0)


def same_noise() -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.empty(SIZE, 1).normal_()


@pytest.mark.parametrize(
    "fields",
    [
        {"eta": 0.0},
        {"eta": 2.0},
        {"eta": -0.5},
        {"eta": 2.0, "potential": "replay"},
        {"eta": 2.0, "potential_network": "target"},
        {"eta": 2.0, "potential": "replay", "potential_network": "target"},
        {"eta": 1.0, "terminal": "keep"},
        {"eta": 1.0, "n_critics": 1, "policy_delay": 1},
    ],
    ids=lambda fields: " ".join(f"{name}={value}" for name, value in fields.items()),
)
def test_updates_equal_sb3s_fed_with_shaped_rewards(fields: dict[str, Any]) -> None:
    agent = TD3Agent([config(**fields)], SPEC, use_kernels=False)
    agent.noise = lambda *_: same_noise().numpy()[None]  # type: ignore[method-assign]
    model = sb3_twin(agent)
    batches = [random_batch(i) for i in range(4)]
    sb3_steps(model, batches, agent.config)
    before = linears(agent.actor)[1].weight.clone()
    for batch in batches:
        agent.updates += 1
        agent.train_on(batch, step=1)
    assert not torch.equal(linears(agent.actor)[1].weight, before)
    assert_same_networks(agent, model)
