"""Sweeps that are killed again and again, at any file-system event or moment, whole or in part, end as if they had
never been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from attack.calls import stopped
from bsrs.config.sweep import SweepConfig, SweepOptions
from bsrs.rng import stream
from bsrs.run import make_agent
from bsrs.store import read_run
from bsrs.store.lock import is_held
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.executors.local import LocalExecutor
from bsrs.sweep.plan import expand

FIELDS = {
    "steps": 240,
    "learning_starts": 40,
    "buffer_size": 150,
    "batch_size": 8,
    "train_freq": 4,
    "gradient_steps": 1,
    "log_every": 30,
    "eval_every": 120,
    "eval_episodes": 2,
    "hidden": [8],
}
CONTINUOUS = {**FIELDS, "steps": 120, "eval_every": 60, "eval_episodes": 1}
ETAS = (0.0, 1.0)
SWEEPS = {
    "dqn": SweepConfig(algorithm="dqn", env=("CartPole-v1",), eta=ETAS, seeds=2, fields=FIELDS),
    "td3": SweepConfig(algorithm="td3", env=("Pendulum-v1",), eta=ETAS, fields=CONTINUOUS),
    "sac": SweepConfig(algorithm="sac", env=("Pendulum-v1",), eta=ETAS, fields=CONTINUOUS),
    # One of two members diverges: its run ends before the other's.
    "diverging dqn": SweepConfig(
        algorithm="dqn", env=("CartPole-v1",), eta=(0.0, 1e6), fields={**FIELDS, "learning_rate": 1.0}
    ),
}
MEMBERS = (1, 2, 2, 4)
EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
MOST_EVENTS = 160


class Killer:
    """An audit hook, which Python asks before whatever it does with a file: ends the whole group at one of them."""

    def __init__(self) -> None:
        self.root, self.left = "", -1
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left < 0 or event not in EVENTS or not str(arguments[0]).startswith(self.root):
            return
        self.left -= 1
        if self.left < 0:
            os.killpg(0, signal.SIGKILL)


def options(members: int) -> SweepOptions:
    return SweepOptions(workers=2, members=members, checkpoint_every=40, tensorboard=False)


def sweep(root: Path, name: str, members: int, killer: Killer | None = None, event: int = -1) -> int:
    """Start the sweep of that name, in populations of so many members: in a new process group, which ends at the file
    event of that number. Return the group."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 2)
        if killer is not None:
            killer.root, killer.left = str(root), event
        ended = run_sweep(expand(SWEEPS[name]), root, options(members), LocalExecutor(2, start_method="fork"))
        os._exit(3 if ended.problems else 0)
    finally:
        os._exit(1)


def wait(group: int) -> int:
    """Until its first process has ended, and nobody of the group has a run any more."""
    return os.waitstatus_to_exitcode(os.waitpid(group, 0)[1])


def let_go(root: Path) -> None:
    """Workers whose parent was killed die a moment later."""
    until = time.monotonic() + 60
    while any(is_held(lock) for lock in (*root.glob("*/lock"), root / "sweep.lock")):
        assert time.monotonic() < until, "a worker outlived its sweep"
        time.sleep(0.01)


def remains(root: Path) -> dict[str, bytes]:
    """What must be the same, whatever happened on the way."""
    kept = {
        str(p.relative_to(root)): p.read_bytes()
        for n in ("metrics.jsonl", "model.safetensors")
        for p in root.glob(f"*/{n}")
    }
    for folder in sorted(path.parent for path in root.glob("*/config.json")):
        run, files = read_run(folder), sorted(path.name for path in folder.iterdir())
        kept[folder.name] = f"{run.outcome} {run.step} {run.score} {run.sealed} {files}".encode()
    return kept


