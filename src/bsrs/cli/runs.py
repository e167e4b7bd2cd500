"""`bsrs runs DIR`: what a store holds."""

import csv
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from bsrs.config.sweep import RunFilter
from bsrs.errors import BadInput, printable
from bsrs.store.listing import RunStatus, list_runs

_COLUMNS = ("env", "algorithm", "eta", "seed", "step", "score", "state", "age", "name")
_RIGHT = {"eta", "seed", "step", "score", "age"}


@dataclass(frozen=True, kw_only=True)
class RunsArguments(RunFilter):
    """What `bsrs runs` takes."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A sweep's folder, or any folder with runs below it."""
    json: bool = False
    """Print one JSON document instead of a table."""
    csv: bool = False
    """Print comma-separated values instead, with a column for each setting of the configs."""
    sql: str = ""
    """Ask DuckDB instead: the tables are `runs` (a row each) and `records` (a row for each of their records)."""


def runs(arguments: RunsArguments) -> None:
    """List the runs, or answer a question about them."""
    which = RunFilter(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(RunFilter)})
    if arguments.sql:
        _answer(arguments.folder, which, arguments.sql)
        return
    found = list_runs(arguments.folder, which)
    if arguments.json:
        print(json.dumps({"runs": [dataclasses.asdict(status) for status in found]}, indent=2))
        return
    if arguments.csv:
        _print_csv(found)
        return
    _print_table(found)
    for status in found:
        if status.state in ("failed", "damaged"):
            print(printable(f"{status.name}: {status.reason}"))
    _print_summary(found, arguments.folder, which)


def _answer(folder: Path, which: RunFilter, sql: str) -> None:
    from bsrs.store.table import connect

    connection = connect(folder, which)
    import duckdb

    try:
        print(printable(str(connection.sql(sql)), keep="\n"))
    except duckdb.Error as error:
        raise BadInput(f"the question cannot be answered: {error}") from None


def _print_csv(found: Sequence[RunStatus]) -> None:
    from bsrs.store.table import run_row

    def text(value: Any) -> str:
        parts = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        return printable(" ".join(map(str, parts)))

    rows = [{key: text(value) for key, value in run_row(status).items()} for status in found]
    writer = csv.DictWriter(sys.stdout, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _print_table(found: Sequence[RunStatus]) -> None:
    """Plain columns: ten thousand rows are no place for ornament."""
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        cells = zip(_COLUMNS, row, widths, strict=True)
        print("  ".join(f"{cell:>{w}}" if name in _RIGHT else f"{cell:<{w}}" for name, cell, w in cells).rstrip())


def _row(status: RunStatus) -> tuple[str, ...]:
    cells = (
        status.env,
        status.algorithm,
        f"{status.eta:g}" if isinstance(status.eta, (int, float)) else status.eta,
        str(status.seed),
        f"{status.step:,}",
        "" if status.score is None else f"{status.score:.2f}",
        status.state,
        _age(status.age_s),
        status.name,
    )
    return tuple(map(printable, cells))


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _print_summary(found: Sequence[RunStatus], folder: Path, which: RunFilter) -> None:
    from bsrs.sweep.conduct import planned_runs

    counts = Counter(status.state for status in found)
    words = [f"{number} {state}" for state, number in sorted(counts.items())]
    waiting = set(planned_runs(folder)) - {status.name for status in found} if which == RunFilter() else set()
    words += [f"{len(waiting)} not begun"] if waiting else []
    print(f"{len(found)} runs" + (f": {', '.join(words)}" if words else ""))
