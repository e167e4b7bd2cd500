"""A `State` as a folder: safetensors, raw arrays and JSON. No pickle is ever written or loaded.

A new checkpoint is written aside and renamed. Members of a population keep their last two: a kill may find some members
one checkpoint ahead of the others, and then the run resumes from the latest step of which every member has one.
"""

import io
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch

from bsrs.agents.agent import Array, State
from bsrs.store.files import Damaged, checksum, matches, open_regular, read_bytes, read_json, write_json
from bsrs.writing import Denied, Exhausted, explained, flush_folder, new_file

FORMAT = 2
_TENSORS = "tensors.safetensors"
_LARGEST_TENSORS = 2**36  # bytes


def save(folder: Path, state: State, about: dict[str, Any], *, keep_last: bool = False) -> None:
    """Replace the checkpoint at `folder`. `about` is what the store itself notes.

    With `keep_last` the one before it stays, under another name.
    """
    aside, old = _beside(folder)
    with explained(folder):
        _clear(aside)
        if os.path.lexists(folder):
            _clear(old)
        aside.mkdir()
        with new_file(aside / _TENSORS) as file:
            file.write(tensor_bytes(state))
        for name, array in state.arrays.items():
            with new_file(aside / _file(name)) as file:
                np.save(file, array, allow_pickle=False)
        sums = {name: checksum(aside / name) for name in [_TENSORS, *map(_file, state.arrays)]}
        content = {"format": FORMAT, "about": about, "arrays": [*state.arrays], "checksums": sums, "info": state.info}
        write_json(aside / "state.json", content, sealed=True)  # the last, and it syncs the folder
        if os.path.lexists(folder):
            folder.rename(old)
        aside.rename(folder)
        flush_folder(folder.parent)
    if not keep_last:
        _clear(old)


def load(path: Path) -> tuple[State, dict[str, Any]]:
    """Load a checkpoint, and what the store noted about it."""
    try:
        if path.is_symlink():
            raise ValueError("it is a link")
        return _read(path)
    except (Denied, Exhausted, MemoryError):
        raise
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise Damaged(f"the checkpoint {path} is damaged ({type(error).__name__}: {error})") from None


def _read(folder: Path) -> tuple[State, dict[str, Any]]:
    content = read_json(folder / "state.json")
    if content["format"] > FORMAT:
        raise ValueError(f"it has format {content['format']}, newer than this version of bsrs")
    if content["format"] > 1 and "checksum" not in content:
        raise ValueError("state.json has changed since it was written")
    sums = content["checksums"]
    # Compared before they are read: a damaged header may ask for any amount of memory.
    _check(folder / _TENSORS, sums)
    state = State(safetensors.torch.load(read_bytes(folder / _TENSORS, _LARGEST_TENSORS)), {}, content["info"])
    for name in content["arrays"]:
        path = folder / _file(name)
        _check(path, sums)
        with os.fdopen(open_regular(path), "rb") as file:
            state.arrays[name] = np.load(file, allow_pickle=False)
    return state, content["about"]


def _check(path: Path, sums: dict[str, Any]) -> None:
    expected = sums[path.name]
    if isinstance(expected, int):  # format 1 had no sizes, and the sums of arrays without their headers
        content = read_bytes(path, _LARGEST_TENSORS)
        if path.suffix == ".npy":
            array: Array = np.load(io.BytesIO(content), allow_pickle=False)
            content = np.ascontiguousarray(array).tobytes()
        same = zlib.crc32(content) == expected
    else:
        same = matches(path, expected)
    if not same:
        raise ValueError(f"{path.name} has changed since it was written")


def remove(folder: Path) -> None:
    """Remove every checkpoint of a run."""
    for one in (*_beside(folder), folder):
        _clear(one)


def set_aside(path: Path) -> None:
    """Take a damaged checkpoint out of the way."""
    damaged = path.with_name("checkpoint.damaged")
    with explained(path):
        _clear(damaged)
        if os.path.lexists(path):
            path.rename(damaged)


def settle(folder: Path, path: Path) -> None:
    """Make the checkpoint at `path` the only one, because the run continues from it."""
    with explained(folder):
        if path != folder:
            _clear(folder)
            path.rename(folder)
        _clear(_beside(folder)[1])


def tensor_bytes(state: State, metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.torch.save({name: tensor.cpu().contiguous() for name, tensor in state.tensors.items()}, metadata)


def model_bytes(model: State) -> bytes:
    """Encode a trained model as a safetensors file, with its `info` in the header."""
    return tensor_bytes(model, {"info": json.dumps(model.info)} if model.info else None)


def read_model_bytes(data: bytes) -> State:
    """Decode what `model_bytes` encoded."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    info = json.loads(header.get("__metadata__", {}).get("info", "{}"))
    return State(safetensors.torch.load(data), info=info)


def _clear(path: Path) -> None:
    """Remove whatever is there, folder or not."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _beside(folder: Path) -> tuple[Path, Path]:
    """Return where the next checkpoint is written, and where the last one is meanwhile."""
    return folder.with_name(f"{folder.name}.new"), folder.with_name(f"{folder.name}.old")


def _file(array: str) -> str:
    return f"{array.replace('/', '.')}.npy"
