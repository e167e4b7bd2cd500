"""What went on inside runs: value, action gap, shaping term, loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from bsrs.stats.aggregates import Array

# the record's name -> what it is
QUANTITIES = {
    "value": "mean V(s)",
    "advantage": "mean |A(s, a)|",
    "shaping": "mean shaping term",
    "loss": "TD loss",
}


@dataclass(frozen=True)
class Trace:
    """The records of one run."""

    label: str
    colour: str
    steps: Array  # (records,)
    records: Mapping[str, Array]  # name -> (records,)


def diagnostics(axes: Sequence[Axes], traces: Sequence[Trace]) -> Sequence[Axes]:
    """One quantity for each of the axes, one line for each run."""
    for ax, (name, meaning) in zip(axes, QUANTITIES.items(), strict=False):
        seen = set()
        for trace in traces:
            label = trace.label if trace.label not in seen else None
            seen.add(trace.label)
            ax.plot(trace.steps, trace.records[name], color=trace.colour, label=label, linewidth=1.1)
        ax.set_title(meaning, loc="left")
        ax.set_xlabel("env steps")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
        if name == "loss":
            ax.set_yscale("log")
    axes[0].legend(title="η", handlelength=1.4)
    return axes
