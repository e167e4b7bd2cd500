"""A race: contestants in processes of their own, so that each one's memory is its own, taking turns in short blocks,
so that all see the same machine. What counts are ratios of medians."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self

Tell = Callable[[str], None]
"""What takes a line about how far a benchmark is."""


def silent(_line: str) -> None:
    """A `Tell` for those who do not watch."""


class Runner(Protocol):
    """What a contestant does, in its own process."""

    def run(self, steps: int) -> None:
        """Go on for that many env steps."""

    def report(self) -> dict[str, Any]:
        """What else is to be known, at the end."""


class Contestant:
    """A `Runner` in a process of its own, made there by `build(**settings)`; or several such at the same time."""

    def __init__(self, build: Callable[..., Runner], *, processes: int = 1, **settings: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, build, settings), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, steps: int) -> float:
        """Steps per second of one block, of all processes together."""
        return sum(steps / float(seconds) for seconds in self._ask(steps))

    def report(self) -> dict[str, Any]:
        """What the first process' runner reports, with the `peak_mb` of all of them."""
        reports: list[dict[str, Any]] = self._ask(None)
        return {**reports[0], "peak_mb": sum(report["peak_mb"] for report in reports)}

    def _ask(self, question: int | None) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(question)
        try:
            return [pipe.recv() for pipe in self._pipes]
        except EOFError:
            raise RuntimeError("a contestant's process died: its error is printed above") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.terminate()
            process.join()


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
    builds: Mapping[str, tuple[Callable[..., Runner], dict[str, Any]]],
    *,
    steps: int,
    rounds: int,
    warm_up: int,
    tell: Tell = silent,
) -> dict[str, Result]:
    """All contestants by name, each `rounds` blocks of `steps` steps after one of `warm_up`, in turns."""
    with ExitStack() as stack:
        contestants = {
            name: stack.enter_context(Contestant(build, **settings)) for name, (build, settings) in builds.items()
        }
        for name, contestant in contestants.items():
            tell(f"{name}: warming up")
            contestant.run(warm_up)
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds):
            tell(f"round {turn + 1} of {rounds}")
            for name in _rotated(list(contestants), turn):
                rates[name].append(contestants[name].run(steps))
        return {name: Result(tuple(rates[name]), contestant.report()) for name, contestant in contestants.items()}


def _rotated(names: Sequence[str], turn: int) -> list[str]:
    """Nobody is always first."""
    shift = turn % len(names)
    return [*names[shift:], *names[:shift]]


def time_shares(run: Callable[[], None], parts: Mapping[str, tuple[Any, str]]) -> dict[str, float]:
    """What part of the time of `run` is spent in each of the named methods (owner, name), and in the rest."""
    seconds: Counter[str] = Counter()
    for part, (owner, method) in parts.items():
        setattr(owner, method, _timed(getattr(owner, method), part, seconds))
    start = time.perf_counter()
    run()
    total = time.perf_counter() - start
    shares = {part: seconds[part] / total for part in parts}
    return {name: round(share, 3) for name, share in {**shares, "rest": 1 - sum(shares.values())}.items()}


def _timed(call: Callable[..., Any], part: str, seconds: Counter[str]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = call(*args, **kwargs)
        seconds[part] += time.perf_counter() - start  # type: ignore[assignment]
        return result

    return timed


def median_ratio(ours: Result, theirs: Result) -> float:
    """How many times as fast we were, the median over the rounds: neighbours in time are compared."""
    return statistics.median(a / b for a, b in zip(ours.rates, theirs.rates, strict=True))
