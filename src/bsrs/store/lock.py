"""A lock that a dead process does not hold: the system lets go of it when its process ends, however it ends."""

import fcntl
import json
import os
import platform
import time
from pathlib import Path

from bsrs.errors import BadInput
from bsrs.store.files import Damaged, open_regular, read_json
from bsrs.writing import Denied, own_file

# `is_held` takes the lock for an instant, so whoever wants it asks again for this long.
PATIENCE_S = 0.5


class Busy(BadInput):
    """Another process holds the lock."""


class Lock:
    """Held by one process at a time. The file says by whom, for people; the lock itself is the system's."""

    def __init__(self, path: Path, what: str) -> None:
        self._descriptor = own_file(path, os.O_RDWR)
        until = time.monotonic() + PATIENCE_S
        try:
            while not _taken(self._descriptor, fcntl.LOCK_EX, path):
                if time.monotonic() > until:
                    raise Busy(f"{what} is being run by another process ({holder(path)})")
                time.sleep(0.02)
            about = {"host": platform.node(), "pid": os.getpid()}
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(about).encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)


def is_held(path: Path | str) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = open_regular(path)
    except (FileNotFoundError, Damaged, Denied):
        return False
    try:
        return not _taken(descriptor, fcntl.LOCK_SH, path)
    finally:
        os.close(descriptor)


def holder(path: Path) -> str:
    """Name the process that took the lock last."""
    try:
        about = read_json(path)
        return f"process {int(about['pid'])} on {about['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "which one is not known"


def _taken(descriptor: int, kind: int, path: Path | str) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise BadInput(f"{path} cannot be locked ({error.strerror}): expected a file system with locks") from None
    return True
