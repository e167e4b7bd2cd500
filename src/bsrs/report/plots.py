"""What the page's plots and its table of statistics show, as plain data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bsrs.errors import BadInput
from bsrs.figures.style import eta_colours, eta_label
from bsrs.stats import Interval, bootstrap, mean, median, performance_profile
from bsrs.stats.aggregates import Array
from bsrs.stats.records import Series, Task
from bsrs.stats.summary import Games, Row, games_together

DRAWS = 300
LARGEST_TRACE = 300
DASHES = ("solid", "dash", "dot", "dashdot")

PROFILE = "profile"
# what training records hold -> what it is
RECORDED = {
    "return": "training return",
    "eta": "eta in force",
    "slope": "slope of the values (auto)",
    "value": "mean V(s)",
    "advantage": "mean |A(s, a)|",
    "shaping": "mean shaping term",
    "loss": "TD loss",
}
METRICS = {"score": "evaluation score", **RECORDED, PROFILE: "share of runs above a normalised score"}
# a row's statistic -> what it is called next to the plot
COMPARISONS = {
    "area": "mean score over training",
    "final": "final score",
    "improvement": "probability of beating η = 0",
    "advantage": "relative advantage over η = 0",
}


def tasks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Describe each task with all its series; then all games together, where there are several."""
    names = task_names(rows)
    found = [_task(name, [row for row in rows if row.series.task == task]) for task, name in names.items()]
    return [*found, *(_all_games(rows) if len(names) > 1 else ())]


def task_names(rows: Sequence[Row]) -> dict[Task, str]:
    """Name the tasks; by their sweep too, where several have the same algorithm and env."""
    found = list(dict.fromkeys(row.series.task for row in rows))
    count = Counter((task.algorithm, task.env) for task in found)
    return {
        task: f"{task.env} · {task.algorithm}" + (f" · {task.sweep.name}" if count[task[1:]] > 1 else "")
        for task in found
    }


def series_label(series: Series) -> str:
    """Name the series for legends and tables."""
    return f"η = {eta_label(series.eta)}" + (f" ({series.variant})" if series.variant else "")


def short_label(series: Series) -> str:
    """Shorten `η = 1 (control=rescaled)` to `1, rescaled`, where the names of the settings are clear."""
    return ", ".join([eta_label(series.eta), *(part.partition("=")[2] for part in series.variant.split(", ") if part)])


def _task(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    etas = list(dict.fromkeys(row.series.eta for row in rows))
    variants = list(dict.fromkeys(row.series.variant for row in rows))
    reached = [end for row in rows for end in (row.series.curves.min(), row.series.curves.max())]
    found = []
    for row in rows:
        own = row.series
        middle = bootstrap(mean, own.curves.T[..., None], seed=0, draws=DRAWS)  # (steps, runs, 1)
        middle = middle.within(min(reached), max(reached))
        each = [numbers(curve[_thinned(len(own.steps))]) for curve in own.curves]
        paces = [run.seconds / run.step for run in own.runs if run.seconds and run.step]
        found.append(
            {
                "label": series_label(own),
                "short": short_label(own),
                "colour": [eta_colours(etas, dark=dark)[own.eta] for dark in (False, True)],
                "dash": DASHES[variants.index(own.variant) % len(DASHES)],
                "runs": len(own.seeds),
                "diverged": own.diverged,
                "failures": str(row.failures),
                "seconds_per_step": float(np.mean(paces)) if paces else None,
                "steps_to_level": row.steps_to_level if np.isfinite(row.steps_to_level) else None,
                "has_level": not np.isnan(row.steps_to_level),
                "compare": {name: interval(getattr(row, name)) for name in COMPARISONS if getattr(row, name)},
                "metrics": {"score": {**_band(own.steps, middle), "each": each}}
                | {name: _trace(own, name) for name in RECORDED},
            }
        )
    return {"name": name, "series": found}


def _all_games(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for sweep, variant in dict.fromkeys((row.series.task.sweep, row.series.variant) for row in rows):
        series = [row.series for row in rows if (row.series.task.sweep, row.series.variant) == (sweep, variant)]
        try:
            games = games_together(series)
        except BadInput:  # a game without a human score: there is no median over games then
            continue
        if games is not None:
            name = f"all {len(games.games)} {games.kind} games, median" + (f", {variant}" if variant else "")
            yield {"name": name, "series": [_games_series(games, eta) for eta in games.etas]}


def _games_series(games: Games, eta: float | str) -> dict[str, Any]:
    """Describe the median normalised score over training and at its end, and the performance profile at its end."""
    final = games.final[eta]
    thresholds = np.linspace(0, max(1.0, *(float(np.quantile(scores, 0.98)) for scores in games.final.values())), 101)
    profile = bootstrap(lambda scores: performance_profile(scores, thresholds), final, seed=0, draws=DRAWS)
    curve = bootstrap(median, games.curves[eta], seed=0, draws=DRAWS)
    return {
        "label": f"η = {eta_label(eta)}",
        "short": eta_label(eta),
        "colour": [eta_colours(games.etas, dark=dark)[eta] for dark in (False, True)],
        "dash": "solid",
        "runs": final.size,
        "diverged": 0,
        "failures": "",
        "seconds_per_step": None,
        "steps_to_level": None,
        "has_level": False,
        "compare": {"final": interval(bootstrap(median, final, seed=0, draws=DRAWS))},
        "metrics": {"score": _band(games.steps, curve), PROFILE: _band(thresholds, profile)},
    }


def _band(steps: Array, middle: Interval) -> dict[str, Any]:
    """Describe a line with its interval; an end that is not known is null."""
    keep = _thinned(len(steps))
    ends = {"middle": middle.estimate, "low": middle.low, "high": middle.high}
    return {"steps": numbers(steps[keep]), **{name: numbers(np.asarray(end)[keep]) for name, end in ends.items()}}


def _trace(series: Series, name: str) -> dict[str, Any]:
    """Describe a quantity in the training records of the series' runs, and their mean."""
    traces = [run.trace(name) for run in series.runs]
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
    """Choose at most LARGEST_TRACE points, the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, LARGEST_TRACE)).round().astype(int))


def interval(value: Interval) -> list[float | None]:
    """Return [estimate, low, high]; null for an end that is not known, and for both if they are equal: then resampling
    saw no spread, which shows how few runs there were, not how sure the estimate is."""
    estimate, low, high = numbers([value.estimate, value.low, value.high])
    return [estimate, low, high] if low != high else [estimate, None, None]


def numbers(values: Any) -> list[float | None]:
    """Round for JSON: five digits, and null for what is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]
