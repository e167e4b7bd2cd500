"""What a sweep looks like while it runs: a table in a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsrs.config.settings import folder_name
from bsrs.config.training import TrainingConfig
from bsrs.errors import printable
from bsrs.store.files import Damaged, is_count, is_number, open_regular, parse_json
from bsrs.store.lock import is_held
from bsrs.store.read import checkpoint_step
from bsrs.store.table import RunStatus

SECONDS_BETWEEN_LINES = 30.0
_MAX_ROWS = 16
# Enough for the last lines of a file of records.
_TAIL = 4096


@dataclass(frozen=True)
class Pulse:
    """Progress of an unfinished run."""

    step: int
    score: float | None
    steps_per_s: float | None


class SweepView:
    """On standard error: a line for each run that ends, and the running ones in a live table, or every now and then."""

    transient = True
    """Whether the live table is removed at the end."""

    def __init__(self, root: Path, left: Sequence[TrainingConfig], total: int) -> None:
        self._root = root
        self._live: Any = None
        self.screen: AbstractContextManager[Any] = nullcontext()
        """Holds the terminal while the sweep runs."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            # No thread of its own, for worker processes may be forked from this one.
            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=self.transient)
            self.screen = self._live
        self._total, self._ended, self._failed = total, total - len(left), 0
        self._left = {folder_name(config): config.steps for config in left}
        self._first = {name: checkpoint_step(root / name) for name in self._left}
        self._began = self._last_lines = time.monotonic()
        self._trained = 0

    def count(self, status: RunStatus) -> None:
        """Count a run that has ended."""
        self._ended += 1
        self._failed += status.state == "failed"
        self._left.pop(status.name, None)
        self._trained += status.step - self._first.get(status.name, 0)

    def run_ended(self, status: RunStatus) -> None:
        self.count(status)
        score = "" if status.score is None else f", score {status.score:.1f}"
        reason = f" ({status.reason})" if status.reason else ""
        how = f"{status.name}: {status.state} at step {status.step:,}{score}{reason}"
        self.message(f"[{self._ended}/{self._total}] {how}")

    def message(self, text: str) -> None:
        text = printable(text)
        if self._live:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def tick(self) -> None:
        if not self._live and time.monotonic() - self._last_lines < SECONDS_BETWEEN_LINES:
            return
        self._last_lines = time.monotonic()
        running = {name: pulse(self._root / name) for name in self._left if is_held(self._root / name / "lock")}
        rows = [self._row(name, one) for name, one in list(running.items())[:_MAX_ROWS]]
        more = f"and {len(running) - len(rows)} more" if len(running) > len(rows) else ""
        if self._live:
            self._live.update(_table(self._headline(running), rows, more), refresh=True)
            return
        self.message(self._headline(running))
        for row in rows:
            self.message(f"    {row['run']}: step {row['step']}, {row['steps/s']} steps/s, score {row['score']}")
        if more:
            self.message(f"    {more}")

    def _row(self, name: str, one: Pulse) -> dict[str, str]:
        rate = "–" if one.steps_per_s is None else f"{one.steps_per_s:,.0f}"
        score = "–" if one.score is None else f"{one.score:.1f}"
        return {"run": name, "step": f"{one.step:,} of {self._left[name]:,}", "steps/s": rate, "score": score}

    def _headline(self, running: dict[str, Pulse]) -> str:
        parts = [f"{self._ended} of {self._total} runs done", f"{len(running)} running"]
        parts += [f"{self._failed} failed"] if self._failed else []
        begun = sum(max(one.step - self._first[name], 0) for name, one in running.items())
        to_train = sum(steps - self._first[name] for name, steps in self._left.items()) - begun
        if trained := self._trained + begun:
            parts.append(f"{duration(to_train * (time.monotonic() - self._began) / trained)} left")
        return ", ".join(parts)


def pulse(folder: Path) -> Pulse:
    """Read how far an unfinished run is, from the last lines of its records."""
    lines = _last_lines(folder / "metrics.jsonl")
    timing = _last_lines(folder / "timing.jsonl")
    scores = [line.get("score") for line in lines if line.get("kind") == "eval"]
    rate = timing[-1].get("steps_per_s") if timing else None
    return Pulse(
        step=max((line["step"] for line in lines if is_count(line.get("step"))), default=0),
        score=scores[-1] if scores and is_number(scores[-1]) else None,
        steps_per_s=rate if is_number(rate) else None,
    )


def _last_lines(path: Path) -> list[dict[str, Any]]:
    """Read the last whole lines of a file that may still be written to, without damaged ones."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            pieces = file.read(_TAIL).split(b"\n")
    except (FileNotFoundError, Damaged):
        return []
    lines = []
    for piece in pieces[:-1] if size <= _TAIL else pieces[1:-1]:
        try:
            lines.append(parse_json(piece, str(path)))
        except Damaged:
            continue
    return [line for line in lines if isinstance(line, dict)]


def duration(seconds: float) -> str:
    """Format seconds as people read them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def _table(headline: str, rows: list[dict[str, str]], more: str) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None)
    for column in rows[0] if rows else ():
        table.add_column(column, justify="left" if column == "run" else "right")
    for row in rows:
        table.add_row(*row.values())
    return Group(headline, table, more)
