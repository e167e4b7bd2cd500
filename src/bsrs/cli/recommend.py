"""`bsrs recommend`: parsing and printing only."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from bsrs.errors import BadInput, printable, say

if TYPE_CHECKING:
    from bsrs.stats.recommend import Recommendation
    from bsrs.stats.records import RunRecord


@dataclass(frozen=True)
class RecommendArguments:
    """Which eta to use, from one or more folders of runs."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Where the runs are; folders below count too."""
    json: bool = False
    """One JSON document instead of sentences."""


def recommend(arguments: RecommendArguments) -> None:
    """A sentence for each algorithm and env."""
    from bsrs.stats.recommend import recommend as recommend_eta
    from bsrs.stats.records import read_runs, series_of

    runs: list[RunRecord] = []
    for folder in arguments.folders:
        read, damaged = read_runs(folder)
        runs += read
        for run, why in damaged.items():
            say(f"{run.name} is damaged and counts nowhere: {why}")
    found = recommend_eta(series_of(runs))
    if not found:
        folders = ", ".join(map(str, arguments.folders))
        raise BadInput(f"{folders}: no ended run with an eta other than 0; expected a sweep over eta")
    if arguments.json:
        print(json_format.dumps({"recommendations": [_record(each) for each in found]}, indent=1))
    else:
        print_recommendations(found)


def print_recommendations(found: Sequence[Recommendation]) -> None:
    """Each behind the name of its task."""
    for each in found:
        variant = f" ({each.variant})" if each.variant else ""
        print(printable(f"{each.task.env} · {each.task.algorithm}{variant}: {each.sentence}"))


def _record(each: Recommendation) -> dict[str, object]:
    gain = {name: _finite(value) for name, value in asdict(each.gain).items()} if each.gain else None
    about = {"sweep": str(each.task.sweep), "algorithm": each.task.algorithm, "env": each.task.env}
    answer = {"eta": each.eta, "sentence": each.sentence, "best": each.best, "gain": gain}
    return {**about, "variant": each.variant, **answer, "more_seeds": each.more_seeds}


def _finite(value: object) -> object:
    """JSON has no infinity: an end that is not known is null."""
    return None if isinstance(value, float) and abs(value) == float("inf") else value
