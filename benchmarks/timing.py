"""Contestants in processes of their own, taking turns in short blocks, so that all see the same machine.

What counts are ratios of medians.
"""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, Self, TypeVar

import torch

Name = TypeVar("Name", bound=Hashable)


def tell(line: str) -> None:
    """Say on standard error how far a benchmark is."""
    print(line, file=sys.stderr, flush=True)


class Worker:
    """An object that `build` makes in a process of its own; its methods are called over a pipe."""

    def __init__(self, build: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, method: str, *arguments: Any, limit: float | None = None) -> Any:
        """Call a method and return what it returns; TimeoutError if that takes more than `limit` seconds."""
        self._pipe.send((method, arguments))
        if not self._pipe.poll(limit):
            raise TimeoutError
        try:
            return self._pipe.recv()
        except EOFError:
            raise RuntimeError("a contestant's process died: its error is printed above") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, whatever it does."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, build: Callable[[], Any]) -> None:
    served = build()
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(served, method)(*arguments))


class Runner(Protocol):
    """What a contestant does, in its own process."""

    def run(self, steps: int) -> float | None:
        """Train for that many env steps; return the seconds that count, or None for all of this process's own."""


class _Timed:
    """A `Runner` with a stopwatch of processor time."""

    def __init__(self, build: Callable[[], Runner]) -> None:
        self._runner = build()

    def run(self, steps: int) -> float:
        """Its steps per second."""
        start = time.process_time()
        own = self._runner.run(steps)
        return steps / (time.process_time() - start if own is None else own)


def race(
    builds: Mapping[Name, Callable[[], Runner]], *, steps: Mapping[Name, int], rounds: int
) -> dict[Name, list[float]]:
    """Run all contestants, each `rounds` blocks of its `steps` after one that does not count, in turns.

    Returns the steps per second of each block.
    """
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(partial(_Timed, build))) for name, build in builds.items()}
        for name, worker in workers.items():
            tell(f"{name}: warming up")
            worker.call("run", steps[name])
        rates: dict[Name, list[float]] = {name: [] for name in workers}
        for turn in range(rounds):
            tell(f"round {turn + 1} of {rounds}")
            for name in rotated(list(workers), turn):
                rates[name].append(workers[name].call("run", steps[name]))
        return rates


def rotated(contestants: Sequence[Any], turn: int) -> list[Any]:
    """Nobody is always first."""
    shift = turn % len(contestants)
    return [*contestants[shift:], *contestants[:shift]]


def median_ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median over the rounds: neighbours in time are compared."""
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def in_turns(calls: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, list[float]]:
    """Processor milliseconds of each call, one number for each round, after a round that warms up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.process_time()
            call(turn)
            if turn > 0:
                times[name].append((time.process_time() - start) * 1e3)
    return times


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Give PyTorch so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- how near to the machine's own speed


def matrix_rate(size: int = 1024, repetitions: int = 20) -> float:
    """Floating-point operations per second of processor time, in a large matrix product on one thread."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    with torch_threads(1):
        (seconds,) = in_turns({"product": lambda _: torch.mm(a, b)}, repetitions).values()
    return float(2 * size**3 / sorted(seconds)[repetitions // 4] * 1e3)


def operations(call: Callable[[], object]) -> float:
    """Floating-point operations in the matrix products and convolutions of a call, as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops())
