"""Hostile pickles in Stable-Baselines3 files: nothing is written, imported or executed by `bsrs.sb3.load`.

Three kinds: calls of what writes, reads or executes, in every way in which a pickle can call; pickles of a real model
with bytes changed; and random instructions over names that are allowed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import random
import struct
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FORBIDDEN = {"exec", "compile", "import", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.fork"}
FORBIDDEN |= {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
FORBIDDEN |= {"socket.connect", "socket.bind", "ctypes.dlopen", "marshal.loads", "pickle.find_class", "mmap.__new__"}
PLANTED = "numpy_helper"  # a module in the working directory that leaves a file when it is imported

_watching: list[str] | None = None


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is None:
        return
    writes = event == "open" and (str(arguments[1] or "r")[0] in "wax+" or "+" in str(arguments[1] or ""))
    if event in FORBIDDEN or writes:
        _watching.append(f"{event} {str(arguments)[:120]}")


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Collect what is written, imported or executed meanwhile."""
    global _watching
    if _on_event not in _hooks:
        sys.addaudithook(_on_event)
        _hooks.append(_on_event)
    _watching = found = []
    try:
        yield found
    finally:
        _watching = None


_hooks: list[Any] = []


def attack(number: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Load `number` files; return how each load ended, and what went wrong."""
    from stable_baselines3 import DQN

    from bsrs.errors import BadInput
    from bsrs.sb3 import load

    counts: Counter[str] = Counter()
    wrong: list[str] = []
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        (folder / f"{PLANTED}.py").write_text(f"open({str(folder / 'imported')!r}, 'w')\n")
        sys.path.insert(0, name)
        original = _real_file(folder / "real.zip")
        load(folder / "real.zip", DQN)  # what is imported at the first load is imported now
        for index in range(number):
            kind, entry, code = _hostile(rng, original, folder / "written")
            _write(folder / "hostile.zip", original, entry, code)
            before, modules = _listing(folder), set(sys.modules)
            with watched() as events:
                try:
                    load(folder / "hostile.zip", DQN)
                    how = "loaded"
                except BadInput:
                    how = "refused"
                except Exception as error:
                    how = "another error"
                    wrong.append(f"pickle {index} ({kind}): {type(error).__name__}: {error}")
            counts[f"pickles, {kind}, {how}"] += 1
            changed = [*events, *(_listing(folder) ^ before), *(set(sys.modules) - modules)]
            if changed or (how == "loaded" and kind == "calls"):
                wrong.append(f"pickle {index} ({kind}, {how}) at {entry}: {changed} {code[:200]!r}")
        sys.path.remove(name)
    return counts, wrong


def _real_file(path: Path) -> dict[str, bytes]:
    from stable_baselines3 import DQN

    from bsrs.sb3 import shape

    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=100, seed=0, policy_kwargs={"net_arch": [4]}, device="cpu")
    shape(model, 0.5).learn(20).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(path: Path, original: dict[str, bytes], entry: str, code: bytes) -> None:
    data = json.loads(original["data"])
    data[entry] = {":type:": "harmless", ":serialized:": base64.b64encode(code).decode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in original.items():
            archive.writestr(name, json.dumps(data).encode() if name == "data" else content)


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.name != "hostile.zip" and "__pycache__" not in path.parts}


# ---- generators


def _hostile(rng: random.Random, original: dict[str, bytes], target: Path) -> tuple[str, str, bytes]:
    """Return the kind, the entry of the file, and the pickle."""
    data = json.loads(original["data"])
    entries = [name for name, item in data.items() if isinstance(item, dict) and ":serialized:" in item]
    entries.remove("bsrs_shaping")
    kind = rng.choice(["calls", "calls", "changed bytes", "instructions"])
    entry = rng.choice([*entries, "not_needed"])
    if kind == "calls":
        return kind, entry, rng.choice(WAYS)(rng, *rng.choice(_targets(target)))
    if kind == "changed bytes":
        entry = rng.choice(entries)
        return kind, entry, _changed(rng, base64.b64decode(data[entry][":serialized:"]))
    return kind, entry, _instructions(rng)


def _targets(path: Path) -> list[tuple[str, str, tuple[Any, ...]]]:
    """What a pickle may want to call, and with what."""
    text = str(path)
    return [
        ("os", "mkdir", (text,)),
        ("posix", "mkdir", (text,)),
        ("builtins", "exec", (f"open({text!r}, 'w')",)),
        ("builtins", "eval", (f"open({text!r}, 'w')",)),
        ("builtins", "open", (text, "w")),
        ("io", "open", (text, "w")),
        ("_io", "FileIO", (text, "w")),
        ("numpy", "memmap", (text, "uint8", "w+", 0, (4,))),
        ("numpy", "save", (text, [1])),
        ("numpy", "load", (text,)),
        ("numpy", "ndarray.tofile", (text,)),
        ("numpy.lib.format", "open_memmap", (text, "w+", "uint8", (4,))),
        ("numpy.lib._npyio_impl", "savez", (text, [1])),
        ("numpy.memmap", "__new__", (text,)),
        ("logging", "FileHandler", (text,)),
        ("torch", "save", ([1], text)),
        ("torch.serialization", "load", (text,)),
        ("torch.nn.modules.module", "torch", ()),
        ("subprocess", "Popen", (["touch", text],)),
        ("stable_baselines3.common.save_util", "save_to_pkl", (text, [1])),
        ("stable_baselines3.common.save_util", "os.mkdir", (text,)),
        ("stable_baselines3.common.logger", "CSVOutputFormat", (text,)),
        ("stable_baselines3.common.monitor", "Monitor", (None, text)),
        ("stable_baselines3.common.buffers", "warnings", ()),
        ("gymnasium", "make", (f"{PLANTED}:Env-v0",)),
        ("importlib", "import_module", (PLANTED,)),
        (PLANTED, "anything", ()),
        (f"numpy.{PLANTED}", "anything", ()),
        ("shutil", "copyfile", (__file__, text)),
        ("pathlib", "Path", (text,)),
        ("webbrowser", "open", (text,)),
        ("pty", "spawn", (text,)),
        ("antigravity", "fly", ()),
        ("functools", "partial", (print, text)),
        ("operator", "attrgetter", ("__class__",)),
        ("bsrs.naming", "object_named", (f"{PLANTED}:x", "eta")),
    ]


def _text(text: str) -> bytes:
    raw = text.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(raw)) + raw


def _stack_global(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + pickle.STACK_GLOBAL


def _old_global(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def _value(thing: Any) -> bytes:
    """Return the instructions that put a thing on the stack."""
    return pickle.dumps(thing, 2)[2:-1]


def _by(instruction: bytes, name: Callable[[str, str], bytes]) -> Any:
    def way(rng: random.Random, module: str, attribute: str, arguments: tuple[Any, ...]) -> bytes:
        return pickle.PROTO + b"\x04" + name(module, attribute) + _value(arguments) + instruction + pickle.STOP

    return way


def _inst(rng: random.Random, module: str, attribute: str, arguments: tuple[Any, ...]) -> bytes:
    given = b"".join(map(_value, arguments))
    return pickle.MARK + given + pickle.INST + f"{module}\n{attribute}\n".encode() + pickle.STOP


def _obj(rng: random.Random, module: str, attribute: str, arguments: tuple[Any, ...]) -> bytes:
    given = b"".join(map(_value, arguments))
    return pickle.MARK + _stack_global(module, attribute) + given + pickle.OBJ + pickle.STOP


def _as_state(rng: random.Random, module: str, attribute: str, arguments: tuple[Any, ...]) -> bytes:
    """An allowed object whose attribute is the result."""
    space = _stack_global("gymnasium.spaces.discrete", "Discrete") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    call = _stack_global(module, attribute) + _value(arguments) + pickle.REDUCE
    return space + pickle.EMPTY_DICT + _text("n") + call + pickle.SETITEM + pickle.BUILD + pickle.STOP


def _named_only(rng: random.Random, module: str, attribute: str, arguments: tuple[Any, ...]) -> bytes:
    return _stack_global(module, attribute) + pickle.STOP


WAYS = [
    _by(pickle.REDUCE, _stack_global),
    _by(pickle.REDUCE, _old_global),
    _by(pickle.NEWOBJ, _stack_global),
    _by(pickle.EMPTY_DICT + pickle.NEWOBJ_EX, _stack_global),
    _by(pickle.BUILD, _stack_global),
    _inst,
    _obj,
    _as_state,
    _named_only,
]


def _changed(rng: random.Random, code: bytes) -> bytes:
    raw = bytearray(code)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw))
        how = rng.randrange(4)
        if how == 0:
            raw[at] = rng.randrange(256)
        elif how == 1:
            raw.insert(at, rng.randrange(256))
        elif how == 2:
            del raw[at]
        else:
            raw[at:at] = raw[at : at + rng.randint(1, 20)]
    return bytes(raw)


def _instructions(rng: random.Random) -> bytes:
    """Random instructions over allowed names and small values."""
    names = [("numpy", "dtype"), ("numpy._core.numeric", "_frombuffer"), ("numpy._core.multiarray", "_reconstruct")]
    names += [("numpy", "ndarray"), ("numpy._core.multiarray", "scalar"), ("collections", "deque")]
    names += [("numpy.random._pickle", "__bit_generator_ctor"), ("numpy.random._pickle", "__generator_ctor")]
    names += [("gymnasium.spaces.box", "Box"), ("torch.nn.modules.activation", "Tanh"), ("collections", "OrderedDict")]
    names += [("stable_baselines3.common.noise", "NormalActionNoise"), ("numpy", "memmap")]
    values: list[Any] = [
        0,
        -1,
        2**70,
        "f4",
        "O",
        "V8",
        "<f8,O",
        (0,),
        (3,),
        (2**40,),
        b"b",
        b"\0" * 12,
        None,
        True,
        {},
        [],
    ]
    simple = [pickle.MARK, pickle.REDUCE, pickle.BUILD, pickle.NEWOBJ, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2]
    simple += [
        pickle.TUPLE3,
        pickle.SETITEM,
        pickle.SETITEMS,
        pickle.APPEND,
        pickle.APPENDS,
        pickle.MEMOIZE,
        pickle.POP,
    ]
    simple += [pickle.LIST, pickle.DICT, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.NEWOBJ_EX]
    simple += [pickle.BINGET + b"\0", pickle.DUP, pickle.POP_MARK, pickle.EXT1 + b"\1", pickle.BINPERSID]
    code = b""
    for _ in range(rng.randint(2, 30)):
        which = rng.randrange(3)
        if which == 0:
            code += _stack_global(*rng.choice(names))
        elif which == 1:
            code += _value(rng.choice(values))
        else:
            code += rng.choice(simple)
    return code + pickle.STOP
