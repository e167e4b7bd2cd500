"""Read the pickles in an SB3 file without executing them.

A pickle is a program. `Reader` knows the few instructions that SB3's own data needs, in protocols 4 and 5: SB3 never
wrote another. It never imports: a name must be on the lists below, and in a module that is loaded already. It never
calls what a pickle names: arrays, random generators and containers are rebuilt by functions of our own, and objects of
listed classes get their attributes. Everything else raises `BadInput`.
"""

import io
import pickle
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.modules import activation

from bsrs.errors import BadInput, printable

# Classes that a file may name, next to PyTorch's activations and optimizers. They are settings, such as the class of a
# policy: loading makes no objects of them.
NAMED = """
stable_baselines3.common.policies: ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy
stable_baselines3.dqn.policies: DQNPolicy CnnPolicy MultiInputPolicy
stable_baselines3.td3.policies: TD3Policy CnnPolicy MultiInputPolicy
stable_baselines3.sac.policies: SACPolicy CnnPolicy MultiInputPolicy
sb3_contrib.qrdqn.policies: QRDQNPolicy CnnPolicy MultiInputPolicy
sb3_contrib.tqc.policies: TQCPolicy CnnPolicy MultiInputPolicy
sb3_contrib.crossq.policies: CrossQPolicy
sb3_contrib.common.maskable.policies:
    MaskableActorCriticPolicy MaskableActorCriticCnnPolicy MaskableMultiInputActorCriticPolicy
sb3_contrib.common.recurrent.policies:
    RecurrentActorCriticPolicy RecurrentActorCriticCnnPolicy RecurrentMultiInputActorCriticPolicy
sb3_contrib.common.maskable.buffers: MaskableRolloutBuffer MaskableDictRolloutBuffer
sb3_contrib.common.recurrent.buffers: RecurrentRolloutBuffer RecurrentDictRolloutBuffer
stable_baselines3.common.buffers: ReplayBuffer RolloutBuffer DictReplayBuffer DictRolloutBuffer NStepReplayBuffer
stable_baselines3.her.her_replay_buffer: HerReplayBuffer
stable_baselines3.common.torch_layers: FlattenExtractor NatureCNN CombinedExtractor
stable_baselines3.common.sb2_compat.rmsprop_tf_like: RMSpropTFLike
torch.nn.modules.linear: Identity
numpy: bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
"""
# Classes of which a file may hold objects: made without a call, and given their attributes.
BUILT = """
gymnasium.spaces.box: Box
gymnasium.spaces.dict: Dict
gymnasium.spaces.discrete: Discrete
gymnasium.spaces.multi_binary: MultiBinary
gymnasium.spaces.multi_discrete: MultiDiscrete
stable_baselines3.common.noise: NormalActionNoise OrnsteinUhlenbeckActionNoise VectorizedActionNoise
stable_baselines3.common.utils: ConstantSchedule FloatSchedule LinearSchedule
stable_baselines3.common.type_aliases: TrainFreq
"""
ENUMS = """
stable_baselines3.common.type_aliases: TrainFrequencyUnit
stable_baselines3.her.goal_selection_strategy: GoalSelectionStrategy
"""


def _names(lists: str) -> frozenset[str]:
    found, module = set(), ""
    for word in lists.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            found.add(f"{module}.{word}")
    return frozenset(found)


def _defined(base: type, module: Any) -> frozenset[str]:
    """Return the full names of the subclasses of `base` that a module has."""
    found = [thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, base)]
    return frozenset(f"{cls.__module__}.{cls.__qualname__}" for cls in found)


BUILT_CLASSES, ENUM_CLASSES = _names(BUILT), _names(ENUMS)
NAMED_CLASSES = _names(NAMED) | _defined(torch.nn.Module, activation) | _defined(torch.optim.Optimizer, torch.optim)


