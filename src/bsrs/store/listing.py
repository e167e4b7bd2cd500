"""How the runs of a store are going, from their folders alone. Quick: nothing is checked that need not be."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from bsrs.config.sweep import RunFilter
from bsrs.errors import BadInput
from bsrs.store.lock import is_held
from bsrs.store.read import FORMAT

State = Literal["running", "stopped", "finished", "diverged", "failed", "damaged"]

# Enough for the last lines of a file of records.
_TAIL = 4096


@dataclass(frozen=True)
class RunStatus:
    """One run at a glance."""

    name: str
    algorithm: str
    env: str
    eta: float | str
    seed: int
    steps: int
    """Env steps that it is to have."""
    step: int
    """Env steps that it has."""
    score: float | None
    """Mean raw score of its last evaluation."""
    state: State
    """running: a process has it; stopped: none has, and it can go on; damaged: it cannot be read."""
    age_s: float
    """Seconds since something was last recorded."""
    reason: str = ""
    """Why it diverged, failed or cannot be read."""


@dataclass(frozen=True)
class Pulse:
    """How far an unfinished run is."""

    step: int
    score: float | None
    steps_per_s: float | None


def list_runs(root: Path, which: RunFilter | None = None) -> list[RunStatus]:
    """Every run of the store, by name; of those, the ones that pass the filter."""
    return [status for _, status in found_runs(root, which)]


def found_runs(root: Path, which: RunFilter | None = None) -> list[tuple[Path, RunStatus]]:
    """As `list_runs`, with their folders."""
    if not root.is_dir():
        raise BadInput(f"there is no folder {root}")
    statuses = ((folder, run_status(folder)) for folder in _run_folders(str(root)))
    found = [(Path(folder), status) for folder, status in statuses if which is None or _passes(status, which)]
    return sorted(found, key=lambda pair: pair[1].name)


def _run_folders(root: str) -> Iterator[str]:
    """The folders with a config in them, at any depth; a run's own subfolders are not searched."""
    if os.path.exists(f"{root}/config.json"):
        yield root
        return
    with os.scandir(root) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for folder in folders:
        yield from _run_folders(folder)


def run_status(folder: Path | str) -> RunStatus:
    """One run at a glance, from its folder."""
    name = os.path.basename(folder)
    try:
        config = _config(f"{folder}/config.json")
        about = (name, config["algorithm"], config["env"], config["eta"], config["seed"], config["steps"])
        result = _read(f"{folder}/result.json")
        if result is not None and not (result["outcome"] == "failed" and is_held(f"{folder}/lock")):
            step = result["step"] if result["step"] is not None else pulse(folder).step
            return RunStatus(*about, step, result["score"], result["outcome"], _age(folder), result["reason"])
    except (BadInput, KeyError, TypeError) as error:
        why = str(error) if isinstance(error, BadInput) else f"{folder} is damaged: {error} is missing"
        return RunStatus(name, "?", "?", "?", 0, 0, 0, None, "damaged", _age(folder), why)
    beat = pulse(folder)
    state: State = "running" if is_held(f"{folder}/lock") else "stopped"
    return RunStatus(*about, beat.step, beat.score, state, _age(folder))


def pulse(folder: Path | str) -> Pulse:
    """How far an unfinished run is, from the last lines of its records."""
    lines = _last_lines(f"{folder}/metrics.jsonl")
    timing = _last_lines(f"{folder}/timing.jsonl")
    score = next((line["score"] for line in reversed(lines) if line.get("kind") == "eval"), None)
    return Pulse(
        step=max((line.get("step", 0) for line in lines), default=0),
        score=score,
        steps_per_s=timing[-1].get("steps_per_s") if timing else None,
    )


def _config(path: str) -> dict[str, Any]:
    content = _read(path)
    if content is None:
        raise BadInput(f"{path} is not there")
    if content["format"] > FORMAT:
        raise BadInput(f"{path} has format {content['format']!r}; this version of bsrs reads up to {FORMAT}")
    return {"algorithm": content["algorithm"], **content["config"]}


def _read(path: str) -> dict[str, Any] | None:
    """None if there is no such file. Quicker than `read_json`, which matters ten thousand times over."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadInput(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} is damaged: expected an object")
    return content


def _last_lines(path: str) -> list[dict[str, Any]]:
    """The last whole lines of a file that may still be written to; a damaged one does not count here."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            pieces = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    whole = pieces[:-1] if size <= _TAIL else pieces[1:-1]
    lines = []
    for piece in whole:
        try:
            lines.append(json.loads(piece))
        except ValueError:
            continue
    return [line for line in lines if isinstance(line, dict)]


def _age(folder: Path | str) -> float:
    for name in ("result.json", "metrics.jsonl", "config.json"):
        try:
            return max(time.time() - os.stat(f"{folder}/{name}").st_mtime, 0.0)
        except FileNotFoundError:
            continue
    return 0.0


def _passes(status: RunStatus, which: RunFilter) -> bool:
    return (
        (not which.env or any(fnmatchcase(status.env, pattern) for pattern in which.env))
        and (not which.algorithm or status.algorithm in which.algorithm)
        and (not which.eta or _eta_text(status.eta) in map(_eta_text, which.eta))
        and (not which.seed or status.seed in which.seed)
        and (not which.state or status.state in which.state)
    )


def _eta_text(eta: float | str) -> str:
    """So that 1, 1.0 and "1" are one eta."""
    try:
        return f"{float(eta):g}"
    except ValueError:
        return str(eta)
