"""`eta="auto"`: shape as long as values keep moving in the same direction.

V of the online network is recorded on fixed observations, once per period of the target network. Where two successive
movements m1 and m2 point the same way, values have further to go.

Let a period of the baseline shrink the distance that is left by a factor f: its values end at V = f V_target, with the
distance from the solution in place of V. With a share b of the online network in the bootstrap they end where
V = f ((1 - b) V_target + b V), and so m2 = f ((1 - b1) m1 + b2 m2) with the shares b1 and b2 of the two periods. Least
squares over the observations gives f = <m1 m2> / <m1 ((1 - b1) m1 + b2 m2)>, the slope, and b moves towards it. Noise,
whose movements turn back, gives <m1 m2> <= 0 and so b = 0.

The TD target is r / 2 + gamma ((1 - b) V_target(s') + b V(s')): the bootstrap of a shaped agent with eta = b / (1 - b),
without its advantage term, which made runs fail. Half the reward, for every b, keeps the scale of V while b moves.
"""

import math
from dataclasses import dataclass

import numpy as np

from bsrs.scales import Array, Memory, ShapeScale

ADVANTAGE = 1e-3
"""The advantage term a, kept tiny. At exactly 0 there would be no potential left to mix the networks with."""


@dataclass(frozen=True)
class Movement(ShapeScale):
    """Mix the bootstrap while values move in one direction, like an eta between 0 and 1, which is twice the speed."""

    depends_on_state = False
    mixes = True
    probes = 256

    most: float = 0.5
    """The largest b. Above 1/2 values diverge on some tasks."""
    reward: float = 0.5
    """What rewards are multiplied by."""
    periods: float = 10.0
    """Number of periods over which the slope is averaged."""
    pace: float = 0.5
    """Fraction of the way that b moves towards its goal in one period."""

    def init(self) -> Memory:
        return {"b": 0.0, "b before": 0.0, "product": 0.0, "square": 0.0, "value": [], "movement": []}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return ADVANTAGE / (1 - ADVANTAGE)

    def mix(self, memory: Memory, step: int) -> tuple[float, float]:
        return float(memory["b"] / ADVANTAGE), self.reward / (1 - ADVANTAGE)

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
        return {"eta": memory["b"] / (1 - memory["b"]), "slope": self.slope(memory)}
