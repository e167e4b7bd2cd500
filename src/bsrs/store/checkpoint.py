"""A `State` as a folder: safetensors, raw arrays and JSON. No pickle is ever written or loaded.

The folder is written aside, synced and renamed, so there is always a whole one; checksums of every file tell when a
disk did not keep it.
"""

import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch

from bsrs.agents.agent import Array, State
from bsrs.store.files import (
    Damaged,
    checksum,
    clear_words_when_full,
    flush_folder,
    open_regular,
    read_bytes,
    read_json,
    write_json,
    write_whole,
)

FORMAT = 2
_TENSORS = "tensors.safetensors"
_LARGEST_TENSORS = 2**36  # bytes


def save(folder: Path, state: State, about: dict[str, Any]) -> None:
    """Replace the checkpoint at `folder`. `about` is what the store itself wants to remember."""
    aside, old = _beside(folder)
    _recover(folder)
    _clear(aside)
    with clear_words_when_full(folder.parent):
        aside.mkdir()
        _write(aside, state, about)
        if os.path.lexists(folder):
            folder.rename(old)
        aside.rename(folder)
        flush_folder(folder.parent)
        _clear(old)


def _write(folder: Path, state: State, about: dict[str, Any]) -> None:
    write_whole(folder / _TENSORS, tensor_bytes(state))
    for name, array in state.arrays.items():
        with (folder / _file(name)).open("wb") as out:
            np.save(out, array, allow_pickle=False)
            out.flush()
            os.fsync(out.fileno())
    sums = {name: checksum(folder / name) for name in [_TENSORS, *map(_file, state.arrays)]}
    content = {"format": FORMAT, "about": about, "arrays": list(state.arrays), "checksums": sums, "info": state.info}
    write_json(folder / "state.json", content, sealed=True)  # the last, and it syncs the folder


def load(folder: Path) -> tuple[State, dict[str, Any]] | None:
    """The checkpoint and what was said about it, or None if none was written yet."""
    _recover(folder)
    if not os.path.lexists(folder):
        return None
    try:
        return _read(folder)
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise Damaged(f"the checkpoint {folder} is damaged ({type(error).__name__}: {error})", folder.parent) from None


def _read(folder: Path) -> tuple[State, dict[str, Any]]:
    content = read_json(folder / "state.json")
    if content["format"] > FORMAT:
        raise ValueError(f"it has format {content['format']}, newer than this version of bsrs")
    if content["format"] > 1 and "checksum" not in content:
        raise ValueError("state.json has changed since it was written")
    sums = content["checksums"]
    _check(folder / _TENSORS, sums)
    state = State(safetensors.torch.load(read_bytes(folder / _TENSORS, _LARGEST_TENSORS)), {}, content["info"])
    for name in content["arrays"]:
        path = folder / _file(name)
        with os.fdopen(open_regular(path), "rb") as file:
            state.arrays[name] = np.load(file, allow_pickle=False)
        _check(path, sums, state.arrays[name])
    return state, content["about"]


def _check(path: Path, sums: dict[str, Any], array: Array | None = None) -> None:
    expected, found = sums[path.name], checksum(path)
    if isinstance(expected, int):  # format 1 had the sums of arrays without their headers
        if array is not None:
            found["checksum"] = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        expected, found = {"checksum": expected}, {"checksum": found["checksum"]}
    if found != expected:
        raise ValueError(f"{path.name} has changed since it was written")


def remove(folder: Path) -> None:
    for one in (*_beside(folder), folder):  # the old one before it: alone, it would be taken for the last
        _clear(one)


def set_aside(run: Path) -> None:
    """Take a damaged checkpoint out of the way of a run that starts again."""
    damaged = run / "checkpoint.damaged"
    _clear(damaged)
    _recover(run / "checkpoint")
    if os.path.lexists(run / "checkpoint"):
        (run / "checkpoint").rename(damaged)


def tensor_bytes(state: State) -> bytes:
    return safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in state.tensors.items()})


def _recover(folder: Path) -> None:
    """Make good what a killed `save` left behind.

    Between its two renames that is the whole old checkpoint under its other name; after them, a part of it.
    """
    _, old = _beside(folder)
    if os.path.lexists(folder):
        _clear(old)
    elif old.exists():
        old.rename(folder)


def _clear(path: Path) -> None:
    """Remove whatever is there, be it a folder or not."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _beside(folder: Path) -> tuple[Path, Path]:
    """Where the next checkpoint is written, and where the last one is meanwhile."""
    return folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")


def _file(array: str) -> str:
    return f"{array.replace('/', '.')}.npy"
