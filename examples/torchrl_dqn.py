"""TorchRL's DQN, self-shaped: the sampled reward is replaced before the loss sees it.

python examples/torchrl_dqn.py --steps 10000 --eta 0.5
"""

from __future__ import annotations

import argparse

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymEnv, InitTracker, StepCounter
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate

from bsrs import shaped_reward


def shape(batch: TensorDict, actor: QValueActor, eta: float, gamma: float) -> None:
    """Replace the batch's rewards, by V(s) = max_a Q(s, a) of the online network."""
    with torch.no_grad():
        value = actor(batch.select("observation"))["chosen_action_value"]
        next_value = actor(batch["next"].select("observation"))["chosen_action_value"]
    reward, terminated = batch["next", "reward"], batch["next", "terminated"]
    batch["next", "reward"] = shaped_reward(reward, value, next_value, eta=eta, gamma=gamma, terminated=terminated)


def main(steps: int, eta: float, gamma: float = 0.99, seed: int = 0) -> float:
    torch.manual_seed(seed)
    env = GymEnv("CartPole-v1", categorical_action_encoding=True).append_transform(InitTracker())
    env = env.append_transform(StepCounter())
    env.set_seed(seed)
    network = MLP(in_features=4, out_features=2, num_cells=[64, 64])
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec)
    explore = EGreedyModule(spec=env.action_spec, annealing_num_steps=steps // 2, eps_end=0.05)
    policy = TensorDictSequential(actor, explore)
    collector = Collector(env, policy, frames_per_batch=50, total_frames=steps, init_random_frames=200)
    replay = ReplayBuffer(storage=LazyTensorStorage(steps), batch_size=64)
    loss_module = DQNLoss(actor, action_space=env.action_spec, delay_value=True)
    loss_module.make_value_estimator(gamma=gamma)
    target = HardUpdate(loss_module, value_network_update_interval=100)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
    lengths = [0]
    for data in collector:
        replay.extend(data)
        explore.step(data.numel())
        lengths += data["next", "step_count"][data["next", "done"]].tolist()
        for _ in range(20):
            batch = replay.sample()
            shape(batch, actor, eta, gamma)  # the one line
            loss = loss_module(batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.step()
    collector.shutdown()
    score = sum(lengths[-20:]) / len(lengths[-20:])
    print(f"CartPole-v1: {steps} steps, eta {eta}, mean return of the last episodes {score:.1f}")
    return score


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--eta", type=float, default=0.5)
    args = parser.parse_args()
    main(args.steps, args.eta)
