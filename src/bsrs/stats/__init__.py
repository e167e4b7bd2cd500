"""From scores to estimates with intervals. Pure functions on arrays: no files, no drawing.

Scores are arrays (..., runs, tasks): a leading axis may hold anything, for example steps of training.
"""

from bsrs.stats.aggregates import iqm, mean, median, optimality_gap, performance_profile
from bsrs.stats.atari import game_name, human_normalised
from bsrs.stats.comparison import (
    BestOf,
    Comparison,
    Verdict,
    best_of,
    holm,
    improvement,
    paired_difference,
    probability_of_improvement,
    relative_advantage,
)
from bsrs.stats.curves import area_under_curve, final_score, steps_to_threshold
from bsrs.stats.resampling import Interval, bootstrap, iqm_interval

__all__ = [
    "BestOf",
    "Comparison",
    "Interval",
    "Verdict",
    "area_under_curve",
    "best_of",
    "bootstrap",
    "final_score",
    "game_name",
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
    "probability_of_improvement",
    "relative_advantage",
    "steps_to_threshold",
]
