"""Confidence intervals: bootstrap-t over seeds, never narrower than Student's."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.stats.aggregates import Array, iqm, mean

NUMBERS_AT_ONCE = 20_000_000
# A draw of nearly equal runs has almost no spread, and its t no bound. Wider than this the interval gains no coverage.
WIDEST = 3.0


def three_digits(number: Array | float, sign: str = "") -> str:
    """Format a number with three significant digits, or as a whole number from 1,000 on."""
    return f"{number:{sign}.3g}" if abs(float(number)) < 999.5 else f"{number:{sign},.0f}"


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval; all three arrays have the shape of the statistic."""

    estimate: Array
    low: Array
    high: Array

    @property
    def known(self) -> bool:
        """Whether there is an interval. A single run, or runs that are all equal, have none."""
        return bool(np.isfinite([self.low, self.high]).all())

    def within(self, lowest: float, highest: float) -> "Interval":
        """Clip the interval, for example to the range of scores that were reached."""
        return Interval(self.estimate, np.clip(self.low, lowest, highest), np.clip(self.high, lowest, highest))

    def __str__(self) -> str:
        ends = f" [{three_digits(self.low)}, {three_digits(self.high)}]" if self.known else ""
        return three_digits(self.estimate) + ends


def bootstrap(
    statistic: Callable[..., Array], *samples: Array, seed: int, draws: int = 1_000, confidence: float = 0.95
) -> Interval:
    """Estimate `statistic(*samples)`; each sample is (..., runs, tasks), and row i of each belongs to the same seed.

    Whole seeds are resampled, with all their tasks and samples. The bootstrap-t divides the change in a draw by the
    draw's own jackknife standard error. It keeps its level with few runs, unlike percentiles, and with skewed scores,
    unlike Student's t. Each end is the farther one of bootstrap-t and Student's t.
    """
    from scipy.stats import t as student

    arrays = _checked(samples)
    runs = arrays[0].shape[-2]
    if not 0 < confidence < 1 or draws < 1:
        raise BadInput(f"confidence is {confidence} over {draws} draws; expected between 0 and 1 over at least 1")
    estimate = np.asarray(statistic(*arrays), dtype=np.float64)
    error = _standard_error(statistic, arrays) if runs > 1 else np.zeros_like(estimate)
    if not (error > 0).any():
        return Interval(estimate, np.full_like(estimate, -np.inf), np.full_like(estimate, np.inf))
    least = student.ppf(0.5 + confidence / 2, runs - 1)
    rng, drawn = stream(seed, "bootstrap"), []
    at_once = max(1, NUMBERS_AT_ONCE // sum(array.size for array in arrays))
    for start in range(0, draws, at_once):
        chosen = rng.integers(runs, size=(min(at_once, draws - start), runs))
        redrawn = [np.moveaxis(np.take(array, chosen, axis=-2), -3, 0) for array in arrays]  # the draws are axis 0
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (statistic(*redrawn) - estimate) / _standard_error(statistic, redrawn)
        drawn.append(np.nan_to_num(t, posinf=np.finfo(float).max / 4, neginf=-np.finfo(float).max / 4))
    below, above = np.quantile(np.concatenate(drawn), [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0)
    with np.errstate(invalid="ignore"):
        low, high = (estimate + sign * error * np.clip(ends, least, WIDEST * least) for sign, ends in
                     ((-1, above), (1, -below)))  # fmt: skip
    known = np.isfinite(estimate) & (error > 0)
    return Interval(estimate, np.where(known, low, -np.inf), np.where(known, high, np.inf))


def iqm_interval(scores: Array, *, seed: int, draws: int = 1_000) -> Interval:
    """Estimate the interquartile mean, with an interval that holds the mean's as well: with few runs, the quarters
    that it leaves out may be the ones that matter, as where one run in three fails."""
    middle, whole = (bootstrap(statistic, scores, seed=seed, draws=draws) for statistic in (iqm, mean))
    return Interval(middle.estimate, np.minimum(middle.low, whole.low), np.maximum(middle.high, whole.high))


def _standard_error(statistic: Callable[..., Array], arrays: list[Array]) -> Array:
    """Compute the jackknife's standard error, leaving out each seed in turn. Of a mean it is the usual one."""
    runs = arrays[0].shape[-2]
    if statistic is mean:  # the same, much faster
        each = np.moveaxis(arrays[0].mean(axis=-1), -1, 0)  # (runs, ...)
        error = each.std(axis=0, ddof=1) / np.sqrt(runs)
    else:
        each = np.stack([statistic(*(np.delete(array, i, axis=-2) for array in arrays)) for i in range(runs)])
        with np.errstate(invalid="ignore"):
            error = np.sqrt((runs - 1) * each.var(axis=0))
    return np.asarray(np.where(error > 1e-12 * np.abs(each).max(axis=0), error, 0.0))  # rounding is no spread


def _checked(samples: tuple[Array, ...]) -> list[Array]:
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    for array in arrays:
        if array.ndim < 2 or array.size == 0:
            raise BadInput(f"scores have shape {array.shape}; expected at least one run of at least one task")
        if not np.isfinite(array).all():
            raise BadInput("scores hold a number that is not finite; leave such runs out or give them a score")
    if len({array.shape[-2] for array in arrays}) > 1:
        raise BadInput(f"samples have shapes {[array.shape for array in arrays]}; expected the same seeds in each")
    return arrays
