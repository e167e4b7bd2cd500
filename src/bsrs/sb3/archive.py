"""Which SB3 files are loaded without trust: those whose data can be read without executing anything."""

import base64
import io
import json
import zipfile
from collections.abc import Collection
from typing import Any

from bsrs.errors import BadInput, say
from bsrs.sb3.pickles import read_pickle

LARGEST_DATA = 2**28  # bytes
# What a file may not decide: whether code is imported (an env's id names its module) and where logs are written.
NOT_FROM_FILES = ("env", "tensorboard_log")


def read_archive(file: io.BytesIO, trust: bool, replaced: Collection[str]) -> tuple[Any, dict[str, Any]]:
    """Return the shaping data of an SB3 file, and the objects to load in place of its pickles, except for `replaced`.

    With `trust`, the pickles are left to SB3, whatever is in them.
    """
    with zipfile.ZipFile(file) as archive:
        if archive.getinfo("data").file_size > LARGEST_DATA and not trust:
            raise BadInput(f"its data takes more than {LARGEST_DATA} bytes: pass trust=True to load it nevertheless")
        data = json.loads(archive.read("data"))
    objects: dict[str, Any] = {"bsrs_shaping": None}
    if trust:
        return data.get("bsrs_shaping"), objects
    if data.get("tensorboard_log") and "tensorboard_log" not in replaced:
        say("the file's tensorboard_log is left out: pass tensorboard_log=... to write logs")
    objects |= {name: None for name in NOT_FROM_FILES if name in data}
    for name, item in data.items():
        if name not in {*objects, *replaced} and isinstance(item, dict) and ":serialized:" in item:
            objects[name] = _without_code(name, item[":serialized:"])
    return data.get("bsrs_shaping"), objects


def _without_code(name: str, text: str) -> Any:
    try:
        return read_pickle(base64.b64decode(text))
    except BadInput as error:
        raise BadInput(
            f"SB3's format can execute code, and the entry {name!r} may do so ({error}): pass trust=True"
            f" if you know where the file comes from, or replace the entry by custom_objects={{{name!r}: ...}}"
        ) from None
