"""A race: contestants in processes of their own, so that each one's memory is its own, taking turns in short blocks,
so that all see the same machine. What counts are ratios of medians."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self


class Runner(Protocol):
    """What a contestant does, in its own process."""

    def run(self, steps: int) -> None:
        """Go on for that many env steps."""

    def report(self) -> dict[str, Any]:
        """What else is to be known, at the end."""


class Contestant:
    """A `Runner` in a process of its own, made there by `build(**settings)`."""

    def __init__(self, build: Callable[..., Runner], **settings: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, settings), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, steps: int) -> float:
        """Steps per second of one block."""
        return steps / float(self._ask(steps))

    def report(self) -> dict[str, Any]:
        """What the runner reports, with the `peak_mb` of its process."""
        report: dict[str, Any] = self._ask(None)
        return report

    def _ask(self, question: int | None) -> Any:
        self._pipe.send(question)
        try:
            return self._pipe.recv()
        except EOFError:
            raise RuntimeError("a contestant's process died: its error is printed above") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection, build: Callable[..., Runner], settings: dict[str, Any]) -> None:
    runner = build(**settings)
    while True:
        try:
            steps = pipe.recv()
        except EOFError:
            return
        if steps is None:
            pipe.send({**runner.report(), "peak_mb": peak_mb()})
        else:
            start = time.perf_counter()
            runner.run(steps)
            pipe.send(time.perf_counter() - start)


def peak_mb() -> float:
    """The most memory that this process has had at once."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@dataclass(frozen=True)
class Result:
    """How a contestant did."""

    rates: tuple[float, ...]
    """Steps per second of each block."""
    report: dict[str, Any]

    @property
    def steps_per_s(self) -> float:
        return statistics.median(self.rates)


def race(
    builds: Mapping[str, tuple[Callable[..., Runner], dict[str, Any]]], *, steps: int, rounds: int, warm_up: int
) -> dict[str, Result]:
    """All contestants by name, each `rounds` blocks of `steps` steps after one of `warm_up`, in turns."""
    with ExitStack() as stack:
        contestants = {
            name: stack.enter_context(Contestant(build, **settings)) for name, (build, settings) in builds.items()
        }
        for contestant in contestants.values():
            contestant.run(warm_up)
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds):
            for name in _rotated(list(contestants), turn):
                rates[name].append(contestants[name].run(steps))
        return {name: Result(tuple(rates[name]), contestant.report()) for name, contestant in contestants.items()}


def _rotated(names: Sequence[str], turn: int) -> list[str]:
    """Nobody is always first."""
    shift = turn % len(names)
    return [*names[shift:], *names[:shift]]


def median_ratio(ours: Result, theirs: Result) -> float:
    """How many times as fast we were, the median over the rounds: neighbours in time are compared."""
    return statistics.median(a / b for a, b in zip(ours.rates, theirs.rates, strict=True))
