"""Hostile command lines, sweep files and run folders, from a fixed seed: each ends in an answer or in a sentence."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attack.calls import Ended, bsrs, call, in_child, stopped
from attack.damage import FIRST, SECOND
from bsrs.config.settings import RunSettings, folder_name
from bsrs.rng import stream
from bsrs.store.files import checksum, read_bytes, write_json
from sweeping import HereExecutor

WORDS = """
    -1 0 1e400 nan inf -inf 0.5 3 1_000 True None 0x10 １２ ../../../etc/passwd /dev/null /dev/zero . ~ - -- =
    %s%n {} [] linear:0:1:0 linear:0:1:5 piecewise: piecewise:5=1 cosine:1:2 anderson auto NoSuchEnv-v0 : a:
    nosuchmodule:Foo-v0 meta CartPole-v1 Pendulum-v1 FrozenLake-v1 garnet:5:2:2:0 garnet:-1:2:2:0
    garnet:9:9:99:0 99999999x99999999 3x3 0x0 cuda:99 cpu: a,b
""".split()
WORDS += ["", "\n", "\x1b[2J", "\u202e", "\udcff", "9" * 5_000, "9" * 25, "a" * 5_000]
TRAIN = "--steps 20 --learning-starts 10 --buffer-size 50 --batch-size 4 --hidden 4 --log-every 10 --eval-every 0"
TRAIN += " --eval-episodes 1 --no-tensorboard --out OUT"
COMMANDS = [
    f"train dqn --env CartPole-v1 --eta 0.5 --seed 1 {TRAIN}",
    f"train td3 --env Pendulum-v1 --eta 1 {TRAIN}",
    f"train sac --env Pendulum-v1 --eta 1 {TRAIN}",
    f"sweep dqn --env CartPole-v1 --eta 0 1 --seeds 1 {TRAIN}",
    "sweep --preset paper-tabular --scale smoke --dry-run --out OUT",
    "sweep FILE.toml --set steps=20 --dry-run --out OUT",
    "runs STORE --state finished --eta 1 --json",
    "runs STORE --sql 'select eta from runs'",
    "report STORE -o OUT/page.html --group-by eta --title x",
    "play RUN --out OUT.gif --most-steps 2 --episodes 1 --seed 0 --fps 5",
    "recommend STORE --json",
    "export RUN --format torchscript --out OUT.pt",
    "presets dqn",
    "tabular solve --map 3x3 --gamma 0.9 --slip 0.1 --goal loop --eta 0 0.1 --tol 1e-3 --max-steps 99",
    "tabular sweep --map 3x3 --gamma 0.9 --eta 0 0.1 --seeds 2 --tol 1e-3 --max-steps 99",
    "tabular theory --map 3x3 --gamma 0.9 --eta 0.1 --seeds 2 --json",
]
# Long commands get a flag that does not exist, so that they stop before any work, whatever else is changed.
LONG = ["demo", "reproduce tabular", "reproduce pendulum", "reproduce all", "bench dqn", "bench tabular", "lab"]
FLAGS = [
    "--out",
    "--env",
    "--eta",
    "--seed",
    "--gamma",
    "--hidden",
    "--device",
    "--threads",
    "--preset",
    "--plugin",
    "--tau",
]
FLAGS += [
    "--n-envs",
    "--learning-rate",
    "--potential",
    "--parts",
    "--control",
    "--resume",
    "--json",
    "--help",
    "--scale",
]

TOML = """algorithm = "dqn"
env = ["CartPole-v1"]
eta = [0.0, 0.5, "linear:2:0:20"]
seeds = 1
preset = "classic"

[fields]
steps = 20
learning_starts = 10
buffer_size = 50
hidden = [4]
eval_episodes = 1

