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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bsrs.errors import BadInput

Mark = dict[str, int]
"""Size and checksum of a file, or of its beginning."""
BEGINNING: Mark = {"size": 0, "checksum": 0}

LARGEST_JSON = 2**26  # bytes
LARGEST_LINES = 2**30
_BLOCK = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(BadInput):
    """There was no space for a file."""


class Damaged(BadInput):
    """A file of a run is not what was written. `run` is the run's folder, where it is known."""

    def __init__(self, what: str, run: Path | None = None) -> None:
        super().__init__(what)
        self.run = run


# --------------------------------------------------------------------------------------------------------------
# Writing


@contextmanager
def clear_words_when_full(folder: Path) -> Iterator[None]:
    """A full disk is the user's to fix, and nothing that was finished is lost by it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"no space left for {folder}: what was written before is whole; free some space and use --resume"
        ) from error


def make_folder(folder: Path) -> None:
    """The folder and those above it, if they are not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise BadInput(f"the folder {folder} cannot be made: {error.strerror}") from None


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content at once."""
    aside = path.with_name(f"{path.name}.new")
    with clear_words_when_full(path.parent):
        with os.fdopen(open_regular(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        flush_folder(path.parent)


def write_json(path: Path, content: dict[str, Any], *, sealed: bool = False) -> None:
    """A JSON object; `sealed`, with its own checksum in it, which `read_json` verifies where it finds one."""
    write_whole(path, _encoded(content, sealed))


def flush_folder(folder: Path) -> None:
    """Make what was created or renamed in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encoded(content: dict[str, Any], sealed: bool) -> bytes:
    text = (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
    return _encoded({**content, "checksum": zlib.crc32(text)}, sealed=False) if sealed else text


class Lines:
    """An append-only file of JSON lines, each whole or absent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)

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

    def mark(self) -> Mark:
        """Where the file ends now, and the checksum of all before."""
        size = self.size()
        return {"size": size, "checksum": self._checksum(size)}

    def cut(self, mark: Mark) -> None:
        """Forget what was written after the mark."""
        if self.size() < mark["size"] or self._checksum(mark["size"]) != mark["checksum"]:
            raise Damaged(f"{self._path} is not as it was at the last checkpoint", self._path.parent)
        os.ftruncate(self._descriptor, mark["size"])

    def _checksum(self, size: int) -> int:
        return zlib.crc32(os.pread(self._descriptor, size, 0))

    def flush(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value


# --------------------------------------------------------------------------------------------------------------
# Reading


def walk(root: Path) -> Iterator[tuple[Path, list[str] | None, list[str]]]:
    """Each folder in `root` and below with its names, None if it cannot be read, and the folders to search next.

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


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file, BadInput if it is something else; FileNotFoundError passes."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody at its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise
        why = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
        raise Damaged(f"{path} {why}; expected a regular file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damaged(f"{path} is not a regular file")
    return descriptor


def read_bytes(path: Path | str, largest: int = LARGEST_JSON) -> bytes:
    """The content of a regular file of at most `largest` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise Damaged(f"{path} has {size} bytes; expected at most {largest}")
        return file.read(size)


def checksum(path: Path | str) -> Mark:
    """Size and checksum of a regular file."""
    size = crc = 0
    with os.fdopen(open_regular(path), "rb") as file:
        while block := file.read(_BLOCK):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return {"size": size, "checksum": crc}


def read_json(path: Path | str) -> dict[str, Any]:
    """A JSON object. One that was written with its checksum must be what was written, to the byte."""
    raw = read_bytes(path)
    content = parse_json(raw, str(path))
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged: expected an object")
    if "checksum" in content and _encoded({k: v for k, v in content.items() if k != "checksum"}, True) != raw:
        raise Damaged(f"{path} has changed since it was written")
    return content


def read_lines(path: Path | str) -> list[dict[str, Any]]:
    """The whole lines of a file; one that a killed process left half-written at the end does not count.

    A record has a kind and a step; everything else in it is a number, a word, nothing, or a list of these.
    """
    records = []
    for number, piece in enumerate(read_bytes(path, LARGEST_LINES).split(b"\n")[:-1], start=1):
        where = f"{path}, line {number}"
        record = parse_json(piece, where)
        if not (isinstance(record, dict) and isinstance(record.get("kind"), str) and is_count(record.get("step"))):
            raise Damaged(f"{where} is damaged: expected an object with a kind and a step")
        for name, value in record.items():
            parts = value if isinstance(value, list) else [value]
            if not all(is_number(part) or isinstance(part, (str, bool)) for part in parts):
                raise Damaged(f"{where} is damaged: {name} is {str(value)[:40]}; expected numbers")
        if record["kind"] == "eval" and not is_number(record.get("score")):
            raise Damaged(f"{where} is damaged: expected an evaluation with a score")
        records.append(record)
    return records


def is_count(value: Any) -> bool:
    """Whether it is a whole number that arrays can hold, not below zero."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    """Whether it is a number that arrays can hold, or None: one that was not finite when it was written."""
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def parse_json(raw: bytes, where: str) -> Any:
    """Strict JSON, or `Damaged`; `where` it is from."""
    try:
        return json.loads(raw, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: {error}") from None


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
