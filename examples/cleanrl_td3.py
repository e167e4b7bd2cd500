"""TD3 in one file, in the manner of CleanRL. The lines that shaping adds end in `# BSRS`.

python examples/cleanrl_td3.py --total-timesteps 10000 --eta 0.5
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
    env_id: str = "Pendulum-v1"
    seed: int = 1
    total_timesteps: int = 10_000
    learning_rate: float = 1e-3
    buffer_size: int = 100_000
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 128
    policy_noise: float = 0.2
    exploration_noise: float = 0.1
    learning_starts: int = 500
    policy_frequency: int = 2
    noise_clip: float = 0.5
    eta: str = "0.5"  # BSRS: a number, auto, or a schedule such as linear:2:0:10000


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs))


class QNetwork(nn.Module):
    def __init__(self, env: gym.Env) -> None:
        super().__init__()
        self.network = mlp(env.observation_space.shape[0] + env.action_space.shape[0], 1)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([obs, action], dim=1)).squeeze(1)


class Actor(nn.Module):
    def __init__(self, env: gym.Env) -> None:
        super().__init__()
        self.network = mlp(env.observation_space.shape[0], env.action_space.shape[0])
        self.scale = float(env.action_space.high[0])

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.network(obs)) * self.scale


def main(args: Args) -> list[float]:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))
    env.action_space.seed(args.seed)
    actor, target_actor = Actor(env), Actor(env)
    qf1, qf2, qf1_target, qf2_target = (QNetwork(env) for _ in range(4))
    pairs = [(actor, target_actor), (qf1, qf1_target), (qf2, qf2_target)]
    for net, target in pairs:
        target.load_state_dict(net.state_dict())
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=args.learning_rate)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=args.learning_rate)
    shaper = Shaper(Shaping(args.eta))  # BSRS: eta, and what it learns if it is "auto"

    obs_dim, action_dim = env.observation_space.shape[0], env.action_space.shape[0]
    observations, next_observations = torch.zeros(args.buffer_size, obs_dim), torch.zeros(args.buffer_size, obs_dim)
    actions = torch.zeros(args.buffer_size, action_dim)
    rewards, terminateds = torch.zeros(args.buffer_size), torch.zeros(args.buffer_size)
    probes = None  # BSRS: fixed observations, for "auto"
    returns: list[float] = []
    start = time.time()

    def value(obs: torch.Tensor) -> torch.Tensor:  # BSRS
        return torch.minimum(qf1(obs, actor(obs)), qf2(obs, actor(obs)))  # BSRS: V(s) = min_i Q_i(s, pi(s))

    obs, _ = env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        if step < args.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                mean = actor(torch.as_tensor(obs)[None])[0]
                noisy = mean + torch.randn_like(mean) * actor.scale * args.exploration_noise
                action = noisy.clamp(-actor.scale, actor.scale).numpy()
        next_obs, reward, terminated, truncated, info = env.step(action)
        row = step % args.buffer_size
        observations[row], next_observations[row] = torch.as_tensor(obs), torch.as_tensor(next_obs)
        actions[row], rewards[row] = torch.as_tensor(action), float(reward)  # the env's own reward
        terminateds[row] = float(terminated)
        obs = next_obs
        if terminated or truncated:
            returns.append(float(info["episode"]["r"]))
            print(f"step {step}, return {returns[-1]:.0f}, {step / (time.time() - start):.0f} steps/s")
            obs, _ = env.reset()

        if step > args.learning_starts:
            rows = torch.randint(min(step + 1, args.buffer_size), (args.batch_size,))
            s, a, r, s_next, end = (x[rows] for x in (observations, actions, rewards, next_observations, terminateds))
            with torch.no_grad():
                noise = (torch.randn_like(a) * args.policy_noise).clamp(-args.noise_clip, args.noise_clip)
                next_action = (target_actor(s_next) + noise * actor.scale).clamp(-actor.scale, actor.scale)
                min_next_target = torch.minimum(qf1_target(s_next, next_action), qf2_target(s_next, next_action))
                # With a constant eta, bsrs.shaped_reward(r, v, v_next, eta=, gamma=, terminated=) does the same.
                v, v_next = value(s), value(s_next)  # BSRS
                r = shaper(r, v, v_next, gamma=args.gamma, terminated=end, bootstrap=min_next_target, step=step)  # BSRS
                next_q_value = r + args.gamma * min_next_target * (1 - end)
            qf_loss = F.mse_loss(qf1(s, a), next_q_value) + F.mse_loss(qf2(s, a), next_q_value)
            q_optimizer.zero_grad()
            qf_loss.backward()
            q_optimizer.step()

            if step % args.policy_frequency == 0:
                actor_loss = -qf1(s, actor(s)).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                for net, target in pairs:
                    for parameter, target_parameter in zip(net.parameters(), target.parameters(), strict=True):
                        target_parameter.data.lerp_(parameter.data, args.tau)

            if shaper.scale.probes and step % round(args.policy_frequency / args.tau) == 0:  # BSRS: once per period
                probes = observations[: shaper.scale.probes].clone() if probes is None else probes  # BSRS
                shaper.look(value(probes).detach().numpy())  # BSRS: "auto" watches how far V moves

    env.close()
    print(f"{args.env_id}: mean return of the last 5 episodes {np.mean(returns[-5:]):.1f}")
    return returns


if __name__ == "__main__":
    main(tyro.cli(Args))
