"""One setting against another on the same seeds, the best of several, and what may be concluded.

    paired_difference(a, b) -> Comparison(mean, low, high, p, n, verdict)     scores of seed i: a[i], b[i]
    best_of(scores, baseline) -> BestOf                                       scores: (candidates, seeds)

A verdict needs the exact sign-flip test at 5 % (two-sided), the 95 % interval, the claimed size, and six seeds: with
five, the smallest p that the test can give is 1/16. `holm` corrects the p-values of claims that are judged together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from bsrs.errors import BadInput
from bsrs.rng import stream
from bsrs.stats.aggregates import Array, mean
from bsrs.stats.resampling import Interval, bootstrap

Verdict = Literal["holds", "does not hold", "inconclusive"]

LEVEL = 0.05
FEWEST_SEEDS = 6
MOST_EXACT = 12  # pairs: 4,096 ways to flip their signs; of more, as many are drawn


@dataclass(frozen=True)
class Comparison:
    """By how much one is better than the other, and whether that is shown."""

    mean: float
    low: float
    high: float
    p: float
    """Two-sided, of the test that the verdict rests on."""
    n: int
    """Seeds."""
    verdict: Verdict
    """On "better, by as much as is claimed"."""

    def __str__(self) -> str:
        interval = f" [{self.low:+.4g}, {self.high:+.4g}]" if np.isfinite([self.low, self.high]).all() else ""
        return f"{self.mean:+.4g}{interval}"


def paired_difference(a: Array, b: Array, *, claimed: float = 0.0, seed: int = 0) -> Comparison:
    """Mean of a - b over seeds. It `holds` that a is better by `claimed` if the difference is at least that and clear
    of zero; it `does not hold` if the difference is clearly below."""
    if np.ndim(a) != 1 or np.shape(a) != np.shape(b):
        raise BadInput(
            f"scores have shapes {np.shape(a)} and {np.shape(b)}; expected one for each seed, the same seeds"
        )
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    found = bootstrap(mean, differences[:, None], seed=seed)
    gain, low, high = float(found.estimate), float(found.low), float(found.high)
    p = _two_sided(differences, seed)
    p_below = _two_sided(differences - claimed, seed) if claimed else p
    enough = len(differences) >= FEWEST_SEEDS
    if enough and p <= LEVEL and low > 0 and gain >= claimed:
        return Comparison(gain, low, high, p, len(differences), "holds")
    below = enough and p_below <= LEVEL and high < claimed
    return Comparison(gain, low, high, p_below if below else p, len(differences),
                      "does not hold" if below else "inconclusive")  # fmt: skip


@dataclass(frozen=True)
class BestOf:
    """The best of several candidates, tested with all seeds and with the choice accounted for."""

    chosen: int
    """The candidate with the largest gain, in units of its spread."""
    gain: Comparison
    """Over the baseline: the mean on seeds that had no say in the choice (each seed is left out in turn); interval and
    p hold for all candidates at once, hence for the one that was chosen."""
    choices: Array  # (seeds,): the candidate that the other seeds chose
    flattered: float
    """What choosing and reporting on the same seeds would say, as papers do: the largest mean gain."""


def best_of(scores: Array, baseline: Array, *, claimed: float = 0.0, seed: int = 0) -> BestOf:
    """scores: (candidates, seeds), baseline: (seeds,).

    Flipping the signs of all of a seed's differences together is exact for the largest of their t, whatever the
    candidates share (Westfall and Young). So no seeds are spent on the choice, as splitting them in halves would.
    """
    differences = np.asarray(scores, dtype=np.float64) - np.asarray(baseline, dtype=np.float64)
    if differences.ndim != 2 or differences.shape[1] < 2:
        raise BadInput(f"scores have shape {np.shape(scores)}; expected candidates x at least 2 seeds")
    seeds = differences.shape[1]
    chosen = _choose(differences)
    choices = np.array([_choose(np.delete(differences, i, axis=1)) for i in range(seeds)])
    held_out = float(differences[choices, np.arange(seeds)].mean())
    low = min(_lower_bound(differences, chosen, seed), held_out)
    high = max(2 * float(differences[chosen].mean()) - low, held_out)
    p = min(1.0, 2 * float(flip_test(differences, seed)[chosen]))
    p_below = _two_sided(differences[chosen] - claimed, seed)  # what is true of the best is true of all
    verdict: Verdict = "inconclusive"
    if seeds >= FEWEST_SEEDS and p <= LEVEL and low > 0 and held_out >= claimed:
        verdict = "holds"
    elif seeds >= FEWEST_SEEDS and p_below <= LEVEL and high < claimed:
        verdict, p = "does not hold", p_below
    gain = Comparison(held_out, low, high, p, seeds, verdict)
    return BestOf(chosen, gain, choices, float(differences.mean(axis=1).max()))


def flip_test(differences: Array, seed: int = 0) -> Array:
    """One-sided p that each candidate's mean difference is above zero, corrected for there being several.

    differences: (candidates, seeds). Under no effect each seed's differences are as likely to have the other sign.
    """
    seeds = differences.shape[1]
    means = _signs(seeds, seed) @ differences.T / seeds  # (flips, candidates); the first is what was seen
    t = _t(means, (differences**2).mean(axis=1), seeds)
    return np.asarray((t.max(axis=1, keepdims=True) >= t[0] - 1e-9 * np.abs(t[0])).mean(axis=0))


def holm(p: Sequence[float]) -> list[float]:
    """Each p-value as it counts among several that are judged together (Holm, 1979)."""
    order = np.argsort(p)
    stepped = np.minimum(1.0, np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(stepped)
    return [float(each) for each in corrected]


def _two_sided(differences: Array, seed: int) -> float:
    return float(min(1.0, 2 * min(flip_test(sign * differences[None], seed)[0] for sign in (1, -1))))


@cache
def _signs(seeds: int, seed: int) -> Array:
    """(flips, seeds): all ways, or as many drawn at random, the first of them without a flip."""
    if seeds <= MOST_EXACT:
        return np.array(list(itertools.product([1.0, -1.0], repeat=seeds)))
    signs = stream(seed, "signs").choice([1.0, -1.0], size=(2**MOST_EXACT, seeds))
    signs[0] = 1.0
    return np.asarray(signs)


def _t(means: Array, squares: Array, seeds: int) -> Array:
    """(..., candidates), from the means and mean squares over seeds: the mean over its spread. That is half the
    candidate's own and half the typical one: few seeds tell a spread badly."""
    own = np.maximum(squares - means**2, 0.0) * seeds / max(1, seeds - 1)
    spread = np.sqrt((own + np.median(own, axis=-1, keepdims=True)) / 2)
    return np.asarray(means / np.maximum(spread, 1e-9 * np.sqrt(squares) + 1e-300))


