"""One setting against another on the same seeds, the best of several, and what may be concluded.

    paired_difference(a, b) -> Comparison(mean, low, high, p, n, verdict)     scores of seed i: a[i], b[i]
    best_of(scores, baseline) -> BestOf                                       scores: (candidates, seeds)

A verdict needs the exact sign-flip test at 5 % (two-sided), the 95 % interval, the claimed size, and six seeds: with
five, the smallest p that the test can give is 1/16. `holm` corrects the p-values of claims that are judged together.
"""

import itertools
from collections.abc import Callable, Sequence
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
MOST_EXACT = 11  # pairs: 2,048 ways to flip their signs; of more, as many are drawn
DRAWN = 1_000  # exchanges among more than two


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

    Exchanging the scores of a seed among candidates and baseline is exact for the largest of the candidates' t
    (Westfall and Young), whatever the scores' distribution. So no seeds are spent on the choice, as halves would be.
    """
    scores, baseline = np.asarray(scores, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1:] != baseline.shape or len(baseline) < 2:
        raise BadInput(f"scores have shape {scores.shape}; expected candidates x at least 2 seeds, as the baseline's")
    differences, seeds = scores - baseline, len(baseline)
    chosen = _choose(differences)
    choices = np.array([_choose(np.delete(differences, i, axis=1)) for i in range(seeds)])
    held_out = float(differences[choices, np.arange(seeds)].mean())
    test = exchange_test(scores, baseline, seed)
    p = min(1.0, 2 * float(test(0.0)[chosen]))
    low = min(_lower_bound(test, differences[chosen], chosen), held_out)
    high = max(2 * float(differences[chosen].mean()) - low, held_out)
    verdict: Verdict = "inconclusive"
    if seeds >= FEWEST_SEEDS and p <= LEVEL and low > 0 and held_out >= claimed:
        verdict = "holds"
    elif seeds >= FEWEST_SEEDS and high < claimed:  # what is true of the best is true of all
        p_below = _two_sided(differences[chosen] - claimed, seed)
        verdict, p = ("does not hold", p_below) if p_below <= LEVEL else (verdict, p)
    gain = Comparison(held_out, low, high, p, seeds, verdict)
    return BestOf(chosen, gain, choices, float(differences.mean(axis=1).max()))


def exchange_test(scores: Array, baseline: Array, seed: int = 0) -> Callable[[float], Array]:
    """From a gain to the one-sided p that each candidate's is larger, corrected for there being several.

    Without an effect, a seed's scores might as well have been exchanged among the candidates and the baseline (with the
    gain added to it). With one candidate this is the sign-flip test.
    """
    everything = np.stack([baseline, *scores])  # (1 + candidates, seeds)
    labels = _exchanges(*everything.shape, seed)
    values, is_base = np.take_along_axis(everything[None], labels, axis=1), (labels == 0).astype(float)
    a, b = (each[:, 1:] - each[:, :1] for each in (values, is_base))  # a gain of g changes the differences to a + g b
    mean_a, mean_b, aa, ab, bb = (each.mean(axis=-1) for each in (a, b, a * a, a * b, b * b))

    def p_values(gain: float) -> Array:
        t = _t(mean_a + gain * mean_b, aa + 2 * gain * ab + gain**2 * bb, len(baseline))  # (exchanges, candidates)
        return np.asarray((t.max(axis=1, keepdims=True) >= t[0] - 1e-9 * np.abs(t[0])).mean(axis=0))

    return p_values


def holm(p: Sequence[float]) -> list[float]:
    """Each p-value as it counts among several that are judged together (Holm, 1979)."""
    order = np.argsort(p)
    stepped = np.minimum(1.0, np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(stepped)
    return [float(each) for each in corrected]


def _two_sided(differences: Array, seed: int) -> float:
    zeros = np.zeros(len(differences))
    return float(min(1.0, 2 * min(exchange_test(sign * differences[None], zeros, seed)(0.0)[0] for sign in (1, -1))))


@cache
def _exchanges(settings: int, seeds: int, seed: int) -> Array:
    """(exchanges, settings, seeds): who has whose score. All ways for few pairs, else as many at random; the first is
    what was seen."""
    if settings == 2 and seeds <= MOST_EXACT:
        first = np.array(list(itertools.product([0, 1], repeat=seeds)))
        return np.stack([first, 1 - first], axis=1)
    count = 2**MOST_EXACT if settings == 2 else DRAWN
    drawn = stream(seed, "exchanges").random((count, settings, seeds)).argsort(axis=1)
    drawn[0] = np.arange(settings)[:, None]
    return drawn


def _t(means: Array, squares: Array, seeds: int) -> Array:
    """(..., candidates), from the means and mean squares over seeds: the mean over its spread. That is half the
    candidate's own and half the typical one: few seeds tell a spread badly."""
    own = np.maximum(squares - means**2, 0.0) * seeds / max(1, seeds - 1)
    middle = (own.shape[-1] - 1) // 2
    spread = np.sqrt((own + np.partition(own, middle, axis=-1)[..., middle, None]) / 2)
    return np.asarray(means / np.maximum(spread, 1e-9 * np.sqrt(squares) + 1e-300))


def _choose(differences: Array) -> int:
    return int(_t(differences.mean(axis=1), (differences**2).mean(axis=1), differences.shape[1]).argmax())


def _lower_bound(test: Callable[[float], Array], differences: Array, chosen: int) -> float:
    """The largest gain that the test rejects as too small for the chosen candidate: by bisection."""
    high = float(differences.mean())
    low = high - 20 * float(differences.std()) - 1e-12
    if test(low)[chosen] > LEVEL / 2:
        return -np.inf  # too few seeds to reject anything
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if test(middle)[chosen] <= LEVEL / 2 else (low, middle)
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
