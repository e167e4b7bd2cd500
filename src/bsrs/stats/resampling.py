"""How sure an estimate is: the stratified bootstrap, which draws runs anew within each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.stats.aggregates import Array

NUMBERS_AT_ONCE = 20_000_000


@dataclass(frozen=True)
class Interval:
    """An estimate and where the truth is thought to lie. Of the shape that the statistic gives."""

    estimate: Array
    low: Array
    high: Array

    @property
    def known(self) -> bool:
        """Whether there were runs enough: from a single one it has no bounds."""
        return bool(np.isfinite([self.low, self.high]).all())

    def __str__(self) -> str:
        return f"{self.estimate:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    statistic: Callable[..., Array],
    *samples: Array,
    seed: int,
    draws: int = 2_000,
    confidence: float = 0.95,
    paired: bool = False,
) -> Interval:
    """Percentile interval of `statistic(*samples)`; each sample is (..., runs, tasks).

    Samples are drawn independently, or, if `paired`, the same runs of each (runs that share their seeds).
    A statistic that resampling shifts may leave its own interval, which is then widened to hold it. A single run
    per task tells nothing about its spread: the interval is then infinite, not empty.
    """
    arrays = [_checked(sample) for sample in samples]
    if paired and len({array.shape[-2:] for array in arrays}) > 1:
        raise BadInput(f"paired samples have shapes {[a.shape for a in arrays]}; expected the same runs and tasks")
    if not 0 < confidence < 1 or draws < 1:
        raise BadInput(f"confidence is {confidence} over {draws} draws; expected between 0 and 1 over at least 1")
    estimate = np.asarray(statistic(*arrays))
    if min(array.shape[-2] for array in arrays) < 2:
        return Interval(estimate, np.full_like(estimate, -np.inf), np.full_like(estimate, np.inf))
    drawn = np.concatenate([statistic(*redrawn) for redrawn in _redraw(arrays, seed, draws, paired)])
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return Interval(estimate, np.minimum(low, estimate), np.maximum(high, estimate))


def _redraw(arrays: list[Array], seed: int, draws: int, paired: bool) -> Iterator[list[Array]]:
    """The samples drawn anew, with the draws as a new first axis, as many at once as fit into memory."""
    rng = stream(seed, "bootstrap")
    at_once = max(1, NUMBERS_AT_ONCE // sum(array.size for array in arrays))
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        chosen = [_choose(rng, array, count) for array in (arrays[:1] if paired else arrays)]
        chosen *= len(arrays) if paired else 1
        yield [
            np.take_along_axis(array[None], runs.reshape(count, *[1] * (array.ndim - 2), *array.shape[-2:]), axis=-2)
            for array, runs in zip(arrays, chosen, strict=True)
        ]


def _choose(rng: np.random.Generator, array: Array, count: int) -> Array:
    runs, tasks = array.shape[-2:]
    return rng.integers(runs, size=(count, runs, tasks))


def _checked(sample: Array) -> Array:
    array = np.asarray(sample, dtype=np.float64)
    if array.ndim < 2 or array.size == 0:
        raise BadInput(f"scores have shape {array.shape}; expected at least one run of at least one task")
    if not np.isfinite(array).all():
        raise BadInput("scores hold a number that is not finite; leave such runs out or give them a score")
    return array
