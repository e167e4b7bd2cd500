"""What the one line costs on RLlib: the time of a Learner's update, plain and shaped, on batches of its replay buffer.

The Learners take turns, so that all see the same machine; one thread, processor time, so that other programs do not
count. Env runners and the network between machines are left out: shaping does not touch them.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from bsrs.errors import optional

CASES = (("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1"))
CONTESTANTS: dict[str, Any] = {"plain": None, "shaped": 0.5, "auto": "auto"}


def bench(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each case: milliseconds per update, and how many times the plain one's the shaped ones take."""
    optional("ray.rllib", "python -m benchmarks rllib", "rllib")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from (_row(*case, updates=3 if quick else 200) for case in CASES)
    finally:
        torch.set_num_threads(before)


def _row(name: str, env_id: str, *, updates: int) -> dict[str, Any]:
    import gymnasium as gym
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    import bsrs.rllib

    config = _config(name, env_id)
    runner = SingleAgentEnvRunner(config=config)
    episodes = runner.sample(num_timesteps=1_000, random_actions=True)
    learners = {}
    for contestant, eta in CONTESTANTS.items():
        config = _config(name, env_id)
        config = config if eta is None else bsrs.rllib.shape(config, eta=eta)
        learners[contestant] = config.build_learner(env=gym.make(env_id))
    times = _time_in_turns(learners, _batches(config, episodes, updates + 1))
    medians = {contestant: statistics.median(measured) for contestant, measured in times.items()}
    return {
        "RLlib": f"{name} {env_id}",
        "plain ms": medians["plain"],
        "shaped ms": medians["shaped"],
        "shaped / plain": _median_ratio(times["shaped"], times["plain"]),
        "auto / plain": _median_ratio(times["auto"], times["plain"]),
    }


def _config(name: str, env_id: str) -> Any:
    """RLlib's own defaults."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.sac import SACConfig

    config = {"DQN": DQNConfig, "SAC": SACConfig}[name]().environment(env_id)
    return config.env_runners(num_env_runners=0, explore=True).training(train_batch_size_per_learner=256)


def _batches(config: Any, episodes: list[Any], count: int) -> Iterator[Any]:
    from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

    buffer = PrioritizedEpisodeReplayBuffer(capacity=10_000)
    buffer.add(episodes)
    for _ in range(count):
        yield buffer.sample(
            num_items=config.total_train_batch_size, n_step=1, gamma=config.gamma, beta=0.4, sample_episodes=True
        )


def _time_in_turns(learners: dict[str, Any], batches: Iterator[Any]) -> dict[str, list[float]]:
    """Milliseconds per update, one number for each Learner and batch."""
    times: dict[str, list[float]] = {name: [] for name in learners}
    for turn, episodes in enumerate(batches):
        for name, learner in learners.items():
            start = time.process_time()
            learner.update(episodes=episodes, timesteps={"num_env_steps_sampled_lifetime": 1_000 + turn})
            if turn > 0:  # the first one warms up
                times[name].append((time.process_time() - start) * 1e3)
    return times


def _median_ratio(times: list[float], plain: list[float]) -> float:
    """Over the batches: neighbours in time are compared."""
    return statistics.median(a / b for a, b in zip(times, plain, strict=True))