def attack(kills: int, seed: int = 0, forkserver: int = 0) -> tuple[Counter[str], list[str]]:
    """At least that many kills: how many of each kind, and the differences that they left."""
    killer, rng = Killer(), stream(seed, "kills")
    counts: Counter[str] = Counter()
    differences: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for study in SWEEPS.values():
            make_agent(expand(study)[:1])  # compiled code is loaded here once, and not in every process
        alone = {name: _undisturbed(Path(folder) / name, name) for name in SWEEPS}
        for number, how in enumerate(_kinds(rng)):
            if counts.total() >= kills or stopped():
                break
            name, members = str(rng.choice(list(SWEEPS))), int(rng.choice(MEMBERS))
            root, (expected, length) = Path(folder) / str(number), alone[name]
            what = f"{name}, {'in populations' if members > 1 else 'alone'}, {how}"
            _live(root, name, members, how, counts, killer, rng, length)
            differences += _compare(root, expected, what)
            if number % 10 == 0:
                print(f"{counts.total():,} kills, {len(differences)} differences", file=sys.stderr, flush=True)
            subprocess.run(["rm", "-rf", root], check=True)
        for number in range(forkserver):
            root = Path(folder) / f"forkserver-{number}"
            _real_workers(root, counts, rng, members=1 + number // 2 % 2, whole=number % 2 == 0)
            differences += _compare(root, alone["dqn"][0], "forkserver")
    return counts, differences


def _undisturbed(root: Path, name: str) -> tuple[dict[str, bytes], float]:
    """What a sweep leaves whose runs are trained alone, and how long it takes. Populations must leave the same."""
    began = time.monotonic()
    assert wait(sweep(root, name, 1)) == 0
    length, expected = time.monotonic() - began, remains(root)
    assert len(expected) == 3 * len(expand(SWEEPS[name]))
    assert any(b"diverged" in content for content in expected.values()) == (name == "diverging dqn")
    together = root.with_name(f"{name} together")
    assert wait(sweep(together, name, 4)) == 0
    assert not _compare(together, expected, name)
    return expected, length


def _kinds(rng: Any) -> Iterator[str]:
    while True:
        yield str(rng.choice(["event", "moment", "parent", "worker"], p=[0.7, 0.1, 0.1, 0.1]))


def _compare(root: Path, expected: dict[str, bytes], how: str) -> list[str]:
    found = remains(root)
    return [f"{how}: {name}" for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)]


def _live(
    root: Path, name: str, members: int, how: str, counts: Counter[str], killer: Killer, rng: Any, length: float
) -> None:
    """Start the sweep and kill it up to ten times, then let it come to its end."""
    what = f"{name}, {'in populations' if members > 1 else 'alone'}, {how}"
    for _ in range(10):
        event = int(rng.integers(MOST_EVENTS)) if how == "event" else -1
        group = sweep(root, name, members, killer, event)
        if how != "event":
            time.sleep(float(rng.uniform(0.2, 1.0)) * length)
            _kill(root, how, group)
        code = wait(group)
        let_go(root)
        if code == 0:
            counts[what] += how == "worker"
            return
        assert code == -signal.SIGKILL, f"{what}: exit code {code}"
        counts[what] += 1
    assert wait(sweep(root, name, members)) == 0


def _kill(root: Path, how: str, group: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        if how == "moment":
            os.killpg(group, signal.SIGKILL)
        elif how == "parent":
            os.kill(group, signal.SIGKILL)
        elif worker := _worker(root):
            os.kill(worker, signal.SIGKILL)


def _worker(root: Path) -> int | None:
    """A process that has a run."""
    for lock in root.glob("*/lock"):
        with suppress(ValueError, KeyError, OSError):
            if is_held(lock):
                return int(json.loads(lock.read_text())["pid"])
    return None


def _real_workers(root: Path, counts: Counter[str], rng: Any, members: int, whole: bool) -> None:
    """The command itself with its real workers, killed while they train."""
    settings = [word for name, value in FIELDS.items() for word in (f"--{name.replace('_', '-')}", *_words(value))]
    words = ["sweep", "dqn", "--env", "CartPole-v1", "--eta", "0", "1", "--seeds", "2", "--no-tensorboard", *settings]
    words += ["--members", str(members), "--checkpoint-every", "40", "--workers", "2", "--out", str(root)]
    with subprocess.Popen(
        [sys.executable, "-m", "bsrs", *words],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while process.poll() is None and _worker(root) is None:
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0.0, 0.5)))
        _kill(root, "moment" if whole else "worker", process.pid)
        counts["real workers, whole group" if whole else "real workers, one"] += process.wait() != 0 or not whole
    let_go(root)
    assert wait(sweep(root, "dqn", members)) == 0


def _words(value: Any) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else [str(value)]
