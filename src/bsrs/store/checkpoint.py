"""A `State` as a folder: safetensors, raw arrays and JSON. No pickle is ever written or loaded.

The folder is written aside and renamed, so there is always a whole one; checksums tell when a disk did not keep it.
"""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch

from bsrs.agents.agent import Array, State
from bsrs.store.files import Damaged, clear_words_when_full, flush_folder, read_json, write_json, write_whole

FORMAT = 1


def save(folder: Path, state: State, about: dict[str, Any]) -> None:
    """Replace the checkpoint at `folder`. `about` is what the store itself wants to remember."""
    aside, old = _aside(folder), _old(folder)
    _recover(folder)
    shutil.rmtree(aside, ignore_errors=True)
    with clear_words_when_full(folder.parent):
        aside.mkdir()
        _write(aside, state, about)
        if folder.exists():
            folder.rename(old)
        aside.rename(folder)
        flush_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)


def _write(folder: Path, state: State, about: dict[str, Any]) -> None:
    tensors = tensor_bytes(state)
    write_whole(folder / "tensors.safetensors", tensors)
    sums = {"tensors.safetensors": zlib.crc32(tensors)}
    for name, array in state.arrays.items():
        file = f"{name.replace('/', '.')}.npy"
        with (folder / file).open("wb") as out:
            np.save(out, array, allow_pickle=False)
        sums[file] = _checksum(array)
    content = {"format": FORMAT, "about": about, "arrays": list(state.arrays), "checksums": sums, "info": state.info}
    write_json(folder / "state.json", content)


def load(folder: Path) -> tuple[State, dict[str, Any]] | None:
    """The checkpoint and what was said about it, or None if none was written yet."""
    _recover(folder)
    if not folder.exists():
        return None
    try:
        return _read(folder)
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        what = f"the checkpoint {folder} is damaged ({error}): remove it to start the run again"
        raise Damaged(folder.parent, what) from None


def _read(folder: Path) -> tuple[State, dict[str, Any]]:
    content = read_json(folder / "state.json")
    if content["format"] > FORMAT:
        raise ValueError(f"it has format {content['format']}, newer than this version of bsrs")
    sums = content["checksums"]
    tensors = (folder / "tensors.safetensors").read_bytes()
    _check("tensors.safetensors", zlib.crc32(tensors), sums)
    state = State(safetensors.torch.load(tensors), {}, content["info"])
    for name in content["arrays"]:
        file = f"{name.replace('/', '.')}.npy"
        state.arrays[name] = np.load(folder / file, allow_pickle=False)
        _check(file, _checksum(state.arrays[name]), sums)
    return state, content["about"]


def remove(folder: Path) -> None:
    for one in (_aside(folder), _old(folder), folder):  # the old one first: alone, it would be taken for the last
        shutil.rmtree(one, ignore_errors=True)


def set_aside(run: Path) -> None:
    """Take a damaged checkpoint out of the way of a run that starts again."""
    damaged = run / "checkpoint.damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    _recover(run / "checkpoint")
    if (run / "checkpoint").exists():
        (run / "checkpoint").rename(damaged)


def tensor_bytes(state: State) -> bytes:
    return safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in state.tensors.items()})


def _recover(folder: Path) -> None:
    """Make good what a killed `save` left behind.

    Between its two renames that is the whole old checkpoint under its other name; after them, a part of it.
    """
    old = _old(folder)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(folder)


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.new")


def _old(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.old")


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _check(file: str, found: int, expected: dict[str, int]) -> None:
    if found != expected[file]:
        raise ValueError(f"{file} has changed since it was written")


__all__ = ["load", "remove", "save", "set_aside", "tensor_bytes"]
