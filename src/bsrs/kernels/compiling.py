"""How the package compiles: numba, cached where a folder can be written to, and announced where it takes a while."""

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import njit

from bsrs.errors import say

Function = TypeVar("Function", bound=Callable[..., Any])
PATIENCE_S = 1.0


def compiled(*signature: Any, **options: Any) -> Callable[[Function], Function]:
    """Compile a function, with numba's cache if there is a folder for it: a read-only home must not end a run."""

    def decorate(function: Function) -> Function:
        try:
            with _cache_of_these_sources():
                return njit(*signature, cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # numba found no folder for its cache
            return njit(*signature, **options)(function)  # type: ignore[no-any-return]

    return decorate


@contextmanager
def _cache_of_these_sources() -> Iterator[None]:
    """Give each version of this folder a cache of its own.

    Numba looks only at the file of the function that is called, so a change in a function that it calls would go
    unnoticed. Where this folder cannot be written to, numba looks for another.
    """
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(Path(before or Path(__file__).parent / "__pycache__") / _digest())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


@functools.cache
def _digest() -> str:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


class Announcement:
    """Prints one line if what happens inside takes longer than a moment."""

    def __init__(self, what: str) -> None:
        self._timer = threading.Timer(PATIENCE_S, say, (what,))
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
