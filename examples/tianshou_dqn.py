"""Tianshou's DQN, self-shaped: the shaping is added to the one-step returns that the algorithm computes.

python examples/tianshou_dqn.py --steps 10000 --eta 0.5
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from bsrs import shaped_reward


class ShapedDQN(DQN):
    """DQN whose one-step returns `r + gamma * Q'` are shaped as its rewards would be: the line is additive."""

    eta = 0.0

    def _preprocess_batch(self, batch: Any, buffer: ReplayBuffer, indices: np.ndarray) -> Any:
        batch = super()._preprocess_batch(batch, buffer, indices)
        returns = batch.returns.flatten()
        with torch.no_grad():
            value = self.policy(batch).logits.amax(dim=1)
            next_value = self.policy(Batch(obs=batch.obs_next, info=batch.info)).logits.amax(dim=1)
        terminated = torch.as_tensor(batch.terminated)
        shaped = shaped_reward(returns, value, next_value, eta=self.eta, gamma=self.gamma, terminated=terminated)
        batch.returns = shaped.reshape(batch.returns.shape)
        return batch


def main(steps: int, eta: float, seed: int = 0) -> float:
    np.random.seed(seed)  # noqa: NPY002 (what Tianshou draws from)
    torch.manual_seed(seed)
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1")])
    envs.seed(seed)
    network = Net(state_shape=4, action_shape=2, hidden_sizes=[64, 64])
    policy = DiscreteQLearningPolicy(model=network, action_space=gym.make("CartPole-v1").action_space, eps_training=0.1)
    algorithm = ShapedDQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=100)
    algorithm.eta = eta
    training = Collector(algorithm, envs, VectorReplayBuffer(steps, buffer_num=1), exploration_noise=True)
    testing = Collector(algorithm, DummyVectorEnv([lambda: gym.make("CartPole-v1")]))
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training,
            test_collector=testing,
            max_epochs=1,
            epoch_num_steps=steps,
            collection_step_num_env_steps=10,
            update_step_num_gradient_steps_per_sample=0.5,
            batch_size=64,
            test_step_num_episodes=5,
            verbose=False,
            show_progress=False,
        )
    )
    print(f"CartPole-v1: {steps} steps, eta {eta}, mean return of the test episodes {result.best_reward:.1f}")
    return float(result.best_reward)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--eta", type=float, default=0.5)
    args = parser.parse_args()
    main(args.steps, args.eta)
