"""How files are written: whole or not at all, and never through a link.

A run folder may come from elsewhere: a link in it must not lead what is written to another file. So everything that is
written into a run folder goes through `new_file`, `own_file`, `own_folder` or `write_whole`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bsrs.errors import BadInput

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_RESOURCES = (*_NO_SPACE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


class Denied(BadInput):
    """The system, or something in the way, does not let a file be used. What was written before is still there."""


class Exhausted(BadInput):
    """Memory, file descriptors or disk space ran out. What was written before is still there."""


class DiskFull(Exhausted):
    """There was no space for a file."""


@contextmanager
def explained(what: Path | str) -> Iterator[None]:
    """Turn errors of the system into a sentence; `what` was to be read or written."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull(
                f"no space left for {what}: what was written before is whole; free some space and repeat the command"
            ) from error
        if error.errno in _NO_RESOURCES:
            raise Exhausted(f"{what}: {error.strerror}; the last checkpoint is still there") from error
        raise Denied(f"{what} cannot be used: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Make the folder and those above it, where they are missing."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


def own_folder(folder: Path) -> Path:
    """Make a folder inside a run folder, or find it there; a link in its place is refused."""
    with explained(folder):
        if not os.path.lexists(folder):
            folder.mkdir()
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise Denied(f"{folder} is a link or a file; expected a folder")
    return folder


def own_file(path: Path, flags: int) -> int:
    """Open or create a file that is written to again and again: not a link, and without a second name."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody at its other end.
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Denied(f"{path} is a link; expected a regular file") from None
        with explained(path):
            raise
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(descriptor)
        what = "has a second name (a hard link)" if stat.S_ISREG(about.st_mode) else "is not a regular file"
        raise Denied(f"{path} {what}; expected a regular file of its own")
    return descriptor


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Create a file that outlives a power cut. Whatever had its name is removed first, not what a link led to."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content at once: a reader sees the old or the new, whenever the writer dies."""
    aside = path.with_name(f"{path.name}.new")
    with explained(path):
        with new_file(aside) as file:
            file.write(content)
        aside.replace(path)
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make what was created or renamed in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
