"""What a shaped model's file holds of its shaping, as plain JSON beside what SB3 saves; and which files are loaded.

Functions are not stored: whoever loads such a model gives them again.
"""

import base64
import dataclasses
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.noise import ActionNoise
from torch import nn, optim

from bsrs.errors import BadInput, unknown
from bsrs.sb3.shaper import ModelShaper, Settings
from bsrs.shaping import Bootstrapped, Linear, RandomDynamic, ShapeScale, Static

FUNCTION = "a function"
WARNING = (
    "this model was shaped by bsrs, and is not any more: it predicts as before, but would continue to learn from"
    " unshaped rewards. bsrs.sb3.load(path, Algorithm) loads it shaped; bsrs.sb3.shape(model, eta) shapes it anew"
)


class SavedShaping(SimpleNamespace):
    """The attribute `bsrs_shaping` of a shaped model, in plain data.

    SB3 stores such an object as its fields, which `load` reads, and as a pickle, which `Algorithm.load` unpickles: that
    only warns, because what `Algorithm.load` gives is not shaped. It does so without bsrs, too.
    """

    def __reduce__(self) -> Any:
        return warnings.warn, (WARNING, UserWarning, 4)


def describe(shaper: ModelShaper) -> SavedShaping:
    """How a model is shaped, and where its shaping is now."""
    try:
        data = {name: _to_data(part) for name, part in vars(shaper.settings).items()}
        return SavedShaping(**json.loads(json.dumps({**data, "state": shaper.state()})))
    except (TypeError, ValueError) as error:
        raise BadInput(f"the shaping cannot be saved: what eta remembers must be plain JSON ({error})") from None


def restore(saved: dict[str, Any], given: dict[str, Any]) -> Settings:
    """The settings that were saved, but for what is `given`."""
    names = [field.name for field in dataclasses.fields(Settings)]
    return Settings(**{name: given[name] if name in given else _from_data(saved[name], name) for name in names})


def is_same(one: Settings, other: Settings) -> bool:
    """Whether both ask for the same shaping; functions must be the same objects."""
    for name, mine in vars(one).items():
        theirs, data = getattr(other, name), _to_data(mine)
        if data != _to_data(theirs) or (data == FUNCTION and mine != theirs):
            return False
    return True


def _to_data(part: Any) -> Any:
    """A shape-scale or potential of bsrs as text, a number, or its name and fields; FUNCTION if there is code in it."""
    if part is None or isinstance(part, (str, int, float)):
        return part
    if _kinds().get(type(part).__name__) is not type(part) or not dataclasses.is_dataclass(part):
        return FUNCTION
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    if any(callable(value) for value in fields.values()):
        return FUNCTION
    return {"type": type(part).__name__, **{name: _plain(value) for name, value in fields.items()}}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) or hasattr(value, "new_tensor") else value


def _kinds(name: str = "") -> dict[str, Any]:
    known = [*ShapeScale.__subclasses__(), *Linear.__subclasses__()]
    scales = [cls for cls in known if cls.__module__.startswith("bsrs.")]
    potentials: list[Any] = [Bootstrapped, Static, RandomDynamic]
    return {cls.__name__: cls for cls in {"eta": scales, "potential": potentials}.get(name, [*scales, *potentials])}


def _from_data(data: Any, name: str) -> Any:
    """The setting that `_to_data` described."""
    if data == FUNCTION:
        raise BadInput(f"the {name} was a function, which a file cannot hold: pass {name}=... to load again")
    if data is None or (not isinstance(data, dict) and name not in ("potential", "value_fn")):
        return data
    fields, kinds = dict(data), _kinds(name)
    kind = str(fields.pop("type"))
    if kind not in kinds:
        raise unknown(name, kind, kinds)
    for field in dataclasses.fields(kinds[kind]):
        if field.name in fields and not _fits(fields[field.name], str(field.type)):
            raise BadInput(f"{name} has {field.name} = {str(fields[field.name])[:40]!r}; expected {field.type}")
    return kinds[kind](**fields)


def _fits(value: Any, annotation: str) -> bool:
    """Whether a field's value is what it should be: of a simple type, or else finite numbers."""
    if value is None:
        return annotation.endswith("| None")
    simple: Any = {"int": int, "float": (int, float), "str": str, "bool": bool}.get(annotation.removesuffix(" | None"))
    numbers = np.asarray(value)
    return isinstance(value, simple) if simple else numbers.dtype.kind in "iuf" and bool(np.isfinite(numbers).all())


# --------------------------------------------------------------------------------------------------------------
# Which files are loaded. SB3 pickles what JSON cannot hold, and a pickle can execute any code.

LARGEST_DATA = 2**28  # bytes
# Besides classes of networks, policies, buffers, noise, spaces and optimizers: what the state of a model is made of.
HARMLESS = """
    collections.OrderedDict collections.deque
    numpy.core.multiarray.scalar numpy.core.multiarray._reconstruct numpy.core.numeric._frombuffer
    numpy._core.multiarray.scalar numpy._core.multiarray._reconstruct numpy._core.numeric._frombuffer
    numpy.random._pickle.__bit_generator_ctor numpy.random._pickle.__generator_ctor
    numpy.random.bit_generator.SeedSequence numpy.random.bit_generator.__pyx_unpickle_SeedSequence
    stable_baselines3.common.type_aliases.TrainFreq stable_baselines3.common.type_aliases.TrainFrequencyUnit
    stable_baselines3.common.utils.FloatSchedule stable_baselines3.common.utils.ConstantSchedule
    stable_baselines3.common.utils.LinearSchedule
""".split()
LIBRARIES = ("stable_baselines3.", "sb3_contrib.", "gymnasium.spaces.", "torch.nn.modules.", "torch.optim.", "numpy")
MODELS = (nn.Module, optim.Optimizer, BaseBuffer, ActionNoise, spaces.Space)
CLASSES = (*MODELS, np.generic, np.dtype, np.ndarray, np.random.BitGenerator)


class _HarmlessUnpickler(pickle.Unpickler):
    """Unpickles what a model needs that uses nothing but SB3's, sb3-contrib's and PyTorch's own classes."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in HARMLESS:
            return super().find_class(module, name)
        if module.startswith(LIBRARIES) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, CLASSES):
                return found
        raise BadInput(f"it refers to {module}.{name}")


def read_archive(file: io.BytesIO, trust: bool, replaced: Collection[str]) -> tuple[Any, dict[str, Any]]:
    """The shaping data of an SB3 file, and what its `data` pickles, unless `replaced`: harmless, or BadInput.

    With `trust`, the pickles are left to SB3, whatever is in them.
    """
    with zipfile.ZipFile(file) as archive:
        if archive.getinfo("data").file_size > LARGEST_DATA and not trust:
            raise BadInput(f"its data takes more than {LARGEST_DATA} bytes: pass trust=True to load it nevertheless")
        data = json.loads(archive.read("data"))
    dicts = {name: item for name, item in data.items() if isinstance(item, dict)}
    pickles = {name: item[":serialized:"] for name, item in dicts.items() if ":serialized:" in item}
    objects: dict[str, Any] = {"bsrs_shaping": None}
    for name in pickles.keys() - {*objects, *replaced} if not trust else ():
        try:
            objects[name] = _HarmlessUnpickler(io.BytesIO(base64.b64decode(pickles[name]))).load()
        except BadInput as error:
            raise BadInput(
                f"SB3's format can execute code, and the entry {name!r} may do so ({error}): pass trust=True"
                f" if you know where the file comes from, or replace the entry by custom_objects={{{name!r}: ...}}"
            ) from None
    return data.get("bsrs_shaping"), objects
