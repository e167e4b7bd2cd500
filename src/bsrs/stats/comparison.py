"""Compare settings on the same seeds: pairs, the best of several, and several tasks together.

    paired_difference(a, b) -> Comparison     a is better than b; scores of seed i: a[i], b[i]
    within(a, b, low=-margin) -> Comparison   a is not worse than b (by more than the margin)
    best_of(scores, baseline) -> BestOf       the best of several settings; scores: (settings, seeds)
    pooled(differences) -> Pooled             several tasks; differences: (settings, seeds, tasks)

A verdict says: `holds`, the test supports the claim; `does not hold`, the test supports the opposite; `inconclusive`,
neither. It rests on a sign-flip test at 5%, on the interval, and on at least six seeds: with five, the smallest
two-sided p is 1/16. The test is about the typical gain: a failure too rare to occur among the seeds stays unseen, so
failures are counted next to every gain (`references.failure_bound`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf
from typing import Literal

import numpy as np

from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.stats.aggregates import Array, mean
from bsrs.stats.resampling import Interval, bootstrap, three_digits

Verdict = Literal["holds", "does not hold", "inconclusive"]

LEVEL = 0.05
FEWEST_SEEDS = 6
POWER = 0.8
MOST_SUMS = 2**20  # as many sums of flipped differences are enumerated; beyond, flips are drawn
DRAWN = 100_000


@dataclass(frozen=True)
class Comparison:
    """A difference between two settings with its interval, p value and verdict."""

    mean: float
    low: float
    high: float
    p: float
    """p value of the test behind the verdict."""
    n: int
    """Number of seeds, or of tasks."""
    verdict: Verdict
    ahead: int = 0
    """Number of seeds or tasks on which the first setting is better."""
    exact: bool = True
    """Whether p uses all sign flips rather than 100,000 random ones."""

    def __str__(self) -> str:
        known = np.isfinite([self.low, self.high]).all()
        interval = f" [{three_digits(self.low, '+')}, {three_digits(self.high, '+')}]" if known else ""
        return three_digits(self.mean, "+") + interval

    @property
    def p_text(self) -> str:
        return f"{self.p:.2g}" + ("" if self.exact else f" ({DRAWN:,} random flips)")


def sign_flip_p(differences: Array, seed: int = 0) -> Array:
    """Test whether each setting's mean is above zero: one-sided p, corrected for several (Westfall and Young).

    differences: (settings, seeds). The test is one-sided and flips signs: without an effect, each seed's differences
    could as well be negated. All flips are enumerated up to 2^20 sums (20 seeds for one setting); beyond that, 100,000
    are drawn.
    """
    scaled = differences / _spread(differences)
    seen = scaled.sum(axis=1, keepdims=True) - 1e-9
    exact = is_exact(differences)
    sums = scaled[:, :1]  # (settings, flips): with the first sign kept, for the other half has them all negated
    if exact:
        for each in scaled.T[1:, :, None]:
            sums = np.concatenate([sums + each, sums - each], axis=1)
    else:
        sums = scaled @ _drawn_signs(scaled.shape[1], seed)
    count = (sums.max(axis=0) >= seen).sum(axis=1) + (-sums.min(axis=0) >= seen).sum(axis=1)
    return np.asarray((count + (not exact)) / (2 * sums.shape[1] + (not exact)))


def is_exact(differences: Array) -> bool:
    """Return whether all sign flips are enumerated."""
    return bool(len(differences) * 2.0 ** differences.shape[1] <= MOST_SUMS)


@cache
def _drawn_signs(seeds: int, seed: int) -> Array:
    return stream(seed, "signs").choice([1.0, -1.0], size=(seeds, DRAWN // 2))


def _spread(differences: Array) -> Array:
    """Estimate the spread, (settings, 1), the same for every flip: half the setting's own and half the typical one, as
    few seeds estimate it badly."""
    squares = (differences**2).mean(axis=1, keepdims=True)
    return np.asarray(np.sqrt((squares + np.median(squares)) / 2) + 1e-300)


def _two_sided(differences: Array, seed: int) -> float:
    return min(1.0, 2 * min(float(sign_flip_p(sign * differences[None], seed)[0]) for sign in (1, -1)))


def _paired(a: Array, b: Array) -> Array:
    if np.ndim(a) != 1 or np.shape(a) != np.shape(b):
        raise BadInput(
            f"scores have shapes {np.shape(a)} and {np.shape(b)}; expected one for each seed, the same seeds"
        )
    return np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)


def _verdict(n: int, holds: bool, opposite: bool) -> Verdict:
    if n < FEWEST_SEEDS or holds == opposite:
        return "inconclusive"
    return "holds" if holds else "does not hold"


def paired_difference(a: Array, b: Array, *, claimed: float = 0.0, seed: int = 0) -> Comparison:
    """Compare a with b seed by seed. The claim is that a is better by at least `claimed` on average.

    It holds if the mean difference is at least `claimed` and the test finds it above zero. It does not hold if the
    test finds it below `claimed`.
    """
    d = _paired(a, b)
    found = bootstrap(mean, d[:, None], seed=seed)
    gain, low, high = float(found.estimate), float(found.low), float(found.high)
    p = _two_sided(d, seed)
    p_below = _two_sided(d - claimed, seed) if claimed else p
    below = p_below <= LEVEL and high < claimed
    verdict = _verdict(len(d), p <= LEVEL and low > 0 and gain >= claimed, below)
    used = p_below if verdict == "does not hold" else p
    return Comparison(gain, low, high, used, len(d), verdict, int((d > 0).sum()), is_exact(d[None]))


def within(a: Array, b: Array, *, low: float = -inf, high: float = inf, seed: int = 0) -> Comparison:
    """Compare a with b seed by seed. The claim is that the mean of a - b is between `low` and `high`.

    `low=-margin` means "not worse", `high=margin` "not better", and both together "equivalent" (two one-sided tests).
    The claim holds if both one-sided tests at 5% reject. It does not hold if one of them finds the mean outside.
    """
    d = _paired(a, b)
    wide, narrow = (bootstrap(mean, d[:, None], seed=seed, confidence=c) for c in (1 - LEVEL, 1 - 2 * LEVEL))
    sides = [sign * (d - end) for sign, end in ((1, low), (-1, high)) if np.isfinite(end)]
    p_inside = max(float(sign_flip_p(each[None], seed)[0]) for each in sides)
    p_outside = min(float(sign_flip_p(-each[None], seed)[0]) for each in sides) * len(sides)
    inside = p_inside <= LEVEL and low < narrow.low and narrow.high < high
    outside = p_outside <= LEVEL and bool(narrow.high < low or narrow.low > high)
    verdict = _verdict(len(d), bool(inside), outside)
    p = p_outside if verdict == "does not hold" else p_inside
    ends = float(wide.estimate), float(wide.low), float(wide.high)
    return Comparison(*ends, min(1.0, p), len(d), verdict, int((d > 0).sum()), is_exact(d[None]))


@dataclass(frozen=True)
class BestOf:
    """The best of several settings, with a test that accounts for the choice."""

    chosen: int
    """Index of the setting with the largest gain relative to its spread."""
    gain: Comparison
    """Gain over the baseline: the mean on held-out seeds, each seed left out in turn. The interval and p hold for all
    settings at once, and so for the chosen one."""
    choices: Array  # (seeds,): the setting that the other seeds chose
    flattered: float
    """Largest mean gain: what you would report if you chose and reported on the same seeds."""


def best_of(scores: Array, baseline: Array, *, claimed: float = 0.0, seed: int = 0) -> BestOf:
    """Find the best setting and compare it with the baseline. scores: (settings, seeds), baseline: (seeds,)."""
    scores, baseline = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1:] != baseline.shape or len(baseline) < 2:
        raise BadInput(f"scores have shape {scores.shape}; expected candidates x at least 2 seeds, as the baseline's")
    d, n = scores - baseline, len(baseline)
    chosen = int((d.mean(axis=1) / _spread(d)[:, 0]).argmax())
    choices = held_out_choices(d)
    held_out = d[choices, np.arange(n)]
    gain = float(held_out.mean())
    p = min(1.0, 2 * float(sign_flip_p(d, seed)[chosen]))
    low = min(_lower_bound(d, chosen, seed), gain, float(bootstrap(mean, d[chosen][:, None], seed=seed).low))
    high = max(2 * float(d[chosen].mean()) - low, gain)
    p_below = _two_sided(d[chosen] - claimed, seed)
    below = high < claimed and p_below <= LEVEL  # what is true of the best is true of all
    verdict = _verdict(n, p <= LEVEL and low > 0 and gain >= claimed, below)
    used = p_below if verdict == "does not hold" else p
    found = Comparison(gain, low, high, used, n, verdict, int((held_out > 0).sum()), is_exact(d))
    return BestOf(chosen, found, choices, float(d.mean(axis=1).max()))


def held_out_choices(differences: Array) -> Array:
    """Choose, for each seed, the setting that is best on the other seeds: (settings, seeds) -> (seeds,)."""
    rest, squares = (each.sum(axis=1, keepdims=True) - each for each in (differences, differences**2))
    spread = np.sqrt(squares + np.median(squares, axis=0)) + 1e-300
    return np.asarray((rest / spread).argmax(axis=0))


def _lower_bound(differences: Array, chosen: int, seed: int) -> float:
    """Find the largest gain that the test rejects as too small for the chosen setting, by bisection."""
    high = float(differences[chosen].mean())
    low = high - 20 * float(differences[chosen].std()) - 1e-12
    if sign_flip_p(differences - low, seed)[chosen] > LEVEL / 2:
        return -inf  # too few seeds to reject anything
    for _ in range(14):
        middle = (low + high) / 2
        rejected = sign_flip_p(differences - middle, seed)[chosen] <= LEVEL / 2
        low, high = (middle, high) if rejected else (low, middle)
    return low


@dataclass(frozen=True)
class Pooled:
    """The mean gain over several tasks, each on its fixed scale."""

    over_seeds: BestOf
    """Generalises to new seeds on these tasks."""
    over_tasks: BestOf | None
    """Generalises to new tasks like these. With several settings, each task is judged at the setting that the other
    tasks choose. None if there is only one task."""
    by_task: Array  # (tasks,): the mean gain at the settings that the other seeds choose


def pooled(differences: Array, *, seed: int = 0) -> Pooled:
    """Judge several tasks together. differences: (settings, seeds, tasks), each task in units of its reference range.

    Settings and tasks that share a seed are not independent. So means over tasks are tested seed by seed, and means
    over seeds task by task.
    """
    seeds, tasks = differences.shape[1:]
    over_seeds = best_of(differences.mean(axis=2), np.zeros(seeds), seed=seed)
    over_tasks = best_of(differences.mean(axis=1), np.zeros(tasks), seed=seed) if tasks > 1 else None
    return Pooled(over_seeds, over_tasks, differences[over_seeds.choices, np.arange(seeds)].mean(axis=0))


def seeds_needed(spread: float, effect: float, questions: int = 1) -> int | None:
    """Count the seeds that show a mean difference of `effect` four times out of five, with this spread.

    The test is two-sided at 5%, corrected for the number of questions. None if the effect is zero.
    """
    from scipy.stats import norm

    if not effect or not np.isfinite([spread, effect]).all():
        return None
    level = float(norm.ppf(1 - LEVEL / 2 / questions))
    return max(FEWEST_SEEDS, ceil(((level + float(norm.ppf(POWER))) * spread / effect) ** 2 + level**2 / 2))


def holm(p: Sequence[float]) -> list[float]:
    """Correct each p-value for the others that are judged with it (Holm, 1979)."""
    order = np.argsort(p)
    stepped = np.minimum(1.0, np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(stepped)
    return [float(each) for each in corrected]


def probability_of_improvement(x: Array, y: Array) -> Array:
    """Estimate how likely a run of `x` beats the run of `y` with its seed, on a random task; a tie counts one half.

    x, y: (..., runs, tasks)."""
    return mean((np.sign(x - y) + 1) / 2)


def improvement(x: Array, y: Array, confidence: float = 0.95) -> Interval:
    """Estimate that probability for one task, x, y: (runs,), with Clopper and Pearson's exact interval, which has a
    width even where every run won."""
    from scipy.stats import beta

    wins, runs = float(((np.sign(x - y) + 1) / 2).sum()), len(x)
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, wins, runs - wins + 1) if wins > 0 else 0.0
    high = beta.ppf(1 - tail, wins + 1, runs - wins) if wins < runs else 1.0
    return Interval(np.asarray(wins / runs), np.asarray(low), np.asarray(high))


def relative_advantage(score: Array, baseline: Array, floor: Array | float) -> Array:
    """Return the gain as a share of what the baseline gained over random play: (score - baseline) / |baseline - floor|.

    It has the right sign for negative scores: on Pong, -10 compared with -15 is better by 5 / |-15 + 20.7| = 88%. It is
    infinite if the baseline is exactly as good as random play.
    """
    gain = np.asarray(score, dtype=np.float64) - baseline
    gained = np.abs(np.asarray(baseline, dtype=np.float64) - floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gain == 0, 0.0, gain / gained)