def _choose(differences: Array) -> int:
    return int(_t(differences.mean(axis=1), (differences**2).mean(axis=1), differences.shape[1]).argmax())


def _lower_bound(differences: Array, chosen: int, seed: int) -> float:
    """The largest gain that the test would still reject, for the chosen candidate: found by bisection."""
    if 2.0 ** (1 - differences.shape[1]) > LEVEL:
        return -np.inf
    high = float(differences[chosen].mean())
    low = high - 20 * float(differences[chosen].std()) - 1e-12
    for _ in range(30):
        middle = (low + high) / 2
        rejected = flip_test(differences - middle, seed)[chosen] <= LEVEL / 2
        low, high = (middle, high) if rejected else (low, middle)
    return low


def probability_of_improvement(x: Array, y: Array) -> Array:
    """How likely a run of `x` beats the run of `y` with its seed, on a task taken at random; a tie counts one half.

    x, y: (..., runs, tasks)."""
    return mean((np.sign(x - y) + 1) / 2)


def improvement(x: Array, y: Array, confidence: float = 0.95) -> Interval:
    """That probability for one task, x, y: (runs,), with the exact interval of a share (Clopper and Pearson), which has
    a width even where every run won."""
    from scipy.stats import beta

    wins, runs = float(((np.sign(x - y) + 1) / 2).sum()), len(x)
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, wins, runs - wins + 1) if wins > 0 else 0.0
    high = beta.ppf(1 - tail, wins + 1, runs - wins) if wins < runs else 1.0
    return Interval(np.asarray(wins / runs), np.asarray(low), np.asarray(high))


def relative_advantage(score: Array, baseline: Array, floor: Array | float) -> Array:
    """(score - baseline) / |baseline - floor|: the gain as a share of what the baseline gained over random play.

    Right for negative scores, where a share of the score itself has the wrong sign: Pong -10 against -15 is
    better by 5 / |-15 + 20.7| = 88 %. Infinite where the baseline is exactly as good as random.
    """
    gain = np.asarray(score, dtype=np.float64) - baseline
    gained = np.abs(np.asarray(baseline, dtype=np.float64) - floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gain == 0, 0.0, gain / gained)
