"""Files that are whole or absent whatever happens to their writer, and that may be foreign when they are read.

Reading takes regular files only, up to a size: a link may lead to something private, a pipe or device never ends.
"""

import errno
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from bsrs.errors import BadInput
from bsrs.writing import explained, own_file, write_whole

Mark = dict[str, int]
"""Size and checksum of a file, or of its beginning."""
BEGINNING: Mark = {"size": 0, "checksum": 0}

LARGEST_JSON = 2**26  # bytes
_BLOCK = 2**20
_NOT_A_FILE = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENODEV)


class Damaged(BadInput):
    """The content of a file is not what was written."""


# --------------------------------------------------------------------------------------------------------------
# Writing


def write_json(path: Path, content: dict[str, Any], *, sealed: bool = False) -> None:
    """Write a JSON object; `sealed`, with its own checksum in it, which `read_json` verifies where it finds one."""
    write_whole(path, _encoded(content, sealed))


def _encoded(content: dict[str, Any], sealed: bool) -> bytes:
    text = (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
    return _encoded({**content, "checksum": zlib.crc32(text)}, sealed=False) if sealed else text


class Lines:
    """An append-only file of JSON lines, each whole or absent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = own_file(path, os.O_RDWR | os.O_APPEND)

    def append(self, line: dict[str, Any]) -> None:
        content = (json.dumps(finite(line), allow_nan=False) + "\n").encode()
        before = self.size()
        with explained(self._path):
            try:
                if os.write(self._descriptor, content) < len(content):
                    raise OSError(errno.ENOSPC, "no space left on device")
            except OSError:
                os.ftruncate(self._descriptor, before)
                raise

    def size(self) -> int:
        """Return the bytes so far."""
        return os.fstat(self._descriptor).st_size

    def mark(self) -> Mark:
        """Note where the file ends now, and the checksum of all before."""
        return _checksum(self._descriptor, self.size())

    def cut(self, mark: Mark) -> None:
        """Forget what was written after the mark."""
        if _checksum(self._descriptor, mark["size"]) != mark:
            raise Damaged(f"{self._path} is not as it was at the last checkpoint")
        os.ftruncate(self._descriptor, mark["size"])

    def flush(self) -> None:
        with explained(self._path):
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(one) for one in value]
    return value


# --------------------------------------------------------------------------------------------------------------
# Reading


def walk(root: Path) -> Iterator[tuple[Path, list[str] | None, list[str]]]:
    """Yield each folder in `root` and below with its names, None if it cannot be read, and the folders to search next.

    As `os.walk`, in order, without following links and at any depth.
    """
    left = [str(root)]
    while left:
        folder = left.pop()
        try:
            with os.scandir(folder) as entries:
                inside = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError:
            yield Path(folder), None, []
            continue
        folders = [name for name, is_folder in inside if is_folder]
        yield Path(folder), [name for name, _ in inside], folders
        left += [f"{folder}/{name}" for name in reversed(folders)]


def open_regular(path: Path | str) -> int:
    """Open a regular file to read; FileNotFoundError passes.

    `Damaged` if it is something else; a file that the system does not open is not damaged, but `Denied` or `Exhausted`.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody at its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            why = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise Damaged(f"{path} {why}; expected a regular file") from None
        with explained(path):
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damaged(f"{path} is not a regular file")
    return descriptor


def read_bytes(path: Path | str, largest: int = LARGEST_JSON) -> bytes:
    """Read a regular file of at most `largest` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise Damaged(f"{path} has {size} bytes; expected at most {largest}")
        return file.read(size)


def checksum(path: Path | str) -> Mark:
    """Compute size and checksum of a regular file."""
    with os.fdopen(open_regular(path), "rb") as file:
        return _checksum(file.fileno(), os.fstat(file.fileno()).st_size)


def matches(path: Path | str, mark: Mark) -> bool:
    """Whether the file has this size and, if so, this checksum: a sparse file of terabytes is not read."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return size == mark.get("size") and _checksum(file.fileno(), size) == mark


def _checksum(descriptor: int, size: int) -> Mark:
    """Compute the checksum of the first `size` bytes, or of all if there are fewer."""
    at = crc = 0
    while at < size and (block := os.pread(descriptor, min(_BLOCK, size - at), at)):
        at, crc = at + len(block), zlib.crc32(block, crc)
    return {"size": at, "checksum": crc}


def read_json(path: Path | str) -> dict[str, Any]:
    """Read a JSON object. One that was written with its checksum must be what was written, to the byte."""
    raw = read_bytes(path)
    content = parse_json(raw, str(path))
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged: expected an object")
    if "checksum" in content and _encoded({k: v for k, v in content.items() if k != "checksum"}, True) != raw:
        raise Damaged(f"{path} has changed since it was written")
    return content


def is_count(value: Any) -> bool:
    """Whether it is a whole number that arrays can hold, not below zero."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    """Whether it is a number that arrays can hold, or None: one that was not finite when it was written."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def parse_json(raw: bytes, where: str) -> Any:
    """Parse strict JSON, or raise `Damaged`; `where` it is from."""
    try:
        return _STRICT.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: {error}") from None


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_not_json)
