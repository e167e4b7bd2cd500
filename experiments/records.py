"""The runs that results/ holds: where they are, and as series of statistics. Nothing is trained."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bsrs.figures.style import eta_label
from bsrs.stats.records import RunRecord, Series, read_runs, series_of
from experiments.variants import with_options

RESULTS = Path("results")
FASTER_TARGET = "zoo-faster-target"  # the control of the zoo's study
# Where the runs of the experiments are, its figure in the first folder; the other experiments need a cluster.
EXPERIMENT_RUNS: dict[str, tuple[str, ...]] = {
    "anatomy": ("anatomy",),
    "atari": ("atari",),
    "auto-eta": ("auto", "minatar"),
    "minatar": ("minatar",),
    "pendulum": ("pendulum",),
    "rescaling": ("cartpole",),
    "target-ablation": ("cartpole", "acrobot-full", "lunar-lander", "breakout"),
    "zoo": ("zoo", FASTER_TARGET),
}
# Which of the runs belong, where some do not.
BELONGS: dict[str, Callable[[Any], bool]] = {
    "rescaling": lambda config: config.potential_network == "online",
    "target-ablation": lambda config: config.control == "none",
}
# Folders some of whose runs lie in another, which ones, and the field in which the runs of both differ: without shaping
# an agent is the same whatever the potential, and the study of MinAtar has seeds of Breakout's ablation.
BORROWED: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "pendulum-replay": ("pendulum", "potential", lambda config: config.eta == 0.0),
    "breakout": (
        "minatar",
        "potential_network",
        lambda config: config.env == "MinAtar/Breakout-v0" and config.eta != "auto",
    ),
}


def folders() -> list[str]:
    """List the folders of results/ with runs in them."""
    found = [path.name for path in RESULTS.iterdir() if next(path.glob("**/config.json"), None)]
    return sorted(name for name in found if name != FASTER_TARGET)


def records(folder: str, belongs: Callable[[Any], bool] = lambda config: True) -> list[Series]:
    runs = [run for run in runs_in(folder) if belongs(run.config)]
    if folder in BORROWED:
        other, field, is_shared = BORROWED[folder]
        return series_of([*(run for run in runs_in(other) if is_shared(run.config)), *runs], [field])
    return series_of(runs)


@cache
def runs_in(folder: str) -> list[RunRecord]:
    if not (RESULTS / folder).exists():
        return []
    runs, broken = read_runs(RESULTS / folder)
    assert not broken, broken
    return [with_options(run) for run in runs]


def runs_of(experiment: str) -> list[Series]:
    """Return the runs of an experiment that results/ holds."""
    belongs = BELONGS.get(experiment, lambda config: True)
    return [each for folder in EXPERIMENT_RUNS.get(experiment, ()) for each in records(folder, belongs)]


def by_eta(series: Sequence[Series]) -> dict[float | str, Series]:
    """Find the series with the paper's potential and no control, by eta."""
    default = {"potential_network": "online", "control": "none"}
    return {
        each.eta: each
        for each in series
        if all(getattr(each.config, name, value) == value for name, value in default.items())
    }


def shown_eta(series: Series) -> str:
    """Name eta for tables. The rule of `auto` changed after version 0.1, whose runs are labelled."""
    text = eta_label(series.eta).replace("\N{MINUS SIGN}", "-")
    return f"{text} (version 0.1)" if text.startswith("auto") and is_of_version_0_1(series.runs[0]) else text


def is_of_version_0_1(run: RunRecord) -> bool:
    """Return whether version 0.1 wrote the run."""
    path = run.folder / "config.json"
    return bool(path.exists() and json.loads(path.read_text())["format"] == 1)
