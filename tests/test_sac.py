"""SAC's gradient steps against Stable-Baselines3's, on the same weights, batches and noise; and its soft value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor, nn

from bsrs.agents.agent import Batch
from bsrs.agents.sac import SACAgent
from bsrs.config.agents import SACConfig
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput

SPEC = EnvSpec("Pendulum-v1", "gym", (3,), "float32", action_low=(-2.0,), action_high=(2.0,))
GAMMA, SIZE, HIDDEN = 0.98, 64, (48, 32)


def config(**fields: Any) -> SACConfig:
    return SACConfig(env="Pendulum-v1", **{"hidden": HIDDEN, "batch_size": SIZE, **fields})


def noise_as_sb3_draws_it() -> Tensor:
    """Two draws, at s and at s', from the seed that `sb3_steps` sets: (1, 2, B, 1)."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.stack([torch.normal(torch.zeros(SIZE, 1), torch.ones(SIZE, 1)) for _ in range(2)])[None]


def random_batch(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    obs, next_obs = (torch.from_numpy(rng.standard_normal((1, SIZE, 3), np.float32)) for _ in range(2))
    action = torch.from_numpy(rng.uniform(-1, 1, (1, SIZE, 1)).astype(np.float32))
    reward = torch.from_numpy(rng.standard_normal((1, SIZE), np.float32))
    terminated = torch.from_numpy(rng.random((1, SIZE)) < 0.2)
    return Batch(obs, action, reward, next_obs, terminated)


def linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def actor_linears(model: SAC) -> list[nn.Linear]:
    """SB3's actor, its two heads joined as ours are: mean first."""
    mu, log_std = model.actor.mu, model.actor.log_std
    head = nn.Linear(mu.in_features, 2)
    head.weight = nn.Parameter(torch.cat((mu.weight, log_std.weight)))
    head.bias = nn.Parameter(torch.cat((mu.bias, log_std.bias)))
    return [*linears(model.actor.latent_pi), head]


def pairs_of(agent: SACAgent, model: SAC) -> list[tuple[nn.Linear, nn.Linear]]:
    """Every layer of ours, and SB3's."""
    theirs = [*actor_linears(model), *linears(model.critic), *linears(model.critic_target)]
    ours = [layer for network in (agent.actor, agent.critics, agent.target_critics) for layer in linears(network)]
    return list(zip(ours, theirs, strict=True))


def sb3_twin(agent: SACAgent) -> SAC:
    """SB3's SAC; the agent takes over its weights."""
    config = agent.config
    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        gamma=config.gamma,
        learning_rate=config.learning_rate,
        policy_kwargs={"net_arch": list(config.hidden)},
        buffer_size=10,
        learning_starts=0,
        device="cpu",
        ent_coef=config.alpha if config.fixed_alpha else "auto",
    )
    model.learn(1)  # sets up the logger, and makes a first small step
    with torch.no_grad():
        for ours, theirs in pairs_of(agent, model):
            ours.weight.copy_(theirs.weight)
            ours.bias.copy_(theirs.bias)
    for optimizer in filter(None, (model.actor.optimizer, model.critic.optimizer, model.ent_coef_optimizer)):
        optimizer.state.clear()
    if not config.fixed_alpha:
        model.log_ent_coef.data.fill_(math.log(config.alpha))
    return model


def sb3_steps(model: SAC, batches: list[Batch], agent_config: SACConfig) -> None:
    """SB3's own `train` on those batches and that noise, their rewards shaped by the formula."""
    pending = iter(batches)

    def sample(*_: Any, **__: Any) -> ReplayBufferSamples:
        batch = next(pending)
        torch.manual_seed(0)
        reward = shaped_by_hand(model, batch, agent_config)
        torch.manual_seed(0)  # SB3 draws its noise right after this
        fields = [batch.obs[0], batch.action[0], batch.next_obs[0]]
        return ReplayBufferSamples(*fields, batch.terminated[0, :, None].float(), reward)

    model.replay_buffer.sample = sample
    with torch.random.fork_rng():
        for _ in batches:
            model.train(gradient_steps=1, batch_size=SIZE)


@torch.no_grad()
def shaped_by_hand(model: SAC, batch: Batch, config: SACConfig) -> Tensor:
    """`r + eta * (gamma * (1 - terminated) * V(s') - V(s))` with SB3's networks: (B, 1)."""
    obs, next_obs = batch.obs[0], batch.next_obs[0]
    critic = model.critic if config.potential_network == "online" else model.critic_target
    alpha = config.alpha if config.fixed_alpha else model.log_ent_coef.exp()
    action, log_prob = model.actor.action_log_prob(obs)
    next_action, next_log_prob = model.actor.action_log_prob(next_obs)
    if config.potential == "replay":
        action, log_prob, next_log_prob = batch.action[0], 0 * log_prob, 0 * next_log_prob
    value = torch.cat(critic(obs, action), dim=1).min(dim=1).values - alpha * log_prob
    next_value = torch.cat(critic(next_obs, next_action), dim=1).min(dim=1).values - alpha * next_log_prob
    alive = 1 - batch.terminated[0].float() if config.terminal == "zero" else 1.0
    return (batch.reward[0] + float(config.eta) * (GAMMA * alive * next_value - value))[:, None]


@pytest.mark.parametrize(
    "fields",
    [
        {"eta": 0.0},
        {"eta": 2.0},
        {"eta": -0.5, "alpha": 0.3, "fixed_alpha": True},
        {"eta": 2.0, "potential": "replay"},
        {"eta": 2.0, "potential_network": "target"},
        {"eta": 1.0, "terminal": "keep"},
    ],
    ids=lambda fields: " ".join(f"{name}={value}" for name, value in fields.items()),
)
def test_updates_equal_sb3s_fed_with_shaped_rewards(fields: dict[str, Any]) -> None:
    agent = SACAgent([config(**fields)], SPEC, use_kernels=False)
    agent.noise = lambda *_: noise_as_sb3_draws_it().numpy()  # type: ignore[method-assign]
    model = sb3_twin(agent)
    batches = [random_batch(i) for i in range(4)]
    sb3_steps(model, batches, agent.config)
    for batch in batches:
        agent.train_on(batch, step=1)
    # Four steps of Adam move a weight by 4e-3; where a gradient is as small as its rounding, it enlarges the rounding.
    for ours, theirs in pairs_of(agent, model):
        torch.testing.assert_close(ours.weight, theirs.weight, atol=1e-4, rtol=0)
        torch.testing.assert_close(ours.bias, theirs.bias, atol=1e-4, rtol=0)
    alpha = agent.temperatures.each[0].get_parameter("log_alpha").exp()
    if agent.config.fixed_alpha:
        assert alpha.item() == pytest.approx(0.3)
    else:
        torch.testing.assert_close(alpha, model.log_ent_coef.exp().detach(), atol=1e-5, rtol=0)
        assert alpha.item() != 1.0


def test_density_of_the_squashed_gaussian_integrates_to_one() -> None:
    agent = SACAgent([config()], SPEC)
    noise = torch.linspace(-8, 8, 20_001).view(1, -1, 1)
    action, log_prob = agent.sample_action(torch.zeros(1, 20_001, 3), noise)
    mass = torch.trapezoid(log_prob.detach().exp()[0], action.detach()[0, :, 0])
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_bad_settings_are_named() -> None:
    with pytest.raises(BadInput, match="alpha is 0"):
        config(alpha=0.0)
