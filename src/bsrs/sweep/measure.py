"""What a sweep will cost, from a few measured seconds of the real thing, and how much memory its runs need."""

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bsrs.config.algorithms import find_algorithm
from bsrs.config.training import TrainingConfig
from bsrs.envs.defaults import spec_of
from bsrs.store.read import checkpoint_step
from bsrs.sweep.tasks import Task

# A process with PyTorch and everything else imported.
PROCESS_BYTES = 350e6
# All measurements of a dry run together, roughly; and the random steps before each.
MEASURED_S = 6.0
WARM_UP = 200


def core_seconds(tasks: Sequence[Task]) -> float:
    """Estimate what is left of the tasks, on one core. Tasks that look alike are measured once."""
    kinds: dict[Any, list[Task]] = {}
    for task in tasks:
        config = task.configs[0]
        if find_algorithm(config.algorithm).agent:  # exact tables take no time
            spec = spec_of(config.env)
            kinds.setdefault((config.algorithm, spec.kind, spec.obs_shape, len(task.configs)), []).append(task)
    seconds = 0.0
    for alike in kinds.values():
        steps = sum(task.configs[0].steps - checkpoint_step(task.folders[0]) for task in alike)
        seconds += steps * step_seconds(alike[0], MEASURED_S / len(kinds))
    return seconds


def step_seconds(task: Task, seconds: float) -> float:
    """Measure the seconds of one env step of a whole population, with its share of learning and evaluations."""
    import torch

    from bsrs.run import Records, make_agent
    from bsrs.train import Loop

    torch.set_num_threads(task.options.threads or torch.get_num_threads())
    configs = [_learning_soon(config) for config in task.configs]
    config = configs[0]
    loop = Loop(
        make_agent(configs, task.options.device, use_kernels=task.options.kernels == "auto"),
        config,
        [c.seed for c in configs],
        [Records() for _ in configs],
    )
    loop.start()
    random_play = _time_steps(loop, WARM_UP, math.inf)
    learning = _time_steps(loop, WARM_UP, seconds)
    lengths = [episode.length for member in loop.members for episode in member.episodes] or [loop.step]
    for member in loop.members:
        member.envs.close()
    eval_steps = config.eval_episodes * sum(lengths) / len(lengths)
    return learning + random_play * eval_steps / max(config.eval_every or config.steps, 1)


def _learning_soon(config: TrainingConfig) -> TrainingConfig:
    """Shorten the run's random start to what is timed: an evaluation step costs as much as a random one."""
    has_random_play = hasattr(config, "learning_starts")
    return dataclasses.replace(config, learning_starts=WARM_UP) if has_random_play else config  # type: ignore[call-arg]


def _time_steps(loop: Any, steps: int, seconds: float) -> float:
    """Time one env step, over at least `steps` of them and for up to `seconds`."""
    began, first = time.perf_counter(), loop.step
    while loop.step < first + steps or time.perf_counter() - began < seconds < math.inf:
        loop.advance()
    steps_done: int = loop.step - first
    return (time.perf_counter() - began) / steps_done


# --------------------------------------------------------------------------------------------------------------
# Memory


def replay_bytes(config: TrainingConfig) -> float:
    """Estimate the memory of one run's replay: it keeps stacked frames once, other observations twice."""
    size = getattr(config, "buffer_size", 0)
    if not size or find_algorithm(config.algorithm).agent is None:
        return 0.0
    spec = spec_of(config.env)
    obs = math.prod(spec.obs_shape) * (1 if spec.obs_dtype == "uint8" else 4)
    each = obs // spec.frame_stack if spec.frame_stack > 1 else 2 * obs
    return min(size, config.steps) * (each + 4 * max(math.prod(spec.action_shape), 1) + 8)


def machine_bytes() -> float:
    """Return the memory of this machine, or of the container that this process is in."""
    total = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # no such limit
        total = min(total, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total
