"""Two etas of your own that learn: one counts visits of states, one watches the error of values. In this folder:

    bsrs train dqn --env CartPole-v1 --eta custom_eta:CountBased --out runs/counts
    bsrs train td3 --env Pendulum-v1 --eta "custom_eta:ErrorBased(most=2.0, gamma=0.98)" --out runs/error
    bsrs runs runs

Checkpoints hold what they remember, so a killed run resumes exactly. Run as a script it trains both in Python.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bsrs.scales import Memory, Seen, ShapeScale


@dataclass(frozen=True)
class CountBased(ShapeScale):
    """eta(s) = scale / sqrt(1 + n(s)): shape strongly where states are new, as the paper suggests.

    n(s) is how often states like s were in a batch. States are alike if they fall on the same side of `bits` random
    planes through zero (SimHash; Tang et al., 2017).
    """

    scale: float = 1.0
    bits: int = 10

    update_every = 1  # show it every batch

    def init(self) -> Memory:
        return {"counts": [0] * 2**self.bits}

    def at(self, memory: Memory, step: int, state: Any = None) -> np.ndarray:
        counts = np.asarray(memory["counts"])[self._cells(state)]
        return self.scale / np.sqrt(1.0 + counts)  # (B,)

    def update(self, memory: Memory, seen: Seen) -> Memory:
        new = np.bincount(self._cells(seen.obs), minlength=2**self.bits)
        return {"counts": np.asarray(memory["counts"]) + new}

    def _cells(self, state: Any) -> np.ndarray:
        """Number the cell of each state: (B, *obs) -> (B,)."""
        numbers = np.asarray(state.cpu() if hasattr(state, "cpu") else state).reshape(len(state), -1)
        sides = numbers @ _planes(numbers.shape[1], self.bits) > 0  # (B, bits)
        return sides @ (1 << np.arange(self.bits))


@cache
def _planes(n_numbers: int, bits: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_numbers, bits))


@dataclass(frozen=True)
class ErrorBased(ShapeScale):
    """eta = most * error / largest error so far: shape while values are wrong, stop when they fit.

    The error is the mean of |r + gamma V(s') - V(s)| over a batch, averaged over about `batches` of them.
    """

    most: float = 1.0
    gamma: float = 0.99
    batches: int = 100

    depends_on_state = False
    update_every = 1

    def init(self) -> Memory:
        return {"error": 0.0, "largest": 0.0}

    def at(self, memory: Memory, step: int, state: Any = None) -> float:
        return self.most * memory["error"] / memory["largest"] if memory["largest"] else self.most

    def update(self, memory: Memory, seen: Seen) -> Memory:
        bootstrap = self.gamma * seen.next_value * (seen.terminated == 0)
        now = float(abs(seen.reward + bootstrap - seen.value).mean())
        error = memory["error"] + (now - memory["error"]) / self.batches if memory["largest"] else now
        return {"error": error, "largest": max(error, memory["largest"])}

    def report(self, memory: Memory) -> dict[str, float]:
        return {"error": memory["error"]}  # a further column of the records


def main(steps: int) -> None:
    import bsrs

    small = {"steps": steps, "learning_starts": min(500, steps // 2), "eval_every": 0, "log_every": max(1, steps // 5)}
    for agent in (
        bsrs.DQN.of("CartPole-v1", eta="custom_eta:CountBased(scale=2.0)", **small),
        bsrs.TD3.of("Pendulum-v1", eta="custom_eta:ErrorBased(gamma=0.98)", hidden=[64, 64], **small),
    ):
        etas = [f"{line['eta']:.2f}" for line in agent.learn().records if "eta" in line]
        print(f"{agent.config.env}, eta {agent.config.eta}: {' -> '.join(etas)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    main(parser.parse_args().steps)
