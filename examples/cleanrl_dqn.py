"""DQN in one file, in the manner of CleanRL. The lines that shaping adds end in `# BSRS`.

python examples/cleanrl_dqn.py --total-timesteps 20000 --eta 0.5
"""

import random
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import nn

from bsrs.shaping import Shaper, Shaping  # BSRS


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    seed: int = 1
    total_timesteps: int = 20_000
    learning_rate: float = 1e-3
    buffer_size: int = 10_000
    gamma: float = 0.99
    target_network_frequency: int = 250
    batch_size: int = 64
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.2
    learning_starts: int = 500
    train_frequency: int = 2
    eta: str = "0.5"  # BSRS: a number, auto, or a schedule such as linear:2:0:10000


class QNetwork(nn.Module):
    def __init__(self, env: gym.Env) -> None:
        super().__init__()
        inputs, outputs = int(np.prod(env.observation_space.shape)), int(env.action_space.n)
        self.network = nn.Sequential(
            nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, outputs)
        )

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.network(obs)


def main(args: Args) -> list[float]:
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002 (as CleanRL does)
    torch.manual_seed(args.seed)
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))
    env.action_space.seed(args.seed)
    q_network, target_network = QNetwork(env), QNetwork(env)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    shaper = Shaper(Shaping(args.eta))  # BSRS: eta, and what it learns if it is "auto"

    obs_shape = env.observation_space.shape
    observations = torch.zeros(args.buffer_size, *obs_shape)
    next_observations = torch.zeros(args.buffer_size, *obs_shape)
    actions = torch.zeros(args.buffer_size, 1, dtype=torch.long)
    rewards, terminateds = torch.zeros(args.buffer_size), torch.zeros(args.buffer_size)
    probes = None  # BSRS: fixed observations, for "auto"
    returns: list[float] = []
    start = time.time()

    obs, _ = env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        epsilon = max(args.end_e, args.start_e - step / (args.exploration_fraction * args.total_timesteps))
        if random.random() < epsilon:
            action = env.action_space.sample()
        else:
            action = int(q_network(torch.as_tensor(obs)[None]).argmax())
        next_obs, reward, terminated, truncated, info = env.step(action)
        row = step % args.buffer_size
        observations[row], next_observations[row] = torch.as_tensor(obs), torch.as_tensor(next_obs)
        actions[row], rewards[row], terminateds[row] = action, float(reward), float(terminated)  # the env's own reward
        obs = next_obs
        if terminated or truncated:
            returns.append(float(info["episode"]["r"]))
            obs, _ = env.reset()
            if len(returns) % 50 == 0:
                print(f"step {step}, return {returns[-1]:.0f}, {step / (time.time() - start):.0f} steps/s")

        if step > args.learning_starts and step % args.train_frequency == 0:
            rows = torch.randint(min(step + 1, args.buffer_size), (args.batch_size,))
            s, a, r, s_next, end = (x[rows] for x in (observations, actions, rewards, next_observations, terminateds))
            with torch.no_grad():
                target_max = target_network(s_next).amax(dim=1)
                # With a constant eta, bsrs.shaped_reward(r, v, v_next, eta=, gamma=, terminated=) does the same.
                v, v_next = q_network(s).amax(dim=1), q_network(s_next).amax(dim=1)  # BSRS: V(s) = max_a Q(s, a)
                r = shaper(r, v, v_next, gamma=args.gamma, terminated=end, bootstrap=target_max, step=step)  # BSRS
                td_target = r + args.gamma * target_max * (1 - end)
            loss = F.mse_loss(q_network(s).gather(1, a).squeeze(1), td_target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        if step % args.target_network_frequency == 0:
            if shaper.scale.probes and step > args.learning_starts:  # BSRS: "auto" watches how far V moves per period
                probes = observations[: shaper.scale.probes].clone() if probes is None else probes  # BSRS
                shaper.look(q_network(probes).amax(dim=1).detach().numpy())  # BSRS
            target_network.load_state_dict(q_network.state_dict())

    env.close()
    print(f"{args.env_id}: mean return of the last 20 episodes {np.mean(returns[-20:]):.1f}")
    return returns


if __name__ == "__main__":
    main(tyro.cli(Args))