class Rebuild:
    """What a listed function of another library becomes: a function of our own."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class Ignored:
    """An object that nothing needs."""


# --------------------------------------------------------------------------------------------------------------
# Rebuilt by our own functions.


def _dtype(text: Any, *flags: Any) -> np.dtype[Any]:
    """Return a dtype of plain numbers."""
    if _own(text, str)[:1] not in set("biufc") or not text[1:].isdigit():
        raise BadInput(f"it has arrays of {text[:40]!r}")
    made: np.dtype[Any] = np.dtype(text)
    return made


def _array(raw: Any, dtype: Any, shape: Any, order: Any = "C", *rest: Any) -> np.ndarray:
    if not isinstance(raw, (bytes, bytearray)):
        raise BadInput(f"it has an array of a {type(raw).__name__}")
    return np.frombuffer(raw, _own(dtype, np.dtype)).reshape(shape, order=order).copy(order=order)


def _scalar(dtype: Any, raw: bytes) -> Any:
    return np.frombuffer(raw, _own(dtype, np.dtype))[0]


def _empty_array(*arguments: Any) -> np.ndarray:
    return np.empty(0, np.int8)  # BUILD gives it its content


def _bit_generator(*arguments: Any) -> Any:
    return np.random.PCG64(0)


def _generator(bit_generator: Any, *arguments: Any) -> Any:
    return np.random.Generator(_own(bit_generator, np.random.PCG64))


def _deque(items: Any = (), most: int | None = None) -> Any:
    return deque(items if isinstance(items, (list, tuple)) else (), most)


def _own(thing: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(thing, kind):
        raise BadInput(f"it has an unexpected {type(thing).__name__}")
    return thing


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda: OrderedDict(),
    "collections.deque": _deque,
    "numpy.dtype": _dtype,
    "numpy.ndarray": _empty_array,
    "numpy.random._pcg64.PCG64": _bit_generator,
    "numpy.random._pickle.__bit_generator_ctor": _bit_generator,
    "numpy.random._pickle.__generator_ctor": _generator,
    "numpy.random.bit_generator.SeedSequence": lambda *arguments: Ignored(),
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence": lambda *arguments: Ignored(),
}
for core in ("numpy.core", "numpy._core"):
    FUNCTIONS |= {
        f"{core}.multiarray.scalar": _scalar,
        f"{core}.multiarray._reconstruct": _empty_array,
        f"{core}.numeric._frombuffer": _array,
    }


def find(module: Any, name: Any) -> Any:
    """Return what a file may name by this text, or refuse it. Nothing is imported."""
    full = f"{module}.{name}"
    if full in FUNCTIONS:
        return Rebuild(FUNCTIONS[full])
    if full in NAMED_CLASSES | BUILT_CLASSES | ENUM_CLASSES and str(module) in sys.modules:
        found = vars(sys.modules[module]).get(name)
        if isinstance(found, type) and f"{found.__module__}.{found.__qualname__}" == full:
            return Rebuild(found) if full in ENUM_CLASSES else found
    raise BadInput(f"it refers to {printable(full[:200])}")


# --------------------------------------------------------------------------------------------------------------
# The interpreter.

# What Python's own interpreter does with these neither calls nor imports anything.
HARMLESS = """
PROTO FRAME STOP MARK MEMOIZE BINGET LONG_BINGET NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT
SHORT_BINBYTES BINBYTES BINBYTES8 SHORT_BINUNICODE BINUNICODE BINUNICODE8 EMPTY_LIST EMPTY_TUPLE EMPTY_DICT EMPTY_SET
TUPLE TUPLE1 TUPLE2 TUPLE3 STACK_GLOBAL
"""
OWN = "BYTEARRAY8 APPEND APPENDS ADDITEMS SETITEM SETITEMS REDUCE NEWOBJ BUILD"


class Reader(pickle._Unpickler):
    """Python's interpreter in Python, with some of its instructions, and our own versions of those that could call."""

    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Any]] = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in HARMLESS.split()
    }

    def find_class(self, module: Any, name: Any) -> Any:
        return find(module, name)

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(size)))  # of what there is: Python's version trusts the size

    def load_append(self) -> None:
        item = self.stack.pop()
        _own(self.stack[-1], (list, deque)).append(item)

    def load_appends(self) -> None:
        items = self.pop_mark()
        _own(self.stack[-1], (list, deque)).extend(items)

    def load_additems(self) -> None:
        items = self.pop_mark()
        _own(self.stack[-1], set).update(map(_key, items))

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _own(self.stack[-1], dict)[_key(key)] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        keys = map(_key, items[::2])
        _own(self.stack[-1], dict).update(zip(keys, items[1::2], strict=True))

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Rebuild):
            raise BadInput(f"it calls {getattr(function, '__name__', type(function).__name__)}")
        self.append(function.call(*_own(arguments, tuple)))

    def load_newobj(self) -> None:
        arguments, cls = self.stack.pop(), self.stack.pop()
        if not isinstance(cls, type) or f"{cls.__module__}.{cls.__qualname__}" not in BUILT_CLASSES:
            raise BadInput(f"it makes an object of {getattr(cls, '__name__', type(cls).__name__)}")
        self.append(tuple.__new__(cls, _own(arguments, tuple)) if issubclass(cls, tuple) else object.__new__(cls))

    def load_build(self) -> None:
        state, thing = self.stack.pop(), self.stack[-1]
        if isinstance(thing, np.ndarray):
            _build_array(thing, state)
        elif isinstance(thing, np.random.PCG64):
            _build_pcg64(thing, state)
        elif f"{type(thing).__module__}.{type(thing).__qualname__}" in BUILT_CLASSES:
            vars(thing).update({str(_key(name)): value for name, value in _own(state, dict).items()})
        elif isinstance(thing, np.dtype):
            if _own(state, tuple)[1:5] not in [("<", None, None, None), ("|", None, None, None)]:
                raise BadInput("it has arrays of another byte order, or with fields")
        elif not isinstance(thing, Ignored):
            raise BadInput(f"it changes a {type(thing).__name__}")


Reader.dispatch |= {getattr(pickle, name)[0]: getattr(Reader, f"load_{name.lower()}") for name in OWN.split()}


def _key(key: Any) -> Any:
    """Return a key of a dict: text or a number, so that none takes forever to hash."""
    if key is not None and not isinstance(key, (str, bytes, bool, int, float)):
        raise BadInput(f"it has a {type(key).__name__} as a key")
    return key


def _build_array(array: np.ndarray, state: Any) -> None:
    """Give an array that `_empty_array` made its content."""
    _, shape, dtype, fortran, raw = _own(state, tuple)
    content = _array(raw, dtype, shape, "F" if fortran else "C")
    checked: Any = (1, content.shape, content.dtype, bool(fortran), content.tobytes("A"))
    array.__setstate__(checked)


def _build_pcg64(generator: Any, state: Any) -> None:
    """Put a random generator into a state of plain numbers; its seed sequence is not needed."""
    state = state[0] if isinstance(state, tuple) else state
    inner = {name: int(_own(state, dict)["state"][name]) for name in ("state", "inc")}
    flags = {name: int(state[name]) for name in ("has_uint32", "uinteger")}
    generator.state = {"bit_generator": "PCG64", "state": inner, **flags}


def read_pickle(data: bytes) -> Any:
    """Return what a pickle holds, or raise `BadInput`."""
    try:
        return Reader(io.BytesIO(data)).load()
    except BadInput:
        raise
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise BadInput(f"it cannot be read: {error}") from None
