"""eta that chooses itself in a deep agent: scales that watch how learning goes.

`eta="auto"` is the one that was chosen; docs/choosing-eta.md says how, and by which figures.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from bsrs.errors import BadInput, unknown
from bsrs.scales import Array, Memory, Returned, Seen, ShapeScale


@dataclass(frozen=True)
class Arrival(ShapeScale):
    """Shapes while values travel: eta falls as their running mean settles, and rises when it moves again.

    Travel is the difference of a fast and a slow running mean of (1+eta) V, in units of its spread over states.
    """

    depends_on_state = False
    update_every = 10

    most: float = 2.0
    full: float = 0.5
    """The travel at which eta is at its most."""

    def init(self) -> Memory:
        return {"eta": self.most, "fast": 0.0, "slow": 0.0}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return float(memory["eta"])

    def update(self, memory: Memory, seen: Seen) -> Memory:
        mean, spread = _unshaped(seen)
        if not math.isfinite(mean + spread):
            return {**memory, "eta": 0.0}
        fast = memory["fast"] + (mean - memory["fast"]) / 20
        slow = memory["slow"] + (mean - memory["slow"]) / 200
        goal = self.most * min(abs(fast - slow) / max(spread, 1e-6) / self.full, 1.0)
        return {"eta": memory["eta"] + (goal - memory["eta"]) / 20, "fast": fast, "slow": slow}


@dataclass(frozen=True)
class Sized(ShapeScale):
    """1+eta is the running size of the unshaped values, so that the network's own stay of order one."""

    depends_on_state = False
    update_every = 10
    mixes = True

    most: float = 10.0

    def init(self) -> Memory:
        return {"size": 0.0}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return min(max(float(memory["size"]) - 1.0, 0.0), self.most)

    def share(self, memory: Memory, step: int) -> float:
        return 0.0  # the split potential

    def update(self, memory: Memory, seen: Seen) -> Memory:
        mean, spread = _unshaped(seen)
        size = math.hypot(mean, spread)
        return {"size": memory["size"] + (size - memory["size"]) / 100} if math.isfinite(size) else {"size": 0.0}


@dataclass(frozen=True)
class PairedTest(ShapeScale):
    """eta is fixed; V(s') is the online network's as far as that predicts real returns better than the target network.

    Over recent episodes, t of the mean of (G - Vt)^2 - (G - V)^2: its share is zero without evidence, and `most` from
    t = `enough` on.
    """

    depends_on_state = False
    reviews_returns = True
    mixes = True

    eta: float = 1.0
    most: float = 1.5
    enough: float = 2.0
    pace: float = 0.2
    unshaped: bool = False
    """Whether G is compared with (1+eta) V."""

    def init(self) -> Memory:
        return {"share": 0.0, "exploded": False}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return 0.0 if memory["exploded"] else self.eta

    def share(self, memory: Memory, step: int) -> float:
        return float(memory["share"])

    def review(self, memory: Memory, returned: Returned) -> Memory:
        if memory["exploded"] or explodes(returned):
            return {"share": 0.0, "exploded": True}  # plain learning from here on
        t = evidence(returned, 1 + self.eta if self.unshaped else 1.0)
        goal = self.most * min(max(t / self.enough, 0.0), 1.0)
        return {"share": memory["share"] + self.pace * (goal - memory["share"]), "exploded": False}


@dataclass(frozen=True)
class Evidence(ShapeScale):
    """The same test for the whole of BSRS: eta follows the evidence, from zero to `most`."""

    depends_on_state = False
    reviews_returns = True

    most: float = 2.0
    enough: float = 2.0
    pace: float = 0.1

    def init(self) -> Memory:
        return {"eta": 0.0}

    def at(self, memory: Memory, step: int, state: Array = None) -> float:
        return float(memory["eta"])

    def review(self, memory: Memory, returned: Returned) -> Memory:
        if explodes(returned):
            return self.init()
        goal = self.most * min(max(evidence(returned, 1 + memory["eta"]) / self.enough, 0.0), 1.0)
        return {"eta": memory["eta"] + self.pace * (goal - memory["eta"])}


def auto(text: str) -> ShapeScale:
    """The scale that `auto:NAME:FIELD=NUMBER,...` names; `auto` alone is the one that was chosen."""
    name, _, rest = (text or DEFAULT).partition(":")
    if name not in AUTO:
        raise unknown("automatic eta", name, AUTO)
    fields = {field.name for field in dataclasses.fields(AUTO[name])}
    given: dict[str, float] = {}
    for pair in filter(None, rest.split(",")):
        key, _, number = pair.partition("=")
        if key not in fields:
            raise unknown(f"setting of auto:{name}", key, fields)
        try:
            given[key] = float(number)
        except ValueError:
            raise BadInput(f"eta 'auto:{text}' has {key} = {number!r}; expected a number") from None
    scale: ShapeScale = AUTO[name](**given)
    return scale


SLACK = 100.0


def explodes(returned: Returned) -> bool:
    """Whether values are not finite, or far beyond any return that was seen."""
    import numpy as np

    values = np.concatenate((returned.value, returned.target_value, returned.end_value))
    limit = SLACK * max(1.0, float(np.abs(returned.reward).max(initial=0.0)))
    return not bool((np.abs(values) <= limit).all())  # false for nan


def evidence(returned: Returned, factor: float = 1.0) -> float:
    """t over episodes of how much better the online network predicts the returns than the target network."""
    import numpy as np

    seen = returned.reward + returned.tail * factor * returned.end_value  # G
    value, target_value = factor * returned.value, factor * returned.target_value
    gain = (seen - target_value) ** 2 - (seen - value) ** 2
    counts = np.bincount(returned.episode)
    if len(counts) < 3:
        return 0.0
    each = np.bincount(returned.episode, gain) / counts
    spread = each.std(ddof=1)
    return float(each.mean() / spread * math.sqrt(len(each))) if spread > 0 else 0.0


def _unshaped(seen: Seen) -> tuple[float, float]:
    """Mean and standard deviation of (1+eta) V over the batch."""
    scale = 1 + seen.eta
    return scale * float(seen.value.mean()), abs(scale) * float(seen.value.std())


AUTO: dict[str, type[Any]] = {"arrival": Arrival, "scale": Sized, "paired": PairedTest, "evidence": Evidence}
DEFAULT = "paired"
