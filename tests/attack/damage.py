"""Every file of finished and unfinished runs, damaged in every way: told by each command, or healed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attack.calls import bsrs, call, in_child
from bsrs.config.settings import folder_name
from bsrs.config.sweep import RunOptions
from bsrs.config.training import TrainingConfig
from bsrs.rng import stream
from bsrs.sweep.plan import expand
from bsrs.sweep.tasks import Task, work
from sweeping import begin, small_sweep

SWEEP = small_sweep(fields={"eval_every": 100})
FIRST, SECOND = expand(SWEEP)
OPTIONS = RunOptions(resume=True, checkpoint_every=60, tensorboard=False)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = int(stream(len(content), "flip", path.name).integers(len(content)))
    content[at] ^= 1 << at % 8
    path.write_bytes(content)


def _instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "flipped": _flip,
    "folder": _instead(lambda path: path.mkdir()),
    "pipe": _instead(os.mkfifo),
    "link to itself": _instead(lambda path: path.symlink_to(path)),
    "link to a device": _instead(lambda path: path.symlink_to("/dev/zero")),
    "link to a copy": lambda path: (
        path.rename(path.with_name(".copy")).rename(path.parent.parent / ".copy")
        and path.symlink_to(path.parent.parent / ".copy")
    ),
}
FINISHED = ("config.json", "metrics.jsonl", "timing.jsonl", "result.json", "model.safetensors")


def store(root: Path) -> Path:
    """A finished run, and one that was cut off; `whole` beside it has both finished."""
    for config in (FIRST, SECOND):
        assert work(Task(root / "whole", (config,), OPTIONS)).how == "done"
    assert work(Task(root / "store", (FIRST,), OPTIONS)).how == "done"
    begin(SECOND, root / "store")
    return root


def attack(root: Path, *, every: int = 1) -> tuple[Counter[str], list[str]]:
    """Counts of what was done and seen, and what went wrong; only every so many-th damage."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    unfinished = root / "store" / folder_name(SECOND)
    of_it = sorted(str(p.relative_to(unfinished)) for p in unfinished.rglob("*") if p.is_file())
    cases = [(FIRST, name, how) for name in FINISHED for how in DAMAGES]
    cases += [(SECOND, name, how) for name in of_it for how in DAMAGES]
    chosen = cases[::every]
    for first in range(0, len(chosen), 10):
        numbers = range(first, min(first + 10, len(chosen)))
        for number, answer in in_child(numbers, lambda number: _try(root, *chosen[number])):
            _, name, how = chosen[number]
            seen, found = answer if isinstance(answer, list) else ({}, [f"ended with {answer}"])
            counts += Counter(seen)
            wrong += [f"{name} {how}: {what}" for what in found]
    return counts, wrong


def _try(root: Path, config: TrainingConfig, name: str, how: str) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    scratch = root / "scratch"
    shutil.copytree(root / "store", scratch)
    DAMAGES[how](scratch / folder_name(config) / name)
    found = (_finished if config == FIRST else _unfinished)(scratch, root / "whole", counts)
    subprocess.run(["rm", "-rf", scratch], check=True)
    return counts, found


def _finished(scratch: Path, whole: Path, counts: Counter[str]) -> list[str]:
    """Each command must say that the run is damaged, and leave it out."""
    run = str(scratch / folder_name(FIRST))
    commands = {
        "runs": (["runs", str(scratch)], 0, "1 damaged"),
        "report": (["report", str(scratch), "-o", str(scratch / "page.html")], 0, ""),
        "recommend": (["recommend", str(scratch)], 2, "is damaged and counts nowhere"),
        "export": (["export", run], 2, "bsrs: "),
        "play": (["play", run, "--out", str(scratch / "film.gif"), "--most-steps", "3"], 2, "bsrs: "),
    }
    wrong = []
    for command, (words, code, says) in commands.items():
        ended = bsrs(words, scratch.parent)
        if ended.fault or ended.code != code or says not in ended.said:
            wrong.append(f"{command}: {ended.fault or ended.said[-300:]}")
        counts[f"damage of finished runs, told by {command}"] += 1
    page = scratch / "page.html"
    if page.exists() and "Not readable" not in page.read_text():
        wrong.append("report: the page does not tell")
    loaded = call(lambda: _load(run), scratch.parent)
    counts["damage of finished runs, told by load"] += 1
    if loaded.code != 2:
        wrong.append(f"load: {loaded.said[-300:]}")
    told = call(lambda: _sweep(scratch, FIRST), scratch.parent)
    counts["damage of finished runs, told by sweep"] += 1
    if told.code != 2 or told.fault:
        wrong.append(f"sweep: {told.said[-300:]}")
    return wrong


def _unfinished(scratch: Path, whole: Path, counts: Counter[str]) -> list[str]:
    """Continuing it ends in the same bytes, or in a sentence."""
    ended = call(lambda: _sweep(scratch, SECOND), scratch.parent)
    if ended.fault:
        return [f"{ended.fault}: {ended.said[-600:]}"]
    if ended.code == 0:
        counts["damage of unfinished runs, healed"] += 1
        name = folder_name(SECOND)
        same = all(
            (scratch / name / f).read_bytes() == (whole / name / f).read_bytes()
            for f in ("metrics.jsonl", "model.safetensors")
        )
        return [] if same else ["the run is another one"]
    counts["damage of unfinished runs, told"] += 1
    return []


def _load(run: str) -> None:
    from bsrs import DQN
    from bsrs.errors import BadInput

    try:
        DQN.load(run)
    except BadInput:
        raise SystemExit(2) from None


def _sweep(root: Path, config: TrainingConfig) -> None:
    """What a worker of a sweep does with the run."""
    ended = work(Task(root, (config,), OPTIONS))
    print(ended.why)
    if ended.how != "done":
        raise SystemExit(2)
