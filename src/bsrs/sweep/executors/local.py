"""Worker processes of this machine, each with its threads pinned: N workers on N cores do not get in each other's way.

Workers live on from task to task, for starting one takes longer than a short run: they are forked from a server
that has imported what they need. They die with the process that started them.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import BaseContext
from types import ModuleType
from typing import Any, Literal

from bsrs.sweep.executors import THREADS
from bsrs.sweep.tasks import Ended, Task, work

# All that a run imports sooner or later, the optimiser's torch._dynamo among it.
PRELOAD = ("bsrs.run", "bsrs.agents.dqn", "bsrs.agents.td3", "torch._dynamo", "torch.utils.tensorboard")


@dataclass
class _Worker:
    process: Any
    connection: Connection
    task: Task | None = None


class LocalExecutor:
    """`workers` processes; 0 is one for each core that this process may use."""

    def __init__(
        self, workers: int = 0, threads: int = 1, start_method: Literal["forkserver", "fork"] = "forkserver"
    ) -> None:
        self._most = workers or len(os.sched_getaffinity(0))
        self._threads = threads
        self._context: BaseContext = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            self._context.set_forkserver_preload(list(PRELOAD))
        self._queue: deque[Task] = deque()
        self._workers: list[_Worker] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        self._queue.extend(tasks)
        self._feed()

    def wait(self, timeout: float) -> list[Ended]:
        busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
        ended = [self._answer(busy[connection]) for connection in wait_for(list(busy), timeout)]  # type: ignore[index]
        self._feed()
        return ended

    def close(self) -> None:
        self._queue.clear()
        for worker in list(self._workers):
            self._end(worker)

    def _feed(self) -> None:
        """Give idle workers the tasks that wait; start workers while there are more tasks than that."""
        while self._queue:
            worker = next((worker for worker in self._workers if worker.task is None), None)
            if worker is None:
                if len(self._workers) == self._most:
                    return
                worker = self._start()
            try:
                worker.connection.send(self._queue[0])
            except OSError:  # it died while it had nothing to do
                self._end(worker)
                continue
            worker.task = self._queue.popleft()

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs,), daemon=True)  # type: ignore[attr-defined]
        with _pinned(self._threads), _no_main_module():
            with _ignoring_ctrl_c():
                if self._context.get_start_method() == "forkserver":
                    forkserver.ensure_running()
            process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _answer(self, worker: _Worker) -> Ended:
        task, worker.task = worker.task, None
        assert task is not None
        try:
            answer: Ended = worker.connection.recv()
            return answer
        except (EOFError, ConnectionResetError):
            worker.process.join()
            code = worker.process.exitcode
            self._end(worker)
            return Ended(task, "lost", _cause(code))

    def _end(self, worker: _Worker) -> None:
        """Kill the worker: runs survive that."""
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.join()
        worker.connection.close()


def _cause(exit_code: int) -> str:
    if exit_code == -signal.SIGKILL:
        return "the worker was killed, as the system does when memory runs out"
    return f"the worker died with {'signal' if exit_code < 0 else 'exit code'} {abs(exit_code)}"


@contextmanager
def _pinned(threads: int) -> Iterator[None]:
    """Set the threads of the process that is started here."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update({name: str(threads) for name in THREADS})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _ignoring_ctrl_c() -> Iterator[None]:
    """Let processes started here ignore Ctrl-C from their beginning: a traceback from their imports helps nobody."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep a new process from importing the user's script: it does not need it, and the script may not expect it."""
    theirs = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = theirs


def _serve(connection: Connection) -> None:
    """Work off tasks until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the one that started us decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(work(task))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)
