"""How far a run or a solver is: a bar in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bsrs.sweep.view import duration
from bsrs.train import Progress

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(steps: int, title: str) -> Iterator[Progress]:
    """What the training loop calls at each record."""
    if sys.stderr.isatty():
        with _bar(steps, title) as progress:
            yield progress
    else:
        yield from _lines(steps, title)


@contextmanager
def _bar(steps: int, title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, TextColumn("{task.fields[told]}"), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=steps, told="")

        def show(step: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None:
            bar.update(task, completed=min(step, steps), told=_told(steps_per_s, score, record))

        yield show


def _lines(steps: int, title: str) -> Iterator[Progress]:
    last, waiting = -SECONDS_BETWEEN_LINES, ""

    def show(step: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None:
        nonlocal last, waiting
        left = f"{duration((steps - step) / steps_per_s)} left" if step < steps and steps_per_s > 0 else ""
        waiting = f"{title}  step {step:,} of {steps:,}  {_told(steps_per_s, score, record)}  {left}".rstrip()
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES and step < steps:  # the end is told at the end
            last = time.monotonic()
            print(waiting, file=sys.stderr, flush=True)
            waiting = ""

    yield show
    if waiting:
        print(waiting, file=sys.stderr, flush=True)


@contextmanager
def watch_residual(tol: float, title: str) -> Iterator[Callable[[int, float], None]]:
    """What a tabular solver calls with its applications and residual: how far the residual has fallen towards `tol`."""
    if sys.stderr.isatty():
        with _residual_bar(tol, title) as watch:
            yield watch
    else:
        yield _residual_lines(title)


@contextmanager
def _residual_bar(tol: float, title: str) -> Iterator[Callable[[int, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[told]}"))
    start, first = time.monotonic(), math.inf
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, told="")

        def watch(applications: int, residual: float) -> None:
            nonlocal first
            first = max(residual, tol) if math.isinf(first) else first
            way = math.log(first / tol)  # residuals fall geometrically, so the way is measured in logarithms
            done = math.log(first / max(residual, tol)) / way if way > 0 and residual < math.inf else 0.0
            rate = applications / max(time.monotonic() - start, 1e-9)
            told = f"{applications:,} applications, {rate:,.0f}/s, residual {residual:.1e}"
            bar.update(task, completed=max(done, 0.0), told=told)

        yield watch


def _residual_lines(title: str) -> Callable[[int, float], None]:
    start = last = time.monotonic()

    def watch(applications: int, residual: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = applications / (now - start)
        print(f"{title}  {applications:,} applications  {rate:,.0f}/s  residual {residual:.1e}", file=sys.stderr)

    return watch


def _told(steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> str:
    words = [f"{steps_per_s:,.0f} steps/s"]
    words += [f"score {score:.1f}"] if score is not None else []
    words += [f"return {record['return']:.1f}"] if "return" in record else []
    words += [f"{name} {record[name]:.2f}" for name in ("eta", "share") if name in record]
    return "  ".join(words)
