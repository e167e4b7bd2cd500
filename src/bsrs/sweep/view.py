"""What a sweep looks like while it runs: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bsrs.config.training import TrainingConfig
from bsrs.store.listing import Pulse, RunStatus, pulse
from bsrs.store.lock import is_held
from bsrs.store.names import folder_name
from bsrs.store.read import checkpoint_step
from bsrs.sweep.schedule import Watcher

if TYPE_CHECKING:
    from rich.console import Group

SECONDS_BETWEEN_LINES = 30.0
_MOST_ROWS = 16


@dataclass(frozen=True)
class Running:
    """A run that a process has now."""

    name: str
    steps: int
    pulse: Pulse


class Progress:
    """How far the sweep is, seen from the runs' folders."""

    def __init__(self, root: Path, left: Sequence[TrainingConfig], total: int) -> None:
        self.total, self.ended, self.failed = total, total - len(left), 0
        self._root = root
        self._left = {folder_name(config): config.steps for config in left}
        self._first = {name: checkpoint_step(root / name) for name in self._left}
        self._began, self._trained = time.monotonic(), 0

    def end(self, status: RunStatus) -> None:
        """A run has its result."""
        self.ended += 1
        self.failed += status.state == "failed"
        self._left.pop(status.name, None)
        self._trained += status.step - self._first.get(status.name, 0)

    def running(self) -> list[Running]:
        """The runs that a process has now."""
        return [
            Running(name, steps, pulse(self._root / name))
            for name, steps in self._left.items()
            if is_held(self._root / name / "lock")
        ]

    def seconds_left(self, running: Sequence[Running]) -> float | None:
        """At the speed of this sweep so far."""
        begun = sum(max(one.pulse.step - self._first[one.name], 0) for one in running)
        trained = self._trained + begun
        to_train = sum(steps - self._first[name] for name, steps in self._left.items()) - begun
        return to_train * (time.monotonic() - self._began) / trained if trained > 0 else None


@contextmanager
def watch(root: Path, left: Sequence[TrainingConfig], total: int) -> Iterator[Watcher]:
    """Show how the sweep goes on standard error."""
    progress = Progress(root, left, total)
    if not sys.stderr.isatty():
        yield PlainLines(progress)
        return
    from rich.console import Console
    from rich.live import Live

    # No thread of its own, for worker processes may be forked from this one.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield LiveTable(progress, live)


class PlainLines:
    """A line for each run that ends, and how far the others are every now and then."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = time.monotonic()

    def run_ended(self, status: RunStatus) -> None:
        self._progress.end(status)
        self.said(f"[{self._progress.ended}/{self._progress.total}] {ended_line(status)}")

    def said(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def tick(self) -> None:
        if time.monotonic() - self._last < SECONDS_BETWEEN_LINES:
            return
        self._last = time.monotonic()
        running = self._progress.running()
        self.said(_headline(self._progress, running))
        for one in running[:_MOST_ROWS]:
            self.said(f"    {one.name}: {_how_far(one)}")


class LiveTable:
    """The running runs as a table that is drawn over itself, below a line for each run that has ended."""

    def __init__(self, progress: Progress, live: object) -> None:
        from rich.live import Live

        assert isinstance(live, Live)
        self._progress, self._live = progress, live

    def run_ended(self, status: RunStatus) -> None:
        self._progress.end(status)
        self.said(f"[{self._progress.ended}/{self._progress.total}] {ended_line(status)}")

    def said(self, message: str) -> None:
        self._live.console.print(message, markup=False, highlight=False)

    def tick(self) -> None:
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        running = self._progress.running()
        table = Table(box=None, show_header=bool(running))
        for column in ("run", "step", "steps/s", "score"):
            table.add_column(column, justify="left" if column == "run" else "right")
        for one in running[:_MOST_ROWS]:
            rate = "" if one.pulse.steps_per_s is None else f"{one.pulse.steps_per_s:,.0f}"
            score = "" if one.pulse.score is None else f"{one.pulse.score:.1f}"
            table.add_row(one.name, f"{one.pulse.step:,} of {one.steps:,}", rate, score)
        return Group(_headline(self._progress, running), table)


def ended_line(status: RunStatus) -> str:
    """One run's result in words."""
    score = "" if status.score is None else f", score {status.score:.1f}"
    reason = f" ({status.reason})" if status.reason else ""
    return f"{status.name}: {status.state} at step {status.step:,}{score}{reason}"


def duration(seconds: float) -> str:
    """Seconds in words that people read."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def _headline(progress: Progress, running: Sequence[Running]) -> str:
    words = [f"{progress.ended} of {progress.total} runs done", f"{len(running)} running"]
    words += [f"{progress.failed} failed"] if progress.failed else []
    left = progress.seconds_left(running)
    return ", ".join(words + ([f"{duration(left)} left"] if left is not None else []))


def _how_far(one: Running) -> str:
    rate = "" if one.pulse.steps_per_s is None else f", {one.pulse.steps_per_s:,.0f} steps/s"
    score = "" if one.pulse.score is None else f", score {one.pulse.score:.1f}"
    return f"step {one.pulse.step:,} of {one.steps:,}{rate}{score}"
