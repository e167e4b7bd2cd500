"""How far a run is: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bsrs.train import Progress

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def show_progress(steps: int, title: str) -> Iterator[Progress]:
    """What the training loop calls at each record."""
    if sys.stderr.isatty():
        with _bar(steps, title) as progress:
            yield progress
    else:
        yield _lines(steps, title)


@contextmanager
def _bar(steps: int, title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, TextColumn("{task.fields[told]}"), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=steps, told="")

        def show(step: int, steps_per_s: float, score: float | None, train_return: float | None) -> None:
            bar.update(task, completed=min(step, steps), told=_told(steps_per_s, score, train_return))

        yield show


def _lines(steps: int, title: str) -> Progress:
    last = -SECONDS_BETWEEN_LINES

    def show(step: int, steps_per_s: float, score: float | None, train_return: float | None) -> None:
        nonlocal last
        if time.monotonic() - last < SECONDS_BETWEEN_LINES and step < steps:
            return
        last = time.monotonic()
        left = time.strftime("%H:%M:%S", time.gmtime(max(steps - step, 0) / max(steps_per_s, 1e-9)))
        told = _told(steps_per_s, score, train_return)
        print(f"{title}  step {step:,} of {steps:,}  {told}  {left} left", file=sys.stderr, flush=True)

    return show


def _told(steps_per_s: float, score: float | None, train_return: float | None) -> str:
    words = [f"{steps_per_s:,.0f} steps/s"]
    words += [f"score {score:.1f}"] if score is not None else []
    words += [f"return {train_return:.1f}"] if train_return is not None else []
    return "  ".join(words)
