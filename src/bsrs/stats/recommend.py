"""Recommend an eta from the runs of a sweep.

The test behind "use" is about the typical gain. It misses rare failures, so every recommendation includes the failed
runs and an upper bound of their probability (simulated in `python -m experiments calibration`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np

from bsrs.stats.comparison import FEWEST_SEEDS, Comparison, best_of, seeds_needed
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import (
    OWN_RANGE,
    Failures,
    baseline_of,
    failures_of,
    gain,
    on_shared_seeds,
    task_reference,
)

By = Literal["training", "final"]
VALUES = {"training": attrgetter("area"), "final": attrgetter("final")}
WHEN = {"training": "over training", "final": "at the end"}
WORTH = 0.1  # a gain that you would not want to miss, as a share of the reference range
RISK = 0.1  # a failure bound that exceeds the baseline's by more is part of the answer
TOO_FEW = "too few seeds"
INCONCLUSIVE = f"{TOO_FEW} to tell whether any eta helps here"


@dataclass(frozen=True)
class Recommendation:
    """The recommended eta for one algorithm on one env."""

    task: Task
    variant: str
    """Settings other than eta, if the sweep has several."""
    eta: float | str
    """The eta to use: 0 unless another is shown to be better."""
    answer: str
    """The answer in a few words, without numbers."""
    sentence: str
    """The answer with its numbers."""
    by: By = "training"
    """The measure: the mean score over training, or the final score."""
    gain: Comparison | None = None
    """Gain of the best eta over eta = 0; None if there is nothing to compare."""
    other: Comparison | None = None
    """Gain of the same eta in the other measure."""
    best: float | str | None = None
    """The best eta, which `gain` is about."""
    failures: Failures | None = None
    """Failed runs of the best eta."""
    baseline_failures: Failures | None = None
    more_seeds: int | None = None
    """Additional seeds that detect a gain of 10% with 80% power; None if that cannot be estimated."""

    @property
    def helps(self) -> bool:
        return self.eta != 0.0


def recommend(series: Sequence[Series], by: By = "training") -> list[Recommendation]:
    """Make a recommendation for each task and variant in which more than eta = 0 was run."""
    found = []
    for task, variant in dict.fromkeys((each.task, each.variant) for each in series):
        candidates = [s for s in series if (s.task, s.variant) == (task, variant) and s.eta != 0.0]
        if candidates:
            found.append(_recommend(candidates, series, by))
    return found


def _recommend(candidates: Sequence[Series], everything: Sequence[Series], by: By) -> Recommendation:
    task, variant = candidates[0].task, candidates[0].variant
    baseline = baseline_of(candidates[0], everything)
    if baseline is None:
        words = "eta = 0 was not run: without it nothing shows whether shaping helps"
        return Recommendation(task, variant, 0.0, "run eta = 0 too", words, by)
    # Those that can be tested or, if none can, compared at all: one run of one eta must not take seeds from the others.
    shared = [len(set(each.seeds) & set(baseline.seeds)) for each in candidates]
    if max(shared) < 2:
        seeds = f"{max(shared)} of at least {FEWEST_SEEDS} that another eta has together with eta = 0"
        return Recommendation(task, variant, 0.0, TOO_FEW, f"{INCONCLUSIVE} ({seeds}): keep 0", by)
    least = FEWEST_SEEDS if max(shared) >= FEWEST_SEEDS else 2
    candidates = [each for each, count in zip(candidates, shared, strict=True) if count >= least]
    *scores, zero = on_shared_seeds(VALUES[by], *candidates, baseline)
    if len(zero) < 2:
        words = f"every eta needs the same seeds, at least 2, and {FEWEST_SEEDS} for a verdict: keep 0 until then"
        return Recommendation(task, variant, 0.0, TOO_FEW, words, by)
    best = best_of(np.stack(scores), zero)
    reference, chosen = task_reference(task, everything), candidates[best.chosen]
    failures = failures_of(chosen, reference), failures_of(baseline, reference)
    other: By = "final" if by == "training" else "training"
    side = gain(chosen, baseline, VALUES[other])
    spread = float(np.median((np.stack(scores) - zero).std(axis=1, ddof=1)))
    needed = seeds_needed(spread, WORTH * reference.span, len(scores)) if reference else None
    more = None if needed is None else max(needed - len(zero), 0)
    eta, answer, sentence = _words(chosen.eta, best.gain, side, failures, more, by)
    sentence += "."
    if reference is None or reference.source == OWN_RANGE:
        judged = "only diverged runs count as failed" if reference is None else f"failures are judged by {OWN_RANGE}"
        sentence += f" No reference score for {task.env}: {judged}."
    return Recommendation(task, variant, eta, answer, sentence, by, best.gain, side, chosen.eta, *failures, more)


def _words(
    eta: float | str, gain: Comparison, side: Comparison | None, failures: tuple[Failures, Failures],
    more: int | None, by: By,
) -> tuple[float | str, str, str]:  # fmt: skip
    """Return the eta to use, the answer, and the answer with its numbers."""
    label = f"{eta:g}" if isinstance(eta, float | int) else eta
    other = WHEN["final" if by == "training" else "training"]
    numbers = f"Typical gain over eta = 0: {WHEN[by]} {gain} on {gain.n} held-out seeds, {other} {side}. "
    numbers += f"{failures[0]}; at eta = 0, {failures[1]}"
    if gain.verdict == "holds":
        caveats = [f"but it is worse {other}"] if side and side.verdict == "does not hold" else []
        caveats += ["at a risk of failed runs"] if failures[0].bound > failures[1].bound + RISK else []
        words = ", ".join([label, *caveats])
        return eta, f"use {words}; {failures[0]}", f"use eta = {words}. {numbers}"
    if gain.verdict == "does not hold":
        answer = "keep 0: every other eta is worse"
        return 0.0, answer, f"{answer}, {label} least clearly. {numbers}"
    if gain.n < FEWEST_SEEDS:
        few = f"{gain.n} of at least {FEWEST_SEEDS}"
        return 0.0, TOO_FEW, f"{INCONCLUSIVE} ({few}): keep 0; {_format_seeds(more)}"
    seeds = _format_seeds(more)
    sentence = f"keep 0: no evidence that any eta helps here; {seeds}. The best was eta = {label}. {numbers}"
    return 0.0, f"keep 0; {seeds}", sentence


def _format_seeds(more: int | None) -> str:
    if more is None:
        return "how many seeds a verdict takes cannot be estimated"
    if not more:
        return "a gain of 10% would probably have shown"
    return f"{more:,} more seed{'s' * (more > 1)} would show a gain of 10%"
