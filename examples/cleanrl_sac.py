"""SAC in one file, in the manner of CleanRL. The lines that shaping adds end in `# BSRS`.

python examples/cleanrl_sac.py --total-timesteps 10000 --eta 0.5
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
    policy_lr: float = 1e-3
    q_lr: float = 1e-3
    buffer_size: int = 100_000
    gamma: float = 0.99
    tau: float = 0.005
    batch_size: int = 128
    learning_starts: int = 500
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
        self.network = mlp(env.observation_space.shape[0], 2 * env.action_space.shape[0])
        self.scale = float(env.action_space.high[0])

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one sampled action per state and its log probability."""
        mean, log_std = self.network(obs).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        x = normal.rsample()
        y = torch.tanh(x)
        log_prob = normal.log_prob(x) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        return y * self.scale, log_prob.sum(1)


def main(args: Args) -> list[float]:
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(args.env_id))
    env.action_space.seed(args.seed)
    actor = Actor(env)
    qf1, qf2, qf1_target, qf2_target = (QNetwork(env) for _ in range(4))
    pairs = [(qf1, qf1_target), (qf2, qf2_target)]
    for net, target in pairs:
        target.load_state_dict(net.state_dict())
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=args.q_lr)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=args.policy_lr)
    target_entropy = -float(np.prod(env.action_space.shape))
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=args.q_lr)
    shaper = Shaper(Shaping(args.eta))  # BSRS: eta, and what it learns if it is "auto"

    obs_dim, action_dim = env.observation_space.shape[0], env.action_space.shape[0]
    observations, next_observations = torch.zeros(args.buffer_size, obs_dim), torch.zeros(args.buffer_size, obs_dim)
    actions = torch.zeros(args.buffer_size, action_dim)
    rewards, terminateds = torch.zeros(args.buffer_size), torch.zeros(args.buffer_size)
    probes = None  # BSRS: fixed observations, for "auto"
    returns: list[float] = []
    start = time.time()

    def value(obs: torch.Tensor) -> torch.Tensor:  # BSRS: V(s) = min_i Q_i(s, a) - alpha log pi(a | s), one sampled a
        a, log_prob = actor(obs)  # BSRS
        return torch.minimum(qf1(obs, a), qf2(obs, a)) - log_alpha.exp() * log_prob  # BSRS

    obs, _ = env.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        if step < args.learning_starts:
            action = env.action_space.sample()
        else:
            action = actor(torch.as_tensor(obs)[None])[0][0].detach().numpy()
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
                next_action, next_log_pi = actor(s_next)
                min_next_target = torch.minimum(qf1_target(s_next, next_action), qf2_target(s_next, next_action))
                soft_next_value = min_next_target - log_alpha.exp() * next_log_pi
                # With a constant eta, bsrs.shaped_reward(r, v, v_next, eta=, gamma=, terminated=) does the same.
                if shaper.is_active(step):  # BSRS: at eta = 0 no actions are drawn for V
                    v, v_next, end_value = value(s), value(s_next), soft_next_value  # BSRS
                    r = shaper(r, v, v_next, gamma=args.gamma, terminated=end, bootstrap=end_value, step=step)  # BSRS
                next_q_value = r + args.gamma * soft_next_value * (1 - end)
            qf_loss = F.mse_loss(qf1(s, a), next_q_value) + F.mse_loss(qf2(s, a), next_q_value)
            q_optimizer.zero_grad()
            qf_loss.backward()
            q_optimizer.step()

            pi, log_pi = actor(s)
            actor_loss = (log_alpha.exp().detach() * log_pi - torch.minimum(qf1(s, pi), qf2(s, pi))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            alpha_loss = -(log_alpha.exp() * (log_pi.detach() + target_entropy)).mean()
            alpha_optimizer.zero_grad()
            alpha_loss.backward()
            alpha_optimizer.step()
            for net, target in pairs:
                for parameter, target_parameter in zip(net.parameters(), target.parameters(), strict=True):
                    target_parameter.data.lerp_(parameter.data, args.tau)

            if shaper.scale.probes and step % round(1 / args.tau) == 0:  # BSRS: once per period of the target networks
                probes = observations[: shaper.scale.probes].clone() if probes is None else probes  # BSRS
                with torch.random.fork_rng():  # BSRS: the same actions each time, so that only V moves
                    torch.manual_seed(0)  # BSRS
                    shaper.look(value(probes).detach().numpy())  # BSRS: "auto" watches how far V moves

    env.close()
    print(f"{args.env_id}: mean return of the last 5 episodes {np.mean(returns[-5:]):.1f}")
    return returns


if __name__ == "__main__":
    main(tyro.cli(Args))
