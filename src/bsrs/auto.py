"""`eta="auto"`: shape as long as values keep moving in the same direction.

V of the online network is recorded on fixed observations, once per period of the target network. Where two successive
movements m1 and m2 point the same way, values have further to go.

Let a period of the baseline shrink the distance that is left by a factor f: its values end at V = f V_target, with the
distance from the solution in place of V. With a share b of the online network in the bootstrap they end where
V = f ((1 - b) V_target + b V), and so m2 = f ((1 - b1) m1 + b2 m2) with the shares b1 and b2 of the two periods. Least
squares over the observations gives f = <m1 m2> / <m1 ((1 - b1) m1 + b2 m2)>, the slope, and b moves towards it. Noise,
whose movements turn back, gives <m1 m2> <= 0 and so b = 0.

eta = b / (1 - b) has that share, and the reward is multiplied by 1 + eta, so that V keeps its scale while eta moves:
Q = (1 + eta) (r + gamma V') - eta V has max Q = V* for every eta. At b = 0 all of it is the baseline.
"""

import math
from dataclasses import dataclass

import numpy as np

from bsrs.scales import Array, Memory, ShapeScale


@dataclass(frozen=True)
class Movement(ShapeScale):
    """The rule of `eta="auto"`: eta follows the movement of values, from 0 (the baseline) to 1 (twice the speed)."""

    depends_on_state = False
    probes = 256

    most: float = 0.5
    """Largest share b of the online network. Above 1/2 values diverge on some tasks."""
    periods: float = 10.0
    """Number of periods over which the slope is averaged."""
    pace: float = 0.5
    """Fraction of the way that b moves towards its goal in one period."""

    def init(self) -> Memory:
        return {"b": 0.0, "b before": 0.0, "product": 0.0, "square": 0.0, "value": [], "movement": []}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return float(memory["b"] / (1 - memory["b"]))

    def reward_factor(self, memory: Memory, step: int) -> float:
        return 1 + self.at(memory, step)

    def look(self, memory: Memory, value: Array) -> Memory:
        if not np.isfinite(value).all():
            return self.init()
        if not memory["value"]:
            return {**memory, "value": value.tolist()}
        movement = value - np.array(memory["value"])
        memory = {**memory, **self._sums(memory, movement), "value": value.tolist(), "movement": movement.tolist()}
        goal, b = min(self.slope(memory), self.most), memory["b"]
        return {**memory, "b": b + self.pace * (goal - b), "b before": b}

    def _sums(self, memory: Memory, movement: Array) -> Memory:
        """Return the running sums of m1 m2 and of m1 ((1 - b1) m1 + b2 m2)."""
        if not memory["movement"]:
            return {}
        last, keep = np.array(memory["movement"]), 1 - 1 / self.periods
        product, square = float(last @ movement), float(last @ last)
        sums = {"product": product, "square": (1 - memory["b before"]) * square + memory["b"] * product}
        return {name: keep * memory[name] + new for name, new in sums.items()}

    def slope(self, memory: Memory) -> float:
        """Return the slope f. It is 0 before there are two movements, and if they point in opposite directions."""
        product, square = memory["product"], memory["square"]
        return product / square if product > 0 and square > 0 and math.isfinite(product / square) else 0.0

    def forget(self, memory: Memory) -> Memory:
        return {**memory, "value": [], "movement": []}

    def report(self, memory: Memory) -> dict[str, float]:
        return {"slope": self.slope(memory)}
