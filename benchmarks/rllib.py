"""What the one line costs on RLlib: the time of a Learner's update, plain and shaped, on batches of its replay buffer.

The Learners take turns, so that all see the same machine; one thread, processor time, so that other programs do not
count. Env runners and the network between machines are left out: shaping does not touch them.
"""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.timing import in_turns, median_ratio, torch_threads
from bsrs.errors import optional

CASES = (("DQN", "CartPole-v1"), ("SAC", "Pendulum-v1"))
CONTESTANTS: dict[str, Any] = {"plain": None, "shaped": 0.5, "auto": "auto"}


def bench(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each case: milliseconds per update, and how many times the plain one's the shaped ones take."""
    optional("ray.rllib", "python -m benchmarks rllib", "rllib")
    with torch_threads(1):
        yield from (_row(*case, updates=3 if quick else 200) for case in CASES)


def _row(name: str, env_id: str, *, updates: int) -> dict[str, Any]:
    import gymnasium as gym

    import bsrs.rllib

    batches = _batches(_config(name, env_id), updates + 1)

    def updating(eta: Any) -> Callable[[int], None]:
        config = _config(name, env_id)
        config = config if eta is None else bsrs.rllib.shape(config, eta=eta)
        learner = config.build_learner(env=gym.make(env_id))
        return lambda turn: learner.update(
            episodes=batches[turn], timesteps={"num_env_steps_sampled_lifetime": 1_000 + turn}
        )

    times = in_turns({contestant: updating(eta) for contestant, eta in CONTESTANTS.items()}, updates)
    return {
        "RLlib": f"{name} {env_id}",
        "plain ms": statistics.median(times["plain"]),
        "shaped ms": statistics.median(times["shaped"]),
        "shaped / plain": median_ratio(times["shaped"], times["plain"]),
        "auto / plain": median_ratio(times["auto"], times["plain"]),
    }


def _config(name: str, env_id: str) -> Any:
    """RLlib's own defaults."""
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.sac import SACConfig

    config = {"DQN": DQNConfig, "SAC": SACConfig}[name]().environment(env_id)
    return config.env_runners(num_env_runners=0, explore=True).training(train_batch_size_per_learner=256)


def _batches(config: Any, count: int) -> list[Any]:
    """Samples of RLlib's replay buffer after a thousand random steps."""
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

    buffer = PrioritizedEpisodeReplayBuffer(capacity=10_000)
    buffer.add(SingleAgentEnvRunner(config=config).sample(num_timesteps=1_000, random_actions=True))
    how = {"n_step": 1, "gamma": config.gamma, "beta": 0.4, "sample_episodes": True}
    return [buffer.sample(num_items=config.total_train_batch_size, **how) for _ in range(count)]