[grid]
potential_network = ["online", "target"]
"""
VALUES = [
    "1",
    "-1",
    "0",
    '""',
    "[]",
    "{}",
    "true",
    "nan",
    "inf",
    "1e400",
    "9" * 5_000,
    "9" * 25,
    '"\\u001b[2J"',
    "[" * 200,
]
VALUES += [
    "[[1]]",
    '["a", 1]',
    "1979-05-27",
    "'x'",
    '"NoSuchEnv-v0"',
    "{a = {b = 1}}",
    '"json:Foo-v0"',
    "\x00",
    "= =",
    "1e5",
]
JSON: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    10**18,
    10**30,
    "",
    "x",
    "\x1b[2J",
    "a" * 10_000,
    [],
    {},
    [[[[]]]],
    [None],
]
JSON += [
    {"a": {"b": []}},
    "finished",
    "diverged",
    "json:Foo-v0",
    "CartPole-v1",
    0.5,
    [1e308] * 3,
    "nan",
    2**63,
    -(2**63),
]
RAW = [
    b"",
    b"\0" * 50,
    b"[" * 50_000,
    b"9" * 5_000,
    b"\xff\xfe\xfd",
    b'{"kind": "eval"}\n',
    b"null\n",
    b"{}\n",
    b'{"a": NaN}\n',
]


def attack(root: Path, inputs: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """That many inputs: what they were and how they ended, and those that should not have."""
    _in_this_process()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for first in range(0, inputs, 25):
        if stopped():
            break
        numbers = range(first, min(first + 25, inputs))
        for number, answer in in_child(numbers, lambda number: _try(root, number, seed)):
            kind, what, ended = answer if isinstance(answer, list) else (*_kind(number, seed)[:1], "", [answer, ""])
            fault = Ended(*ended).fault or ("no sentence" if ended[0] == 2 and not ended[1].strip() else "")
            counts[f"{kind}, {fault or f'exit code {ended[0]}'}"] += 1
            if fault:
                wrong.append(f"{kind} {number}: {fault}: {what}\n{ended[1]}")
        if first % 500 == 0:
            print(f"{counts.total():,} inputs, {len(wrong)} of them wrong", file=sys.stderr, flush=True)
    return counts, wrong


def _kind(number: int, seed: int) -> tuple[str, Any]:
    """What an input is, and the stream that it is drawn from."""
    rng = stream(seed, "fuzz", number)
    return str(rng.choice(list(KINDS), p=[0.3, 0.2, 0.5])), rng


def _try(root: Path, number: int, seed: int) -> tuple[str, str, tuple[int, str]]:
    kind, rng = _kind(number, seed)
    scratch = root / f"fuzz-{number}"
    scratch.mkdir()
    what, ended = KINDS[kind](scratch, rng)
    shutil.rmtree(scratch, ignore_errors=True)
    return kind, what, (ended.code, ended.said[-1_500:])


def _in_this_process() -> None:
    """No worker processes and no measuring: the attack by kills has those."""
    import bsrs.sweep.conduct
    import bsrs.sweep.measure

    bsrs.sweep.conduct.make_executor = lambda *arguments: HereExecutor()  # type: ignore[assignment]
    bsrs.sweep.measure.MEASURED_S, bsrs.sweep.measure.WARM_UP = 0.01, 12


def _command_line(scratch: Path, rng: Any) -> tuple[str, Ended]:
    import shlex

    (scratch / "FILE.toml").write_text(TOML)
    store = scratch.parent / "store"
    line = str(rng.choice(COMMANDS)).replace("STORE", str(store)).replace("RUN", str(store / folder_name(FIRST)))
    words = shlex.split(line)
    if rng.random() < 0.15:
        words = [
            *str(rng.choice(LONG)).split(),
            *rng.choice(FLAGS, 2).tolist(),
            str(rng.choice(WORDS)),
            "--no-such-flag",
        ]
        return shlex.join(words)[:600], bsrs(words, scratch)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(1, len(words))) if len(words) > 1 else 0
        change = int(rng.integers(5))
        if change == 0 and words[at] not in ("--dry-run", "20"):
            del words[at : at + int(rng.integers(1, 3))]
        elif change == 1:
            words.insert(at, str(rng.choice(FLAGS)))
        elif change == 2:
            words[at:at] = [str(rng.choice(FLAGS)), str(rng.choice(WORDS))]
        elif not words[at].startswith("--"):
            words[at] = str(rng.choice(WORDS))
        if len(words) < 2:
            words += ["runs"]
    if words[0] in ("train", "sweep") and "--preset" not in words and "--steps" not in words:
        words += ["--steps", "20"]  # what is left may be a sound command: let it be a short one
    return shlex.join(words)[:600], bsrs(words, scratch)


def _sweep_file(scratch: Path, rng: Any) -> tuple[str, Ended]:
    lines = TOML.splitlines()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        change = int(rng.integers(5))
        if change == 0:
            del lines[at]
        elif change == 1:
            lines.insert(at, lines[int(rng.integers(len(lines)))])
        elif change == 2 and lines[at]:
            column = int(rng.integers(len(lines[at])))
            lines[at] = lines[at][:column] + chr(int(rng.integers(1, 0x3000))) + lines[at][column + 1 :]
        elif "=" in lines[at]:
            lines[at] = f"{lines[at].partition('=')[0]}= {rng.choice(VALUES)}"
        lines = lines or [""]
    text = "\n".join(lines)
    (scratch / "mine.toml").write_bytes(text.encode(errors="replace"))
    return text[:1_500], bsrs(["sweep", "mine.toml", "--dry-run", "--out", "out", "--set", "steps=20"], scratch)


def _run_folder(scratch: Path, rng: Any) -> tuple[str, Ended]:
    store = Path(shutil.copytree(scratch.parent / "store", scratch / "store"))
    run = store / folder_name(FIRST if rng.random() < 0.5 else SECOND)
    files = sorted(path for path in run.rglob("*") if path.is_file())
    what = ""
    for _ in range(int(rng.integers(1, 3))):
        path = files[int(rng.integers(len(files)))]
        if path.is_file() and not path.is_symlink():
            what += f"{path.relative_to(store)}: {_mutate(path, rng)}; "
    if rng.random() < 0.5:
        _reseal(run)
        what += "sealed anew; "
    command = str(rng.choice(list(FOLDER_COMMANDS), p=[0.5, 0.12, 0.05, 0.05, 0.03, 0.17, 0.08]))
    return f"{command}: {what}", FOLDER_COMMANDS[command](store, run, scratch)


def _mutate(path: Path, rng: Any) -> str:
    content = path.read_bytes()
    how = int(rng.integers(6))
    if how == 0:
        at = int(rng.integers(len(content) + 1))
        path.write_bytes(content[:at])
        return f"cut at {at}"
    if how == 1:
        changed = bytearray(content)
        for at in rng.integers(max(len(content), 1), size=3).tolist():
            if content:
                changed[at] = int(rng.integers(256))
        path.write_bytes(changed)
        return "bytes changed"
    if how == 2:
        raw = RAW[int(rng.integers(len(RAW)))]
        path.write_bytes(raw)
        return f"is {raw[:20]!r}"
    if how == 3 and rng.random() < 0.5:
        path.unlink()
        kind = int(rng.integers(4))
        (os.mkfifo, os.mkdir, lambda p: os.symlink(p, p), lambda p: os.symlink("/dev/zero", p))[kind](path)
        return f"strange file {kind}"
    return _mutate_json(path, content, rng)


def _mutate_json(path: Path, content: bytes, rng: Any) -> str:
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    if not lines or not path.name.endswith(("json", "jsonl", "lock")):
        path.write_bytes(content + b"x")
        return "longer"
    at = int(rng.integers(len(lines)))
    try:
        data = json.loads(lines[at])
    except (ValueError, RecursionError):
        return "left"
    where, name, value = data, None, JSON[int(rng.integers(len(JSON)))]
    while isinstance(where, (dict, list)) and where:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        name = keys[int(rng.integers(len(keys)))]
        if not isinstance(where[name], (dict, list)) or not where[name] or rng.random() < 0.3:
            break
        where = where[name]
    if name is None:
        return "left"
    if rng.random() < 0.2:
        del where[name]
    else:
        where[name] = value
    lines[at] = json.dumps(data).encode()
    path.write_bytes(b"\n".join(lines) + (b"\n" if path.suffix == ".jsonl" else b""))
    return f"{name} is {str(value)[:40]!r}"


def _reseal(run: Path) -> None:
    """As somebody would who means it: every checksum fits."""
    _reseal_json(run / "result.json", "seal", run)
    _reseal_json(run / "checkpoint" / "state.json", "checksums", run / "checkpoint")
    config = run / "config.json"
    try:
        content = json.loads(read_bytes(config))  # it may be a pipe by now
        content["identity"] = RunSettings.read(content["algorithm"], content["config"]).identity
        config.write_text(json.dumps(content))
    except Exception:
        return


def _reseal_json(path: Path, key: str, folder: Path) -> None:
    try:
        content = json.loads(read_bytes(path))
        content.pop("checksum", None)
        content[key] = {name: checksum(folder / name) for name in content[key]}
        write_json(path, content, sealed=True)
    except Exception:
        return


def _load(run: Path) -> None:
    from bsrs import DQN
    from bsrs.errors import BadInput

    try:
        DQN.load(run).predict(np.zeros(4, np.float32))
    except BadInput as error:
        print(error)
        raise SystemExit(2) from None


def _resume(store: Path, run: Path) -> None:
    from attack.damage import OPTIONS
    from bsrs.sweep.tasks import Task, work

    config = FIRST if run.name == folder_name(FIRST) else SECOND
    ended = work(Task(store, (config,), OPTIONS))
    print(ended.why)
    if ended.how != "done":
        raise SystemExit(2)


KINDS: dict[str, Callable[[Path, Any], tuple[str, Ended]]] = {
    "command lines": _command_line,
    "sweep files": _sweep_file,
    "run folders": _run_folder,
}
FOLDER_COMMANDS: dict[str, Callable[[Path, Path, Path], Ended]] = {
    "runs": lambda store, run, scratch: bsrs(["runs", str(store)], scratch),
    "runs --json": lambda store, run, scratch: bsrs(["runs", str(store), "--json"], scratch),
    "runs --sql": lambda store, run, scratch: bsrs(["runs", str(store), "--sql", "select * from records"], scratch),
    "report": lambda store, run, scratch: bsrs(["report", str(store), "-o", "page.html"], scratch),
    "play": lambda store, run, scratch: bsrs(["play", str(run), "--most-steps", "2"], scratch),
    "load": lambda store, run, scratch: call(lambda: _load(run), scratch),
    "resume": lambda store, run, scratch: call(lambda: _resume(store, run), scratch),
}

__all__ = ["attack"]
