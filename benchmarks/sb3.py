"""What the one line costs on top of Stable-Baselines3: the time added per gradient step, against two forward passes.

A plain and a shaped model of the same algorithm take turns in short blocks, so that both see the same machine; one
thread, processor time, so that other programs count little. The yardstick is a third model, with one bare
forward pass at s and one at s' of every sampled batch: the least that any shaping by V would need.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.timing import matrix_rate, operations
from bsrs.errors import optional

# Algorithm, env, gradient steps in a block: some 20 ms, and as many of TD3's steps with an actor update as without.
CASES = (("DQN", "CartPole-v1", 10), ("TD3", "Pendulum-v1", 2))


def bench(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each case: milliseconds per gradient step, and the ratio that should be at most 1."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from (_row(*case, blocks=3 if quick else 250) for case in CASES)
    finally:
        torch.set_num_threads(before)


def _row(name: str, env_id: str, steps: int, *, blocks: int) -> dict[str, Any]:
    algorithm = getattr(optional("stable_baselines3", "python -m benchmarks sb3", "sb3"), name)
    from bsrs.sb3 import shape

    plain, shaped, yardstick, auto = (_filled(algorithm, env_id) for _ in range(4))
    shape(shaped, eta=2.0)
    shape(auto, eta="auto")
    _add_two_forwards(yardstick)
    times = _time_in_turns([plain, shaped, yardstick, auto], steps, blocks)
    added, forwards = (_median_difference(times[0], other) for other in times[1:3])
    shaped_ms = statistics.median(times[1])
    per_step = operations(lambda: shaped.train(gradient_steps=steps, batch_size=shaped.batch_size)) / steps
    return {
        "SB3": f"{name} {env_id}",
        "plain ms": statistics.median(times[0]),
        "shaped ms": shaped_ms,
        "added ms": added,
        "two forwards ms": forwards,
        "added / two forwards": added / forwards,
        "share_of_matrix_rate": round(per_step / shaped_ms * 1e3 / matrix_rate(), 3),
        "auto / shaped": statistics.median(times[3]) / shaped_ms,
    }


def _median_difference(plain: list[float], other: list[float]) -> float:
    """Over the blocks: neighbours in time are compared."""
    return statistics.median(b - a for a, b in zip(plain, other, strict=True))


def _time_in_turns(models: list[Any], steps: int, blocks: int) -> list[list[float]]:
    """Milliseconds per gradient step, one number per model and block."""
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
