"""The support matrix: each "exact" or "refused" cell names a test, the page has the table, and SB3's cells are here."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("support_matrix", ROOT / "docs" / "support_matrix.py")
assert spec is not None
assert spec.loader is not None
support_matrix = importlib.util.module_from_spec(spec)
spec.loader.exec_module(support_matrix)

COLUMNS, ROWS = support_matrix.read_matrix()
CELLS = sorted({cell for row in ROWS for cell in row["cells"] if cell != "-"})


@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_names_a_test(cell: str) -> None:
    file, _, name = support_matrix.test_of(cell).partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), cell
    assert support_matrix.kind(cell) == ("refused" if "refused" in name else "exact")


def test_each_row_has_a_cell_for_each_column() -> None:
    assert all(len(row["cells"]) == len(COLUMNS) for row in ROWS)


def test_the_page_has_the_table() -> None:
    """If this fails: python docs/support_matrix.py"""
    page = (ROOT / "docs" / "libraries.md").read_text()
    assert support_matrix.with_matrix(page) == page


# Stable-Baselines3, sb3-contrib and SBX. V is a known function of the observation here: that V is read from the right
# networks is tested for each algorithm in test_sb3_step.py and test_sb3_sbx.py.

GAMMA = 0.97
TORCH = ["sb3 DQN", "sb3 TD3", "sb3 DDPG", "sb3 SAC", "contrib QRDQN", "contrib TQC", "contrib CrossQ"]
JAX = ["sbx DQN", "sbx TD3", "sbx DDPG", "sbx SAC", "sbx TQC", "sbx CrossQ"]


def build(name: str, env: Any, policy: str, **options: Any) -> Any:
    pytest.importorskip("stable_baselines3")
    library, _, algorithm = name.partition(" ")
    module = pytest.importorskip({"sb3": "stable_baselines3", "contrib": "sb3_contrib", "sbx": "sbx"}[library])
    common = {"gamma": GAMMA, "buffer_size": 400, "learning_starts": 1_000, "seed": 3, "device": "cpu"}
    return getattr(module, algorithm)(policy, env, **common, **options).learn(240)


def some_value(model: Any, obs: Any) -> torch.Tensor:
    """V(s) of these tests."""
    flat = torch.cat([part.flatten(1) for part in obs.values()], dim=1) if isinstance(obs, dict) else obs
    return flat.float() @ torch.linspace(1, 2, flat.shape[1])


def check_rewards(model: Any, env: Any = None) -> Any:
    """The rewards of a batch are those of the same batch without shaping, plus the shaping term."""
    import bsrs.sb3
    from sb3_twins import sampled

    plain = sampled(model, 128, env=env)
    shaped = sampled(bsrs.sb3.shape(model, eta=0.7, value_fn=some_value), 128, env=env)
    value, next_value = (some_value(model, obs)[:, None] for obs in (plain.observations, plain.next_observations))
    gamma = GAMMA if getattr(plain, "discounts", None) is None else plain.discounts
    term = 0.7 * (gamma * (1 - plain.dones) * next_value - value)
    torch.testing.assert_close(shaped.rewards, plain.rewards + term, atol=1e-5, rtol=1e-6)
    return plain


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("name", TORCH + JAX)
def test_sb3_rewards_equal_the_formula(name: str, n_steps: int) -> None:
    """Two envs, normalised observations and rewards, terminal and truncated transitions."""
    common = pytest.importorskip("stable_baselines3.common.env_util")
    from stable_baselines3.common.vec_env import VecNormalize

    env_id = "CartPole-v1" if name.endswith("DQN") else "MountainCarContinuous-v0"
    env = VecNormalize(common.make_vec_env(lambda: gym.make(env_id, max_episode_steps=15), n_envs=2, seed=0))
    model = build(name, env, "MlpPolicy", n_steps=n_steps)
    buffer = model.replay_buffer
    ends = np.argwhere(buffer.dones[: buffer.pos] > 0)
    for position, i in ends[::2]:  # so that some ends are terminal and some are not
        buffer.timeouts[position, i] = 0
    for position, i in ends[1::2]:
        buffer.timeouts[position, i] = 1
    plain = check_rewards(model, env)
    assert plain.dones.any()
    assert n_steps == 1 or len(plain.discounts.unique()) > 1  # tails of episodes have fewer steps


WITHOUT_DICTS = ["contrib CrossQ", "sbx DQN", "sbx DDPG"]


@pytest.mark.parametrize("name", [name for name in TORCH + JAX if name not in WITHOUT_DICTS])
def test_sb3_rewards_equal_the_formula_with_hindsight_goals(name: str) -> None:
    envs = pytest.importorskip("stable_baselines3.common.envs")
    from stable_baselines3 import HerReplayBuffer

    env = envs.BitFlippingEnv(n_bits=4, continuous=not name.endswith("DQN"))
    check_rewards(build(name, env, "MultiInputPolicy", replay_buffer_class=HerReplayBuffer))
