"""Files that are whole or absent, whatever happens to the process that writes them."""

from __future__ import annotations

import errno
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bsrs.errors import BadInput


class DiskFull(BadInput):
    """There was no space for a file."""


class Damaged(BadInput):
    """What is needed to go on with a run is not as it was written. `run` is its folder."""

    def __init__(self, run: Path, what: str) -> None:
        super().__init__(what)
        self.run = run


@contextmanager
def clear_words_when_full(folder: Path) -> Iterator[None]:
    """A full disk is the user's to mend, and nothing that was finished is lost by it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(
            f"no space left for {folder}: what was written before is whole; free some space and use --resume"
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content at once."""
    aside = path.with_name(f"{path.name}.new")
    with clear_words_when_full(path.parent):
        with aside.open("wb") as file:
            file.write(content)
            flush(file.fileno())
        aside.replace(path)
        flush_folder(path.parent)


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} is damaged: expected an object")
    return content


def flush(descriptor: int) -> None:
    os.fsync(descriptor)


def flush_folder(folder: Path) -> None:
    """Make a rename in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


BEGINNING = {"size": 0, "checksum": 0}


class Lines:
    """An append-only file of JSON lines, each whole or absent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, line: dict[str, Any]) -> None:
        content = (json.dumps(_finite(line), allow_nan=False) + "\n").encode()
        before = self.size()
        with clear_words_when_full(self._path.parent):
            try:
                if os.write(self._descriptor, content) < len(content):
                    raise OSError(errno.ENOSPC, "no space left on device")
            except OSError:
                os.ftruncate(self._descriptor, before)
                raise

    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._descriptor).st_size

    def mark(self) -> dict[str, int]:
        """Where the file ends now, and the checksum of all before."""
        size = self.size()
        return {"size": size, "checksum": self._checksum(size)}

    def cut(self, mark: dict[str, int]) -> None:
        """Forget what was written after the mark."""
        if self.size() < mark["size"] or self._checksum(mark["size"]) != mark["checksum"]:
            raise Damaged(
                self._path.parent,
                f"{self._path} is not as it was at the last checkpoint: remove that to start the run again",
            )
        os.ftruncate(self._descriptor, mark["size"])

    def _checksum(self, size: int) -> int:
        return zlib.crc32(os.pread(self._descriptor, size, 0))

    def flush(self) -> None:
        flush(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; one that a killed process left half-written at the end does not count."""
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                lines.append(json.loads(line))
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise BadInput(f"{path}, line {number} is damaged: {error}") from None
    return lines


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
