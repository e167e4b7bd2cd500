"""Commands as a user gives them, each in a process of its own that is forked from one with everything imported."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

IMPORTED = """
    bsrs.cli.flags bsrs.cli.results bsrs.cli.tabular bsrs.cli.training
    bsrs.learners bsrs.play bsrs.report experiments.experiments bsrs.run bsrs.store.table bsrs.sweep.conduct
    bsrs.sweep.measure bsrs.agents.dqn bsrs.agents.td3 bsrs.agents.sac duckdb jinja2 pandas plotly.offline
    torch._dynamo tyro PIL.Image
""".split()
CPU_SECONDS, WALL_SECONDS = 60, 300  # beyond either, a call hangs
CRASHED = 70


_stop: list[int] = []


def stop_when_told() -> None:
    """After SIGTERM the attack ends early, with the table of what was done until then."""
    signal.signal(signal.SIGTERM, lambda number, frame: _stop.append(number))


def stopped() -> bool:
    return bool(_stop)


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    code: int
    """Exit code, minus the signal, or CRASHED after an exception that nobody caught."""
    said: str
    """Standard output and error."""

    @property
    def fault(self) -> str:
        """What a user should never see, or nothing."""
        if self.code in (-signal.SIGKILL, -signal.SIGPROF):
            return "hang"
        if self.code == CRASHED or "Traceback (most recent call last)" in self.said:
            return "traceback"
        return "" if self.code in (0, 1, 2) else f"exit code {self.code}"


def bsrs(words: Sequence[str], folder: Path) -> Ended:
    """`bsrs WORDS...` in `folder`."""

    def command() -> None:
        from bsrs.cli import main

        main(list(words))

    return call(command, folder)


def call(function: Callable[[], Any], folder: Path) -> Ended:
    """The function, its output caught. In `in_child` there is no process between."""
    with tempfile.TemporaryFile() as said:
        code = _answer(function, folder, said.fileno())
        said.seek(0)
        return Ended(code, said.read().decode(errors="replace"))


def in_child(jobs: Sequence[int], do: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
    """`do` each of the jobs in a forked process, which a call that crashes or hangs ends: number and answer (JSON),
    or how the process ended. The others are done in another one."""
    left = list(jobs)
    while left:
        with tempfile.NamedTemporaryFile() as answers:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.setsid()
                for number in left:
                    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                    os.write(answers.fileno(), (json.dumps(do(number)) + "\n").encode())
                os._exit(0)
            code = _wait(child, Path(answers.name))
            done = Path(answers.name).read_text().splitlines()
        yield from zip(left, map(json.loads, done), strict=False)
        left = left[len(done) :]
        if left:
            yield left.pop(0), code


def _answer(function: Callable[[], Any], folder: Path, said: int) -> int:
    environment, path, here = dict(os.environ), list(sys.path), os.getcwd()
    kept = [os.dup(1), os.dup(2)]
    streams = sys.stdout, sys.stderr
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = (_stream(number) for number in (1, 2))
    os.chdir(folder)
    code = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            function()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    sys.stdout, sys.stderr = streams
    for number, original in zip((1, 2), kept, strict=True):
        os.dup2(original, number)
        os.close(original)
    os.chdir(here)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    return code


def _stream(number: int) -> TextIO:
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def _wait(child: int, answers: Path) -> int:
    """Until it has ended, or has not answered for too long."""
    until, size, pause = time.monotonic() + WALL_SECONDS, 0, 0.001
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if answers.stat().st_size > size:
            until, size = time.monotonic() + WALL_SECONDS, answers.stat().st_size
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def import_everything() -> None:
    """What commands import, so that it is imported once."""
    for name in IMPORTED:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
