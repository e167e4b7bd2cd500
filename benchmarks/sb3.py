"""What the one line costs on top of Stable-Baselines3: the time added per gradient step, against two forward passes.

A plain and a shaped model of the same algorithm take turns in short blocks, so that both see the same machine; one
thread, processor time, so that other programs count little. The yardstick is a third model, with one bare
forward pass at s and one at s' of every sampled batch: the least that any shaping by V would need.
"""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.timing import in_turns, matrix_rate, operations, torch_threads
from bsrs.errors import optional

# Algorithm, env, gradient steps in a block: some 20 ms, and as many of TD3's steps with an actor update as without.
CASES = (("DQN", "CartPole-v1", 10), ("TD3", "Pendulum-v1", 2))


def bench(quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each case: milliseconds per gradient step, and the ratio that should be at most 1."""
    with torch_threads(1):
        yield from (_row(*case, blocks=3 if quick else 250) for case in CASES)


def _row(name: str, env_id: str, steps: int, *, blocks: int) -> dict[str, Any]:
    algorithm = getattr(optional("stable_baselines3", "python -m benchmarks sb3", "sb3"), name)
    from bsrs.sb3 import shape

    models = {contestant: _filled(algorithm, env_id) for contestant in ("plain", "shaped", "forwards", "auto")}
    shape(models["shaped"], eta=2.0)
    shape(models["auto"], eta="auto")
    _add_two_forwards(models["forwards"])

    def train(model: Any, _turn: int = 0) -> None:
        model.train(gradient_steps=steps, batch_size=model.batch_size)

    blocks_ms = in_turns({name: partial(train, model) for name, model in models.items()}, blocks)
    times = {contestant: [each / steps for each in own] for contestant, own in blocks_ms.items()}
    added, forwards = (_median_difference(times["plain"], times[other]) for other in ("shaped", "forwards"))
    shaped_ms = statistics.median(times["shaped"])
    per_step = operations(lambda: train(models["shaped"])) / steps
    return {
        "SB3": f"{name} {env_id}",
        "plain ms": statistics.median(times["plain"]),
        "shaped ms": shaped_ms,
        "added ms": added,
        "two forwards ms": forwards,
        "added / two forwards": added / forwards,
        "share_of_matrix_rate": round(per_step / shaped_ms * 1e3 / matrix_rate(), 3),
        "auto / shaped": statistics.median(times["auto"]) / shaped_ms,
    }


def _median_difference(plain: Sequence[float], other: Sequence[float]) -> float:
    """Over the blocks: neighbours in time are compared."""
    return statistics.median(b - a for a, b in zip(plain, other, strict=True))


def _filled(algorithm: Any, env_id: str) -> Any:
    """A model with SB3's own defaults, and enough in its buffer to train on."""
    model = algorithm("MlpPolicy", env_id, buffer_size=2_000, learning_starts=1_000, seed=0, device="cpu")
    return model.learn(1_000)


def _add_two_forwards(model: Any) -> None:
    """Make a plain model evaluate its own networks at s and at s' of every batch, and nothing else."""
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
    return torch.cat(model.critic(obs, model.actor(obs)), dim=1).amin(dim=1)
