"""PPO of Stable-Baselines3 on CartPole with `bsrs.sb3.shape`: python train.py [FOLDER]. Repeat it to continue.

The settings are those of rl-baselines3-zoo. Each run leaves one file, `eta0.5-seed3.json`, with its evaluations.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import bsrs.sb3

ETAS = (0.0, 0.5, 1.0)
SEEDS = range(10)
# The zoo's schedules are for 100,000 steps; CartPole is learnt in the first 20,000, and the run ends there.
SCHEDULE, STEPS, EVAL_EVERY, EVAL_EPISODES, ENVS = 100_000, 20_000, 1_000, 8, 8


def train(eta: float, seed: int) -> dict[str, object]:
    """One run's evaluations: at each of `steps`, the return of each episode."""
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=seed),
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
    env = make_vec_env("CartPole-v1", n_envs=EVAL_EPISODES, seed=seed + 1_000_000)
    scores: dict[int, list[float]] = {}

    def evaluate(values: dict[str, Any], _: dict[str, Any]) -> bool:
        step = values["self"].num_timesteps
        if step >= EVAL_EVERY * (len(scores) + 1):
            scores[step] = evaluate_policy(model, env, EVAL_EPISODES, return_episode_rewards=True)[0]
        return bool(step < STEPS)

    model.learn(SCHEDULE, callback=evaluate)
    return {"eta": eta, "seed": seed, "steps": list(scores), "scores": list(scores.values())}


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for eta in ETAS:
            path = folder / f"eta{eta:g}-seed{seed}.json"
            if not path.exists():
                path.with_suffix(".tmp").write_text(json.dumps(train(eta, seed)))
                path.with_suffix(".tmp").rename(path)
                print(path, flush=True)


if __name__ == "__main__":
    main()
