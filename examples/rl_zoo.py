"""rl-baselines3-zoo with its own tuned hyperparameters, self-shaped: nothing of the zoo is changed.

The zoo lets a callback be named among the hyperparameters, and `bsrs.sb3.ShapeCallback` shapes the model when its
training starts. So this file only spells out a command line (see rl_zoo.md):

    python examples/rl_zoo.py --steps 50000 --eta 0.5 --log-folder logs
"""

from __future__ import annotations

import argparse
import sys

from rl_zoo3.train import train


def main(steps: int, eta: float, log_folder: str) -> None:
    shaping = f"callback:{{'bsrs.sb3.ShapeCallback': {{'eta': {eta}}}}}"
    options = ["--algo", "dqn", "--env", "CartPole-v1", "--n-timesteps", str(steps), "--log-folder", log_folder]
    sys.argv = ["rl_zoo3.train", *options, "--eval-freq", "-1", "--seed", "1", "--hyperparams", shaping]
    train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--eta", type=float, default=0.5)
    parser.add_argument("--log-folder", default="logs")
    args = parser.parse_args()
    main(args.steps, args.eta, args.log_folder)
