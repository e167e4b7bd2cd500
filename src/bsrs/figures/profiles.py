"""Performance profiles: the share of runs above each score."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from bsrs.figures.style import BLACK
from bsrs.stats import Interval
from bsrs.stats.aggregates import Array


def performance_profiles(
    ax: Axes,
    thresholds: Array,
    labels: Sequence[str],
    colours: Sequence[str],
    profiles: Sequence[Interval],
    *,
    score: str,
) -> Axes:
    """One falling line for each method; a line that lies above another is better there."""
    for label, colour, profile in zip(labels, colours, profiles, strict=True):
        low, high = np.clip(profile.low, 0, 1), np.clip(profile.high, 0, 1)
        known = np.isfinite(profile.low) & np.isfinite(profile.high)
        ax.fill_between(thresholds, low, high, where=known.tolist(), step="post", color=colour, alpha=0.13, linewidth=0)
        width = 2.0 if colour == BLACK else 1.5
        ax.plot(thresholds, profile.estimate, drawstyle="steps-post", color=colour, label=label, linewidth=width)
    ax.set_xlim(float(np.min(thresholds)), float(np.max(thresholds)))
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel(score)
    ax.set_ylabel("runs above")
    ax.legend(title="η", handlelength=1.4)
    return ax
