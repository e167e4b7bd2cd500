"""Which eta to use: the answer of a sweep in one sentence, with how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from operator import attrgetter

import numpy as np

from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import FEWEST_SEEDS, Comparison, best_of
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import baseline_of, floor_of, on_shared_seeds

WORTH = 0.1  # a gain that one would not like to miss, as a share of what eta = 0 gained
POWER = 0.8
TOO_FEW = "too few seeds"
UNTOLD = f"{TOO_FEW} to tell whether any eta helps here"
LEVEL = 0.04  # one-sided: "does any help?" has one side, and noise alone may lead to another eta in at most 5 %


@dataclass(frozen=True)
class Recommendation:
    """For one algorithm on one env."""

    task: Task
    variant: str
    """The settings besides eta, where the sweep has several."""
    eta: float | str
    """To use: 0 unless another is shown to be better."""
    answer: str
    """In a few words, without the numbers behind it."""
    sentence: str
    """The answer with its numbers."""
    gain: Comparison | None = None
    """Of the best eta over eta = 0, in the mean score over training; None where there is nothing to compare."""
    best: float | str | None = None
    """The eta that `gain` is about."""
    more_seeds: int | None = None
    """Seeds to add, to find a gain of 10 % four times out of five; None if that is not to be estimated."""

    @property
    def helps(self) -> bool:
        return self.eta != 0.0


def recommend(series: Sequence[Series]) -> list[Recommendation]:
    """One for each task and variant in which more than eta = 0 was run, by the mean score over training."""
    found = []
    for task, variant in dict.fromkeys((each.task, each.variant) for each in series):
        candidates = [s for s in series if (s.task, s.variant) == (task, variant) and s.eta != 0.0]
        if candidates:
            found.append(_recommend(candidates, series))
    return found


def _recommend(candidates: Sequence[Series], everything: Sequence[Series]) -> Recommendation:
    task, variant = candidates[0].task, candidates[0].variant
    baseline = baseline_of(candidates[0], everything)
    if baseline is None:
        words = "eta = 0 was not run: without it nothing shows whether shaping helps"
        return Recommendation(task, variant, 0.0, "run eta = 0 too", words)
    # Those that can be tested or, if none can, compared at all: one run of one eta must not take seeds from the others.
    shared = [len(set(each.seeds) & set(baseline.seeds)) for each in candidates]
    if max(shared) < 2:
        seeds = f"{max(shared)} of at least {FEWEST_SEEDS} that another eta has together with eta = 0"
        words = f"{UNTOLD} ({seeds}): keep 0"
        return Recommendation(task, variant, 0.0, TOO_FEW, words)
    least = FEWEST_SEEDS if max(shared) >= FEWEST_SEEDS else 2
    candidates = [each for each, count in zip(candidates, shared, strict=True) if count >= least]
    *each, zero = on_shared_seeds(attrgetter("area"), *candidates, baseline)
    if len(zero) < 2:
        words = f"every eta needs the same seeds, at least 2, and {FEWEST_SEEDS} for a verdict: keep 0 until then"
        return Recommendation(task, variant, 0.0, TOO_FEW, words)
    best = best_of(np.stack(each), zero)
    eta, gain = candidates[best.chosen].eta, best.gain
    label = f"{eta:g}" if isinstance(eta, float | int) else eta
    over = f"{gain} over eta = 0 on held-out seeds in the mean score over training, {gain.n} seeds"
    if gain.n >= FEWEST_SEEDS and gain.p / 2 <= LEVEL and gain.mean > 0:  # a decision; a verdict asks for 2.5 %
        narrowly = "" if gain.low > 0 else ", narrowly"
        sentence = f"use eta = {label}{narrowly}: {over}"
        return Recommendation(task, variant, eta, f"use {label}{narrowly}", sentence, gain, eta)
    more = _more_seeds(np.stack(each) - zero, abs(float(zero.mean()) - floor_of(task, everything)))
    if gain.verdict == "does not hold":
        answer = "keep 0: every other is worse"
        sentence = f"keep eta = 0: every other is worse, {label} least clearly: {over}"
    elif gain.n < FEWEST_SEEDS:
        few = f"{gain.n} of at least {FEWEST_SEEDS}"
        answer, sentence = TOO_FEW, f"{UNTOLD} ({few}): keep 0; {_told(more)}"
    else:
        answer = f"keep 0; {_told(more)}"
        sentence = f"no evidence that any eta helps here: keep 0 (eta = {label}: {over}); {_told(more)}"
    return Recommendation(task, variant, 0.0, answer, sentence, gain, eta, more)


def _more_seeds(differences: Array, scale: float) -> int | None:
    """How many seeds a gain of 10 % needs to be found four times out of five, less those that are there.

    differences: (candidates, seeds). The usual sample size of a paired t test, at the level that the choice leaves.
    """
    from scipy.stats import norm

    spread = float(np.median(differences.std(axis=1, ddof=1)))
    if scale <= 0 or not np.isfinite(scale):
        return None
    level = norm.ppf(1 - LEVEL / len(differences))
    needed = ((level + norm.ppf(POWER)) * spread / (WORTH * scale)) ** 2 + level**2 / 2
    seeds: int = differences.shape[1]
    return max(FEWEST_SEEDS, ceil(float(needed)), seeds) - seeds


def _told(more: int | None) -> str:
    if more is None:
        return "how many seeds a verdict takes cannot be estimated"
    if not more:
        return "a gain of 10 % would probably have shown"
    return f"{more:,} more seed{'s' * (more > 1)} would show a gain of 10 %"
