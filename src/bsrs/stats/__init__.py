"""Estimates with confidence intervals. All functions are pure functions on arrays.

Scores are arrays (..., runs, tasks). Leading axes are free, for example for training steps.
"""

from bsrs.stats.aggregates import iqm, mean, median, optimality_gap, performance_profile
from bsrs.stats.comparison import (
    BestOf,
    Comparison,
    Pooled,
    Verdict,
    best_of,
    held_out_choices,
    holm,
    improvement,
    paired_difference,
    pooled,
    probability_of_improvement,
    relative_advantage,
    seeds_needed,
    sign_flip_p,
    within,
)
from bsrs.stats.curves import area_under_curve, final_score, steps_to_threshold
from bsrs.stats.references import Reference, failure_bound, game_name, human_normalised, reference_of
from bsrs.stats.resampling import Interval, bootstrap, iqm_interval

__all__ = [
    "BestOf",
    "Comparison",
    "Interval",
    "Pooled",
    "Reference",
    "Verdict",
    "area_under_curve",
    "best_of",
    "bootstrap",
    "failure_bound",
    "final_score",
    "game_name",
    "held_out_choices",
    "holm",
    "human_normalised",
    "improvement",
    "iqm",
    "iqm_interval",
    "mean",
    "median",
    "optimality_gap",
    "paired_difference",
    "performance_profile",
    "pooled",
    "probability_of_improvement",
    "reference_of",
    "relative_advantage",
    "seeds_needed",
    "sign_flip_p",
    "steps_to_threshold",
    "within",
]
