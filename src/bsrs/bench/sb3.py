"""What the one line costs on top of Stable-Baselines3: the time added per gradient step, against two forward passes.

A plain and a shaped model of the same algorithm take turns in short blocks, so that both see the same machine; one
thread, processor time, so that other programs do not count. The yardstick is a third model, plain but for one bare
forward pass at s and one at s' of every sampled batch: the least that any shaping by V would need.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from bsrs.errors import MissingExtra


@dataclass(frozen=True)
class Sb3Bench:
    """What `bsrs bench sb3` measures."""

    quick: bool = False
    """A few blocks only: a check that it runs, not a measurement."""
    json: bool = False
    """Print one JSON object instead of the table."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds per gradient step, medians over the blocks."""

    case: str
    plain_ms: float
    shaped_ms: float
    added_ms: float
    forwards_ms: float
    """One forward pass at s and one at s'."""
    ratio: float
    """added / forwards: at most 1 is the aim."""


CASES = {"DQN CartPole-v1": "CartPole-v1", "TD3 Pendulum-v1": "Pendulum-v1"}


def bench_sb3(config: Sb3Bench) -> None:
    """Measure and print."""
    costs = measure(config)
    if config.json:
        print(json.dumps({"costs": [asdict(cost) for cost in costs]}))
        return
    print(f"{'ms per gradient step':<22}{'plain':>9}{'shaped':>9}{'added':>9}{'V(s), V(s`)':>13}{'ratio':>8}")
    for cost in costs:
        columns = f"{cost.plain_ms:>9.3f}{cost.shaped_ms:>9.3f}{cost.added_ms:>9.3f}{cost.forwards_ms:>13.3f}"
        print(f"{cost.case:<22}{columns}{cost.ratio:>8.2f}")
    print("ratio: time added / time of one forward pass at s and one at s'; at most 1 is the aim")


def measure(config: Sb3Bench) -> list[Cost]:
    """The cost of shaping for each case."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_measure_case(case, env_id, config) for case, env_id in CASES.items()]
    finally:
        torch.set_num_threads(before)


def _measure_case(case: str, env_id: str, config: Sb3Bench) -> Cost:
    try:
        import stable_baselines3
    except ImportError:
        raise MissingExtra("bsrs bench sb3", "sb3") from None
    from bsrs.sb3 import shape

    algorithm = getattr(stable_baselines3, case.split()[0])
    plain, shaped, yardstick = (_filled(algorithm, env_id) for _ in range(3))
    shape(shaped, eta=2.0)
    _add_two_forwards(yardstick)
    times = _time_in_turns([plain, shaped, yardstick], quick=config.quick)
    plain_ms, shaped_ms, _ = (statistics.median(each) for each in times)
    added_ms, forwards_ms = (
        statistics.median(b - a for a, b in zip(times[0], other, strict=True)) for other in times[1:]
    )
    return Cost(case, plain_ms, shaped_ms, added_ms, forwards_ms, added_ms / forwards_ms)


def _time_in_turns(models: list[Any], quick: bool) -> list[list[float]]:
    """Milliseconds per gradient step, one number per model and block."""
    blocks, steps = (3, 5) if quick else (60, 10)
    times: list[list[float]] = [[] for _ in models]
    for block in range(blocks + 1):
        for model, measured in zip(models, times, strict=True):
            start = time.process_time()
            model.train(gradient_steps=steps, batch_size=model.batch_size)
            if block > 0:  # the first one warms up
                measured.append((time.process_time() - start) / steps * 1e3)
    return times


def _filled(algorithm: Any, env_id: str) -> Any:
    """A model with SB3's own defaults, and enough in its buffer to train on."""
    model = algorithm("MlpPolicy", env_id, buffer_size=2_000, learning_starts=1_000, seed=0, device="cpu")
    return model.learn(1_000)


def _add_two_forwards(model: Any) -> None:
    """Make a plain model evaluate its own networks at s and at s' of every batch, and nothing else."""
    import torch

    sample = model.replay_buffer.sample
    value = _greedy if vars(model).get("q_net") is not None else _at_policy

    def sample_and_evaluate(*args: Any, **kwargs: Any) -> Any:
        samples = sample(*args, **kwargs)
        with torch.no_grad():
            value(model, samples.observations)
            value(model, samples.next_observations)
        return samples

    model.replay_buffer.sample = sample_and_evaluate


def _greedy(model: Any, obs: Any) -> Any:
    return model.q_net(obs).amax(dim=1)


def _at_policy(model: Any, obs: Any) -> Any:
    import torch

    return torch.cat(model.critic(obs, model.actor(obs)), dim=1).amin(dim=1)
