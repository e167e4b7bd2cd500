"""What the page's plots show, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bsrs.figures.diagnostics import QUANTITIES
from bsrs.figures.style import eta_colours, eta_label
from bsrs.stats import Interval, bootstrap, iqm
from bsrs.stats.aggregates import Array
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import Row

DRAWS = 1_000
LARGEST_TRACE = 300

METRICS = {"score": "evaluation score", "return": "training return", **QUANTITIES}


def tasks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each with all its series."""
    names = task_names(rows)
    return [_task(name, [row for row in rows if row.series.task == task]) for task, name in names.items()]


def task_names(rows: Sequence[Row]) -> dict[Task, str]:
    """What the tasks are called; by their sweep too, where several have the same algorithm and env."""
    found = list(dict.fromkeys(row.series.task for row in rows))
    count = Counter((task.algorithm, task.env) for task in found)
    return {
        task: f"{task.env} · {task.algorithm}" + (f" · {task.sweep.name}" if count[task[1:]] > 1 else "")
        for task in found
    }


def series_label(series: Series) -> str:
    """As it stands in legends and tables."""
    return f"η = {eta_label(series.eta)}" + (f" ({series.variant})" if series.variant else "")


def short_label(series: Series) -> str:
    """`1, rescaled` for `η = 1 (potential=rescaled)`: for where the names of the settings are clear."""
    return ", ".join([eta_label(series.eta), *(part.partition("=")[2] for part in series.variant.split(", ") if part)])


def _task(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    etas = list(dict.fromkeys(row.series.eta for row in rows))
    light, dark = eta_colours(etas), eta_colours(etas, dark=True)
    variants = list(dict.fromkeys(row.series.variant for row in rows))
    return {
        "name": name,
        "series": [
            {
                "label": series_label(row.series),
                "short": short_label(row.series),
                "colour": [light[row.series.eta], dark[row.series.eta]],
                "dash": ["solid", "dash", "dot", "dashdot"][variants.index(row.series.variant) % 4],
                "final": interval(row.final),
                "area": interval(row.area),
                "metrics": {"score": _scores(row.series), **_traces(row.series)},
            }
            for row in rows
        ],
    }


def _scores(series: Series) -> dict[str, Any]:
    middle = bootstrap(iqm, series.curves.T[..., None], seed=0, draws=DRAWS)  # (steps, runs, 1)
    keep = _thinned(len(series.steps))
    return {
        "steps": numbers(series.steps[keep]),
        "middle": numbers(np.asarray(middle.estimate)[keep]),
        "low": numbers(np.asarray(middle.low)[keep]),
        "high": numbers(np.asarray(middle.high)[keep]),
        "each": [numbers(curve[keep]) for curve in series.curves],
    }


def _traces(series: Series) -> dict[str, Any]:
    """The training records of the series' runs, their mean, and no interval."""
    return {name: _trace([run.trace(name) for run in series.runs]) for name in METRICS if name != "score"}


def _trace(traces: Sequence[tuple[Array, Array]]) -> dict[str, Any]:
    every_step = np.unique(np.concatenate([steps for steps, _ in traces]))
    steps = every_step[_thinned(len(every_step))]
    each = np.full((len(traces), len(steps)), np.nan)
    for row, (at, values) in zip(each, traces, strict=True):
        wanted = np.isin(at, steps)
        row[np.searchsorted(steps, at[wanted])] = values[wanted]
    known = np.isfinite(each).any(axis=0)
    middle = np.nanmean(each[:, known], axis=0) if known.any() else np.empty(0)
    return {"steps": numbers(steps[known]), "middle": numbers(middle), "each": [numbers(row[known]) for row in each]}


def _thinned(count: int) -> Array:
    """Indices of at most LARGEST_TRACE points, the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, LARGEST_TRACE)).round().astype(int))


def interval(value: Interval) -> list[float | None]:
    """[estimate, low, high]; an end that is not known is null."""
    return numbers([value.estimate, value.low, value.high])


def numbers(values: Any) -> list[float | None]:
    """For JSON: five digits, and null for what is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]
