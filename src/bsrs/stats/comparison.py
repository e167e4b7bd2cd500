"""One method against another, and a fair word about the best of several."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats.aggregates import Array, mean


def probability_of_improvement(x: Array, y: Array, *, paired: bool = False) -> Array:
    """How likely a run of `x` beats a run of `y` on a task taken at random; a tie counts one half.

    x, y: (..., runs, tasks). Every run of x meets every run of y (Mann-Whitney), or, if `paired`, its namesake.
    """
    if paired:
        return mean((np.sign(x - y) + 1) / 2)
    wins = (np.sign(x[..., :, None, :] - y[..., None, :, :]) + 1) / 2  # (..., runs of x, runs of y, tasks)
    return np.asarray(wins.mean(axis=(-3, -2, -1)))


def relative_advantage(score: Array, baseline: Array, floor: Array | float) -> Array:
    """(score - baseline) / |baseline - floor|: the gain as a share of what the baseline gained over random play.

    Right for negative scores, where a share of the score itself has the wrong sign: Pong -10 against -15 is
    better by 5 / |-15 + 20.7| = 88 %. Infinite where the baseline is exactly as good as random.
    """
    gain = np.asarray(score, dtype=np.float64) - baseline
    gained = np.abs(np.asarray(baseline, dtype=np.float64) - floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gain == 0, 0.0, gain / gained)


@dataclass(frozen=True)
class HonestBest:
    """The best of several candidates, each time chosen without the seed that it is then judged by."""

    chosen: Array  # (seeds,): the candidate that the other seeds chose
    scores: Array  # (seeds,): what it scored on the seed left out
    naive: int
    """The candidate with the highest mean over all seeds."""
    naive_scores: Array  # (seeds,): its scores: too good, for they chose it

    @property
    def optimism(self) -> float:
        """By how much choosing and reporting on the same seeds flatters."""
        return float(self.naive_scores.mean() - self.scores.mean())


def honest_best(scores: Array) -> HonestBest:
    """Cross-fitted choice by the mean over seeds. scores: (candidates, seeds).

    The maximum of noisy means is above the best candidate's true mean; the score on a seed that had no say is not.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise BadInput(f"scores have shape {scores.shape}; expected candidates x at least 2 seeds")
    others = (scores.sum(axis=1, keepdims=True) - scores) / (scores.shape[1] - 1)  # mean without each seed
    chosen = others.argmax(axis=0)  # (seeds,)
    naive = int(scores.mean(axis=1).argmax())
    return HonestBest(chosen, np.take_along_axis(scores, chosen[None], axis=0)[0], naive, scores[naive])
