"""DQN in one file, in the manner of CleanRL, self-shaped by one call: look for `shaped_reward`.

python examples/cleanrl_style_dqn.py --steps 20000 --eta 0.5
"""

from __future__ import annotations

import argparse
import itertools
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bsrs import shaped_reward


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--eta", type=float, default=0.5, help="shape-scale; 0 is plain DQN")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-starts", type=int, default=500)
    parser.add_argument("--train-every", type=int, default=2)
    parser.add_argument("--target-every", type=int, default=250)
    return parser.parse_args()


def main(args: argparse.Namespace) -> float:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = gym.make(args.env)

    def network() -> nn.Module:
        sizes = int(np.prod(env.observation_space.shape)), 64, 64, int(env.action_space.n)
        layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
        return nn.Sequential(*[part for layer in layers for part in layer][:-1])

    q_net, target_net = network(), network()
    target_net.load_state_dict(q_net.state_dict())
    optimizer = torch.optim.Adam(q_net.parameters(), lr=args.learning_rate)
    replay: list[tuple[np.ndarray, int, float, np.ndarray, bool]] = []
    returns, episode_return = [0.0], 0.0

    obs, _ = env.reset(seed=args.seed)
    for step in range(args.steps):
        epsilon = max(0.02, 1.0 - step / (0.2 * args.steps))
        if rng.random() < epsilon:
            action = int(rng.integers(env.action_space.n))
        else:
            action = int(q_net(torch.as_tensor(obs)[None]).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.append((obs, action, float(reward), next_obs, terminated))
        episode_return += float(reward)
        obs = next_obs
        if terminated or truncated:
            returns.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()

        if step >= args.learning_starts and step % args.train_every == 0:
            batch = [replay[i] for i in rng.integers(len(replay), size=args.batch_size)]
            s, a, r, s_next, end = (torch.as_tensor(np.array(part)) for part in zip(*batch, strict=True))
            r = r.float()
            with torch.no_grad():
                # The one line: V(s) = max_a Q(s, a), by the online network.
                value, next_value = q_net(s).amax(dim=1), q_net(s_next).amax(dim=1)
                r = shaped_reward(r, value, next_value, eta=args.eta, gamma=args.gamma, terminated=end)
                target = r + args.gamma * ~end * target_net(s_next).amax(dim=1)
            q = q_net(s).gather(1, a[:, None])[:, 0]
            loss = F.smooth_l1_loss(q, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % args.target_every == 0:
            target_net.load_state_dict(q_net.state_dict())

    score = float(np.mean(returns[-20:]))
    print(f"{args.env}: {step + 1} steps, eta {args.eta}, mean return of the last episodes {score:.1f}")
    return score


if __name__ == "__main__":
    main(parse_args())
