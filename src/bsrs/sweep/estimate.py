"""What a sweep will cost, roughly, before it is started."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bsrs.config.actor_critic import ActorCriticConfig
from bsrs.config.dqn import DQNConfig
from bsrs.config.training import TrainingConfig
from bsrs.envs.defaults import spec_of
from bsrs.store.names import folder_name
from bsrs.store.read import checkpoint_step

Learning = DQNConfig | ActorCriticConfig

# Measured on one core of a server of 2024: seconds of an env step, and of a gradient step at the preset's batch.
# (algorithm, kind of env) -> (step, gradient step). Other machines differ by a factor of two or three.
SECONDS: dict[tuple[str, str], tuple[float, float]] = {
    ("dqn", "gym"): (1.0e-4, 1.0e-3),
    ("dqn", "minatar"): (2.0e-4, 3.0e-3),
    ("dqn", "atari"): (9.0e-4, 2.2e-2),
    ("td3", "gym"): (1.5e-4, 1.0e-2),
    ("sac", "gym"): (1.5e-4, 1.2e-2),
}
TABLE_SECONDS = 0.05
# A process with PyTorch and everything else imported.
PROCESS_BYTES = 350e6
# Steps of a usual episode, which evaluations play.
EPISODE_STEPS = {"gym": 300, "minatar": 300, "atari": 2_000}


@dataclass(frozen=True)
class Estimate:
    """What is left to do will take this."""

    runs: int
    core_seconds: float
    worker_bytes: float
    """Memory of the largest worker."""


def estimate(configs: Sequence[TrainingConfig], root: Path, members: int = 1) -> Estimate:
    """For the runs in `configs`, which have not ended; those begun go on from their checkpoints."""
    seconds = math.fsum(
        run_seconds(config) * (1 - checkpoint_step(root / folder_name(config)) / config.steps) for config in configs
    )
    return Estimate(len(configs), seconds, PROCESS_BYTES + members * max(map(replay_bytes, configs), default=0.0))


def run_seconds(config: TrainingConfig) -> float:
    """Seconds of one run on one core."""
    if not isinstance(config, Learning):
        return TABLE_SECONDS
    kind = spec_of(config.env).kind
    step, gradient_step = SECONDS[config.algorithm, kind]
    evaluations = config.steps // config.eval_every if config.eval_every else 1
    steps = config.steps + evaluations * config.eval_episodes * EPISODE_STEPS[kind]
    return steps * step + gradient_steps(config) * gradient_step


def gradient_steps(config: Learning) -> float:
    """Gradient steps of one run."""
    learning = max(config.steps - config.learning_starts, 0)
    return learning * config.gradient_steps / config.train_freq if config.gradient_steps > 0 else learning


def replay_bytes(config: TrainingConfig) -> float:
    """Memory of one run's replay: stacked frames are kept once, of other observations this one and the next."""
    if not isinstance(config, Learning):
        return 0.0
    spec = spec_of(config.env)
    size = math.prod(spec.obs_shape) * (1 if spec.obs_dtype == "uint8" else 4)
    each = size // spec.frame_stack if spec.frame_stack > 1 else 2 * size
    return min(config.buffer_size, config.steps) * (each + 4 * max(math.prod(spec.action_shape), 1) + 8)
