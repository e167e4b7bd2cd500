"""Small agents with target networks that differ, and batches for them: for tests of what a gradient step learns.

And small runs of them, for tests of what is resumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.dqn import DQNAgent
from bsrs.agents.replay import Batch
from bsrs.agents.sac import SACAgent
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import DQNConfig, SACConfig, TD3Config
from bsrs.config.training import TrainingConfig
from bsrs.envs import EnvSpec
from bsrs.run import Records, make_agent
from bsrs.shaping import Shaping
from bsrs.train import Loop

DISCRETE = EnvSpec("CartPole-v1", "gym", (4,), "float32", n_actions=3)
CONTINUOUS = EnvSpec("Pendulum-v1", "gym", (3,), "float32", action_low=(-2.0,), action_high=(2.0,))
B = 24


def dqn(*fields: dict[str, Any]) -> DQNAgent:
    same: dict[str, Any] = {"env": "CartPole-v1", "buffer_size": 100, "hidden": (16, 16), "batch_size": B}
    agent = DQNAgent([DQNConfig(**{**same, **each}) for each in fields], DISCRETE)
    return _with_target_behind(agent, agent.target)


def critic(kind: str, *fields: dict[str, Any]) -> Any:
    same: dict[str, Any] = {"env": "Pendulum-v1", "buffer_size": 100, "hidden": (16, 16), "batch_size": B}
    if kind == "td3":
        agent: Any = TD3Agent([TD3Config(**{**same, **each}) for each in fields], CONTINUOUS)
    else:
        agent = SACAgent([SACConfig(**{**same, **each}) for each in fields], CONTINUOUS)
    return _with_target_behind(agent, agent.target_critics)


def made(kind: str, *fields: dict[str, Any]) -> Any:
    return dqn(*fields) if kind == "dqn" else critic(kind, *fields)


def _with_target_behind(agent: Any, target: Any) -> Any:
    target.weights.numbers.mul_(0.7)
    return agent


def batch(kind: str, members: int = 1, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    n_obs = 4 if kind == "dqn" else 3

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(np.stack([rng.standard_normal(shape, np.float32)] * members))

    obs, next_obs, reward = normal(B, n_obs), normal(B, n_obs), normal(B)
    terminated = torch.from_numpy(np.stack([rng.random(B) < 0.3] * members))
    if kind == "dqn":
        action = torch.from_numpy(np.stack([rng.integers(3, size=B)] * members))
        return Batch(obs, action, reward, next_obs, terminated)
    action = torch.from_numpy(np.stack([rng.uniform(-1, 1, (B, 1)).astype(np.float32)] * members))
    return Batch(obs, action, reward, next_obs, terminated, normal(2 if kind == "sac" else 1, B, 1))


def weights(agent: Any, member: int = 0) -> dict[str, Tensor]:
    state = agent.state(member)
    return {name: tensor for name, tensor in state.tensors.items() if "adam" not in name and "diagnostics" not in name}


def after(kind: str, fields: dict[str, Any], scale: float = 1.0, steps: int = 3) -> dict[str, Tensor]:
    """The weights of one member after a few gradient steps, its rewards scaled."""
    agent = made(kind, fields)
    for seed in range(steps):
        given = batch(kind, 1, seed)
        agent.gradient_step(given._replace(reward=given.reward * scale), 1)
    return weights(agent)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], atol: float = 0.0) -> None:
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=atol, msg=name)


RUN: dict[str, Any] = {"buffer_size": 1_000, "eval_every": 0, "log_every": 20, "batch_size": 16, "hidden": (16, 16)}
"""Settings of a small run, of any algorithm."""


def started(configs: list[TrainingConfig], shaping: Shaping | None = None) -> tuple[Loop, Any]:
    """A loop at its first step, and its agent."""
    agent = make_agent(configs, shaping=shaping)
    loop = Loop(agent, configs[0], [c.seed for c in configs], [Records() for _ in configs])
    loop.start()
    return loop, agent


def advance(loop: Loop, steps: int) -> None:
    for _ in range(steps):
        loop.advance()
