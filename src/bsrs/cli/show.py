"""What commands print: tables, answers, and how far a run or a solver is."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bsrs.errors import printable
from bsrs.store.files import finite
from bsrs.sweep.view import duration

if TYPE_CHECKING:
    from bsrs.stats.recommend import Recommendation
    from bsrs.train import Progress

SECONDS_BETWEEN_LINES = 10.0


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(finite(document), indent=2))


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows that share their keys, as a table; nothing where there are none."""
    if not rows:
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(printable(title)), title_justify="left")
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.4g}" if isinstance(value, float) else "–" if value is None else printable(str(value))


def print_recommendations(found: Sequence[Recommendation]) -> None:
    """Each behind the name of its task."""
    for each in found:
        variant = f" ({each.variant})" if each.variant else ""
        print(printable(f"{each.task.env} · {each.task.algorithm}{variant}: {each.sentence}"))


# --------------------------------------------------------------------------------------------------------------
# How far it is: a bar in a terminal, plain lines elsewhere.

# Called with how much is done, what a bar does not show by itself, and the whole as a line.
Meter = Callable[[float, str, str], None]


@contextmanager
def show_progress(steps: int, title: str) -> Iterator[Progress]:
    """What the training loop calls at each record."""

    def show(step: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None:
        words = [f"{steps_per_s:,.0f} steps/s"]
        words += [f"score {score:.1f}"] if score is not None else []
        words += [f"return {record['return']:.1f}"] if "return" in record else []
        status = "  ".join(words + [f"{name} {record[name]:.2f}" for name in ("eta", "share") if name in record])
        if "loss" in record and step < steps and steps_per_s > 0:  # before it learns, steps are quicker
            status += f"  {duration((steps - step) / steps_per_s)} left"
        meter(min(step, steps), status, f"step {step:,} of {steps:,}  {status}")

    with _bar(steps, title) if sys.stderr.isatty() else _lines(steps, title, ends=True) as meter:
        yield show


@contextmanager
def watch_residual(tol: float, title: str) -> Iterator[Callable[[int, float], None]]:
    """What a tabular solver calls with its applications and residual: how far the residual has fallen towards `tol`."""
    start, first = time.monotonic(), math.inf

    def watch(applications: int, residual: float) -> None:
        nonlocal first
        first = max(residual, tol) if math.isinf(first) else first
        way = math.log(first / tol)  # residuals fall geometrically, so the way is measured in logarithms
        done = math.log(first / max(residual, tol)) / way if way > 0 and residual < math.inf else 0.0
        rate = applications / max(time.monotonic() - start, 1e-9)
        status = f"{applications:,} applications, {rate:,.0f}/s, residual {residual:.1e}"
        meter(max(done, 0.0), status, status)

    with _bar(1, title) if sys.stderr.isatty() else _lines(math.inf, title, ends=False) as meter:
        yield watch


@contextmanager
def _bar(total: int, title: str) -> Iterator[Meter]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = [MofNCompleteColumn()] if total > 1 else [TimeRemainingColumn()]
    columns = TextColumn("{task.description}"), BarColumn(), *count
    status = TextColumn("{task.fields[status]}", markup=False)
    with Progress(*columns, status, console=Console(stderr=True), transient=total == 1) as bar:
        task = bar.add_task(escape(title), total=total, status="")
        yield lambda done, status, _: bar.update(task, completed=done, status=status)


@contextmanager
def _lines(total: float, title: str, *, ends: bool) -> Iterator[Meter]:
    """A line every now and then; with `ends` also at once, and at the end."""
    last, waiting = -math.inf if ends else time.monotonic(), ""

    def tell(done: float, _: str, line: str) -> None:
        nonlocal last, waiting
        waiting = line
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES and done < total:  # the end is told at the end
            last, waiting = time.monotonic(), ""
            print(f"{title}  {line}", file=sys.stderr, flush=True)

    yield tell
    if waiting and ends:
        print(f"{title}  {waiting}", file=sys.stderr, flush=True)
