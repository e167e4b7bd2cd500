"""Plain DQN of Stable-Baselines3 with the settings of rl-baselines3-zoo, beside which ours stands: python train.py
[FOLDER]. Repeat it to continue. Each run leaves one file, `zoo-cartpole-seed3.json`, with its evaluations.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from bsrs.config.agents import DQNConfig
from bsrs.config.algorithms import preset

ENVS = {"zoo-cartpole": "CartPole-v1", "zoo-mountaincar": "MountainCar-v0"}
SEEDS = range(6)
SAME_NAME = (
    "batch_size",
    "buffer_size",
    "exploration_final_eps",
    "exploration_fraction",
    "gamma",
    "gradient_steps",
    "learning_rate",
    "learning_starts",
    "target_update_interval",
    "train_freq",
)


def train(config: DQNConfig) -> dict[str, Any]:
    """One run's evaluations: at each of `steps`, the return of each greedy episode."""
    model = DQN(
        "MlpPolicy",
        make_vec_env(config.env, seed=config.seed),
        policy_kwargs={"net_arch": list(config.hidden)},
        seed=config.seed,
        device="cpu",
        **{name: getattr(config, name) for name in SAME_NAME},
    )
    env = make_vec_env(config.env, n_envs=config.eval_episodes, seed=config.seed + 1_000_000)
    scores: dict[int, list[float]] = {}

    def evaluate(values: dict[str, Any], _: dict[str, Any]) -> bool:
        step = values["self"].num_timesteps
        if step % config.eval_every == 0:
            scores[step] = evaluate_policy(model, env, config.eval_episodes, return_episode_rewards=True)[0]
        return True

    model.learn(config.steps, callback=evaluate)
    return {"env": config.env, "seed": config.seed, "steps": list(scores), "scores": list(scores.values())}


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    for name, env in ENVS.items():
        for seed in SEEDS:
            path = folder / f"{name}-seed{seed}.json"
            if not path.exists():
                found = train(preset("dqn", name, env=env, eta=0.0, seed=seed))
                path.with_suffix(".tmp").write_text(json.dumps(found))
                path.with_suffix(".tmp").rename(path)
                print(path, flush=True)


if __name__ == "__main__":
    main()
