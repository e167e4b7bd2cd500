"""Contestants in processes of their own, so that each one's memory is its own, taking turns in short blocks, so that
all see the same machine. What counts are ratios of medians."""

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


class Worker:
    """An object that `build(**settings)` makes in a process of its own; its methods are called over a pipe."""

    def __init__(self, build: Callable[..., Any], **settings: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, settings), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> None:
        """Call a method; `answer` has what it returns."""
        self._pipe.send((method, arguments))

    def answer(self, limit: float | None = None) -> Any:
        """What the call returned; TimeoutError if that takes more than `limit` seconds."""
        if not self._pipe.poll(limit):
            raise TimeoutError
        try:
            return self._pipe.recv()
        except EOFError:
            raise RuntimeError("a contestant's process died: its error is printed above") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._pipe.close()
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, build: Callable[..., Any], settings: dict[str, Any]) -> None:
    served = build(**settings)
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(served, method)(*arguments))


class Runner(Protocol):
    """What a contestant does, in its own process."""

    def run(self, steps: int) -> None:
        """Go on for that many env steps."""

    def report(self) -> dict[str, Any]:
        """What else is to be known, at the end."""


class _Timed:
    """A `Runner` with a stopwatch."""

    def __init__(self, runner: Callable[..., Runner], processor_time: bool, **settings: Any) -> None:
        self._runner = runner(**settings)
        self._clock = time.process_time if processor_time else time.perf_counter

    def run(self, steps: int) -> float:
        """Its steps per second."""
        return steps / seconds_of(lambda: self._runner.run(steps), self._clock)

    def report(self) -> dict[str, Any]:
        return {**self._runner.report(), "peak_mb": peak_mb()}


def seconds_of(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long a call takes."""
    start = clock()
    call()
    return clock() - start


def peak_mb() -> float:
    """The most memory that this process has had at once."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


@dataclass(frozen=True)
class Result:
    """How a contestant did."""

    rates: tuple[float, ...]
    """Steps per second of each block, of all its processes together."""
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
    processes: int = 1,
    processor_time: bool = False,
    tell: Tell = silent,
) -> dict[str, Result]:
    """All contestants by name, each `rounds` blocks of `steps` steps after one of `warm_up`, in turns. Each of them may
    be several `processes` at the same time. `processor_time` is for contestants with one thread: then other programs
    do not count."""
    with ExitStack() as stack:
        contestants = {
            name: [
                stack.enter_context(Worker(_Timed, runner=build, processor_time=processor_time, **given))
                for _ in range(processes)
            ]
            for name, (build, given) in builds.items()
        }
        for name, workers in contestants.items():
            tell(f"{name}: warming up")
            _answers(workers, "run", warm_up)
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds):
            tell(f"round {turn + 1} of {rounds}")
            for name in rotated(list(contestants), turn):
                rates[name].append(sum(_answers(contestants[name], "run", steps)))
        reports = {name: _answers(workers, "report") for name, workers in contestants.items()}
    return {
        name: Result(tuple(rates[name]), {**each[0], "peak_mb": sum(report["peak_mb"] for report in each)})
        for name, each in reports.items()
    }


def _answers(workers: Sequence[Worker], method: str, *arguments: Any) -> list[Any]:
    """Of all of them, asked at the same time."""
    for worker in workers:
        worker.ask(method, *arguments)
    return [worker.answer() for worker in workers]


def rotated(contestants: Sequence[Any], turn: int) -> list[Any]:
    """Nobody is always first."""
    shift = turn % len(contestants)
    return [*contestants[shift:], *contestants[:shift]]


def time_shares(run: Callable[[], None], parts: Mapping[str, tuple[Any, str]]) -> dict[str, float]:
    """What part of the time of `run` is spent in each of the named methods (owner, name), and in the rest."""
    seconds: Counter[str] = Counter()
    for part, (owner, method) in parts.items():
        setattr(owner, method, _timed(getattr(owner, method), part, seconds))
    total = seconds_of(run)
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


# ---- how near to the machine's own speed


def matrix_rate(threads: int | None = None, size: int = 1024, repetitions: int = 20) -> float:
    """Floating-point operations per second of a large matrix product, on PyTorch's threads or that many; on one
    thread, of processor time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    a, b = torch.randn(size, size), torch.randn(size, size)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = [seconds_of(lambda: torch.mm(a, b), clock) for _ in range(repetitions)]
    torch.set_num_threads(before)
    return float(2 * size**3 / sorted(seconds)[repetitions // 4])


def operations(call: Callable[[], object]) -> float:
    """Floating-point operations in the matrix products and convolutions of a call, as PyTorch counts them, and in what
    `bsrs.agents.compiled` computes."""
    from torch.utils.flop_counter import FlopCounterMode

    from bsrs.agents import compiled

    products = 0.0

    def counting(kernel: Callable[..., Any], passes: Callable[..., float]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            nonlocal products
            products += 2 * passes(*args)
            return kernel(*args)

        return counted

    def forward(*args: Any) -> float:
        *_, sizes, _, _, _, out = args
        return float(out.shape[0] * out.shape[1] * (sizes[:-1] @ sizes[1:]))

    def learn(_sgemm: int, _spans: Any, stem: int, *others: Any) -> float:
        _, _, numbers, sizes, _, _, grad_output, *_ = others
        layers = sizes[:-1] * sizes[1:]
        return float(grad_output.shape[1] * len(numbers) * (layers.sum() + layers[0 if stem else 1 :].sum()))

    def input_gradient(*args: Any) -> float:
        *_, sizes, grad_output, _ = args
        return float(grad_output.shape[0] * grad_output.shape[1] * (sizes[:-1] @ sizes[1:]))

    kernels = {passes.__name__: getattr(compiled, passes.__name__) for passes in (forward, learn, input_gradient)}
    for passes in (forward, learn, input_gradient):
        setattr(compiled, passes.__name__, counting(kernels[passes.__name__], passes))
    try:
        with FlopCounterMode(display=False) as counter:
            call()
    finally:
        for name, kernel in kernels.items():
            setattr(compiled, name, kernel)
    return float(counter.get_total_flops() + products)
