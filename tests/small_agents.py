"""Small agents with target networks that differ, and batches for them: for tests of what a gradient step learns.

And small runs of them, for tests of what is resumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Batch, Transition
from bsrs.config.algorithms import find_algorithm
from bsrs.config.training import TrainingConfig
from bsrs.envs import EnvSpec
from bsrs.run import Records, make_agent
from bsrs.shaping import Shaping
from bsrs.train import Loop

DISCRETE = EnvSpec("CartPole-v1", "gym", (4,), "float32", n_actions=3)
CONTINUOUS = EnvSpec("Pendulum-v1", "gym", (3,), "float32", action_low=(-2.0,), action_high=(2.0,))
MINATAR = EnvSpec("MinAtar/Breakout-v1", "minatar", (4, 10, 10), "uint8", n_actions=3)
B = 24


def made(kind: str, *fields: dict[str, Any], spec: EnvSpec | None = None, **options: Any) -> Any:
    """A small agent with a member for each dict of settings, its target networks behind.

    `dqn-minto` is the variant of DQN with that comparator.
    """
    algorithm, _, comparator = kind.partition("-")
    if comparator not in ("", "variant", "target"):
        kind, fields = f"{algorithm}-variant", tuple({"comparator": comparator, **each} for each in fields)
    spec = spec or (DISCRETE if kind.startswith("dqn") else CONTINUOUS)
    same: dict[str, Any] = {"env": spec.env, "buffer_size": 100, "hidden": (16, 16), "batch_size": B}
    configs = [find_algorithm(kind).config_class(**{**same, **each}) for each in fields]
    agent = find_algorithm(kind).make_agent(configs, spec, **options)
    for name in agent.targets:
        scale(agent.networks[name], 0.7)
    return agent


def dqn(*fields: dict[str, Any], **options: Any) -> Any:
    return made("dqn", *fields, **options)


@torch.no_grad()
def scale(network: torch.nn.Module, factor: float) -> None:
    """Multiply every weight."""
    for parameter in network.parameters():
        parameter.mul_(factor)


def batch(kind: str, members: int = 1, seed: int = 0) -> Batch:
    """The same random transitions for every member."""
    rng = np.random.default_rng(seed)
    n_obs = 4 if kind.startswith("dqn") else 3

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(np.stack([rng.standard_normal(shape, np.float32)] * members))

    obs, next_obs, reward = normal(B, n_obs), normal(B, n_obs), normal(B)
    terminated = torch.from_numpy(np.stack([rng.random(B) < 0.3] * members))
    action = rng.integers(3, size=B) if kind.startswith("dqn") else rng.uniform(-1, 1, (B, 1)).astype(np.float32)
    return Batch(obs, torch.from_numpy(np.stack([action] * members)), reward, next_obs, terminated)


def fill(agent: Any, seed: int = 0, steps: int = 60) -> None:
    """Put random transitions into the members' replays, with episodes that end both ways."""
    rng, spec = np.random.default_rng(seed), agent.spec
    shape = agent.members, agent.config.n_envs

    def obs() -> np.ndarray[Any, Any]:
        if spec.is_image:
            return (rng.random((*shape, *spec.obs_shape)) < 0.1).astype(spec.obs_dtype)
        return rng.standard_normal((*shape, *spec.obs_shape), np.float32)

    for _ in range(steps):
        if spec.n_actions is None:
            action = rng.uniform(spec.action_low, spec.action_high, (*shape, len(spec.action_low))).astype(np.float32)
        else:
            action = rng.integers(spec.n_actions, size=shape)
        reward = rng.standard_normal(shape, np.float32)
        agent.observe(Transition(obs(), action, reward, obs(), rng.random(shape) < 0.15, rng.random(shape) < 0.1))


def weights(agent: Any, member: int = 0) -> dict[str, Tensor]:
    """Every network's weights, without Adam's state."""
    state = agent.state(member)
    return {name: tensor for name, tensor in state.tensors.items() if "adam" not in name}


def after(kind: str, fields: dict[str, Any], reward_scale: float = 1.0, steps: int = 3) -> dict[str, Tensor]:
    """The weights of one member after a few gradient steps, its rewards scaled."""
    agent = made(kind, fields, use_kernels=False)
    for seed in range(steps):
        given = batch(kind, 1, seed)
        agent.updates += 1
        agent.train_on(given._replace(reward=given.reward * reward_scale), 1)
    return weights(agent)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], atol: float = 0.0) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=atol, msg=lambda why, name=name: f"{name}: {why}")


RUN: dict[str, Any] = {"buffer_size": 1_000, "eval_every": 0, "log_every": 20, "batch_size": 16, "hidden": (16, 16)}
"""Settings of a small run, of any algorithm."""


def started(configs: list[TrainingConfig], shaping: Shaping | None = None, **options: Any) -> tuple[Loop, Any]:
    """A loop at its first step, and its agent."""
    agent: Any = make_agent(configs, shaping=shaping, **options)
    loop = Loop(agent, configs[0], [c.seed for c in configs], [Records() for _ in configs])
    loop.start()
    return loop, agent


def advance(loop: Loop, steps: int) -> None:
    for _ in range(steps):
        loop.advance()
