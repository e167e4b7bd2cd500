"""Agents of Stable-Baselines3 next to ours: PPO on CartPole with `bsrs.sb3.shape`, and baseline DQN with our presets'
settings. `python -m experiments.sb3_runs FOLDER` trains what the folder does not hold yet; repeat it to continue.

Each run leaves one file, `ppo/eta0.5-seed3.json` or `plain/zoo-cartpole-seed3.json`, with its evaluations.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import bsrs.sb3
from benchmarks.peers import sb3_env, sb3_model
from bsrs.config.agents import DQNConfig
from bsrs.config.algorithms import preset
from bsrs.config.training import TrainingConfig

PPO_ETAS, PPO_SEEDS = (0.0, 0.5, 1.0), range(10)
# The zoo's schedules are for 100,000 steps; CartPole is learnt in the first 20,000, and the run ends there.
PPO_SCHEDULE, PPO_STEPS = 100_000, 20_000

PLAIN_ENVS = {"zoo-cartpole": "CartPole-v1", "zoo-mountaincar": "MountainCar-v0"}
PLAIN_SEEDS = range(6)


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "sb3"
    for name, train in runs():
        path = folder / f"{name}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".tmp").write_text(json.dumps(train()))
            path.with_suffix(".tmp").rename(path)
            print(path, flush=True)


def runs() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield the name of each run, and what trains it."""
    for seed in PPO_SEEDS:
        for eta in PPO_ETAS:
            yield f"ppo/eta{eta:g}-seed{seed}", partial(ppo, eta, seed)
    for name, env in PLAIN_ENVS.items():
        for seed in PLAIN_SEEDS:
            yield f"plain/{name}-seed{seed}", partial(plain, preset("dqn", name, env=env, eta=0.0, seed=seed))


def ppo(eta: float, seed: int) -> dict[str, Any]:
    """Train PPO with the settings of rl-baselines3-zoo."""
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=8, seed=seed),
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: 0.001 * left,
        clip_range=lambda left: 0.2 * left,
        seed=seed,
        device="cpu",
    )
    if eta:
        model = bsrs.sb3.shape(model, eta=eta)
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed + 1_000_000)
    return {"eta": eta, "seed": seed, **evaluated(model, env, 1_000, PPO_STEPS, PPO_SCHEDULE)}


def plain(config: TrainingConfig) -> dict[str, Any]:
    """Train SB3's DQN with our settings, as `bsrs sweep` does."""
    assert isinstance(config, DQNConfig)
    model = sb3_model("dqn", config)
    env = sb3_env(config.env, n_envs=config.eval_episodes, seed=config.seed + 1_000_000)
    found = evaluated(model, env, config.eval_every, config.steps, config.steps)
    return {"env": config.env, "seed": config.seed, **found}


def evaluated(model: Any, env: Any, every: int, steps: int, schedule: int) -> dict[str, Any]:
    """Train for `steps` of a `schedule`: at each of `steps`, the return of an episode in each of the envs."""
    scores: dict[int, list[float]] = {}

    def evaluate(values: dict[str, Any], _: dict[str, Any]) -> bool:
        step = values["self"].num_timesteps
        if step >= every * (len(scores) + 1):
            scores[step] = evaluate_policy(model, env, env.num_envs, return_episode_rewards=True)[0]
        return bool(step < steps)

    model.learn(schedule, callback=evaluate)
    return {"steps": list(scores), "scores": list(scores.values())}


if __name__ == "__main__":
    main()
