"""RLlib on a two-node Ray cluster: shaped training survives the loss of an env runner, and its checkpoint continues.

Ray takes long to start, so that one cluster and one algorithm serve this file.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.rllib")

import ray
from ray.cluster_utils import Cluster
from ray.rllib.algorithms.dqn import DQNConfig

import bsrs.rllib

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray writes into it
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default: on a busy machine, workers would hardly start
        patch.setenv(
            "PYTHONPATH", os.pathsep.join([str(Path(bsrs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        )
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        made.add_node(num_cpus=4)
        ray.init(address=made.address, logging_level=logging.ERROR, log_to_driver=False)
        yield
        ray.shutdown()
        made.shutdown()


def make_config(**env_runners: Any) -> Any:
    config = DQNConfig().environment("CartPole-v1")
    config.env_runners(rollout_fragment_length=16, **env_runners)
    config.fault_tolerance(restart_failed_env_runners=True)
    config.training(
        lr=1e-3,
        train_batch_size_per_learner=32,
        training_intensity=8,
        num_steps_sampled_before_learning_starts=256,
        target_network_update_freq=256,
        epsilon=[(0, 1.0), (1000, 0.05)],
        replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 10_000},
    )
    config.reporting(min_sample_timesteps_per_iteration=640, min_time_s_per_iteration=0)
    return config.rl_module(model_config={"fcnet_hiddens": [64], "head_fcnet_hiddens": [64]})


def memories(algorithm: Any) -> list[Any]:
    """What eta has learned, in each learner."""
    states = algorithm.learner_group.foreach_learner(lambda learner: learner.get_state("bsrs")["bsrs"])
    return [state.get()["default_policy"]["scale"]["memory"] for state in states]


def check_returns_are_raw(result: Any) -> None:
    """CartPole's reward is 1 a step."""
    runners = result["env_runners"]
    assert runners["episode_return_mean"] == pytest.approx(runners["episode_len_mean"])


def test_a_cluster_that_loses_an_env_runner_learns_and_its_checkpoint_continues_on_one_machine(
    cluster: Any, tmp_path: Path
) -> None:
    config = make_config(num_env_runners=4).learners(num_learners=2)
    algorithm = bsrs.rllib.shape(config, eta="auto").build_algo()
    nodes = algorithm.env_runner_group.foreach_env_runner(
        lambda _: ray.get_runtime_context().get_node_id(), local_env_runner=False
    )
    assert len(nodes) == 4
    assert len(set(nodes)) == 2
    check_returns_are_raw(algorithm.train())

    ray.kill(algorithm.env_runner_group._worker_manager.actors()[2])
    etas = []
    for _ in range(10):
        result = algorithm.train()
        etas.append(result["learners"]["default_policy"]["shaping_eta"])
        if result["env_runners"]["episode_return_mean"] > 40:
            break
    check_returns_are_raw(result)
    assert 40 < result["env_runners"]["episode_return_mean"] <= 500  # a random policy scores 22
    assert algorithm.env_runner_group.num_healthy_remote_workers() >= 3  # the fourth is restarted, which takes a while
    assert 0 < max(etas) <= 1

    sampled = result["num_env_steps_sampled_lifetime"]
    first, second = memories(algorithm)
    assert first == second  # each learner has batches and probes of its own
    assert first["movement"]
    algorithm.save_to_path(tmp_path)
    algorithm.stop()

    again = bsrs.rllib.shape(make_config(num_env_runners=0), eta="auto").build_algo()
    again.restore_from_path(str(tmp_path))
    (restored,) = memories(again)
    assert restored["b"] == first["b"]
    result = again.train()
    check_returns_are_raw(result)
    assert result["num_env_steps_sampled_lifetime"] > sampled
    again.stop()
