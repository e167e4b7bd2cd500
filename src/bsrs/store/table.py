"""List the runs in a folder, and read them as tables for pandas and DuckDB."""

import dataclasses
import os
import time
import warnings
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsrs.config.sweep import RunFilter, RunState
from bsrs.errors import BadInput, optional
from bsrs.store.files import Damaged, is_count, is_number, open_regular, parse_json
from bsrs.store.lock import is_held
from bsrs.store.read import read_config, read_metrics, read_result, read_run, run_folders
from bsrs.writing import Exhausted

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

# Enough for the last lines of a file of records.
_TAIL = 4096
_OF_THE_RUN = ("name", "algorithm", "env", "eta", "seed")


@dataclass(frozen=True)
class RunStatus:
    """Summary of one run."""

    name: str
    algorithm: str
    env: str
    eta: float | str
    seed: int
    steps: int
    """Env steps it will have."""
    step: int
    """Env steps it has so far."""
    score: float | None
    """Mean raw score of the last evaluation."""
    state: RunState
    """running: a process holds it; interrupted: none does, and it can be resumed; damaged: it cannot be read."""
    age_s: float
    """Seconds since the last record."""
    reason: str = ""
    """Why the run diverged, failed or cannot be read."""
    sealed: bool = False
    """Whether the files match their checksums. Runs of older versions have none."""
    config: dict[str, Any] = field(default_factory=dict)
    """All settings."""


@dataclass(frozen=True)
class Pulse:
    """Progress of an unfinished run."""

    step: int
    score: float | None
    steps_per_s: float | None


def list_runs(root: Path, which: RunFilter | None = None) -> list[RunStatus]:
    """List the runs of the store that pass the filter, by name."""
    return list(found_runs(root, which).values())


def found_runs(root: Path, which: RunFilter | None = None) -> dict[Path, RunStatus]:
    """List them as `list_runs` does, by their folders."""
    found = {folder: run_status(folder) for folder in run_folders(root)}
    passing = [pair for pair in found.items() if which is None or _passes(pair[1], which)]
    return dict(sorted(passing, key=lambda pair: pair[1].name))


def run_status(folder: Path, *, verify: bool = True) -> RunStatus:
    """Read one run at a glance; what is wrong with a damaged one is its reason."""
    about: dict[str, Any] = {"name": folder.name, "algorithm": "?", "env": "?", "eta": "?", "seed": 0, "steps": 0}
    about["age_s"] = _age(folder)
    try:
        config = read_config(folder)
        about |= {name: getattr(config, name) for name in ("algorithm", "env", "eta", "seed", "steps")}
        about["config"] = dict(config.fields)
        result = read_result(folder, verify=verify)
        if result is not None and not (result["outcome"] == "failed" and is_held(folder / "lock")):
            if "seal" not in result:
                read_run(folder)  # nothing else tells whether its records are whole
            step = result["step"] if result["step"] is not None else pulse(folder).step
            ended = {"step": step, "score": result["score"], "state": result["outcome"], "reason": result["reason"]}
            return RunStatus(**about, **ended, sealed="seal" in result)
    except Exhausted:
        raise
    except BadInput as error:
        return RunStatus(**about, step=0, score=None, state="damaged", reason=str(error))
    beat = pulse(folder)
    held = is_held(folder / "lock")
    return RunStatus(**about, step=beat.step, score=beat.score, state="running" if held else "interrupted")


def pulse(folder: Path) -> Pulse:
    """Read how far an unfinished run is, from the last lines of its records."""
    lines = _last_lines(folder / "metrics.jsonl")
    timing = _last_lines(folder / "timing.jsonl")
    scores = [line.get("score") for line in lines if line.get("kind") == "eval"]
    rate = timing[-1].get("steps_per_s") if timing else None
    return Pulse(
        step=max((line["step"] for line in lines if is_count(line.get("step"))), default=0),
        score=scores[-1] if scores and is_number(scores[-1]) else None,
        steps_per_s=rate if is_number(rate) else None,
    )


def _last_lines(path: Path) -> list[dict[str, Any]]:
    """Read the last whole lines of a file that may still be written to, without damaged ones."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL, 0))
            pieces = file.read(_TAIL).split(b"\n")
    except (FileNotFoundError, Damaged):
        return []
    lines = []
    for piece in pieces[:-1] if size <= _TAIL else pieces[1:-1]:
        try:
            lines.append(parse_json(piece, str(path)))
        except Damaged:
            continue
    return [line for line in lines if isinstance(line, dict)]


def _age(folder: Path) -> float:
    for name in ("result.json", "metrics.jsonl", "config.json"):
        try:
            return max(time.time() - os.lstat(folder / name).st_mtime, 0.0)
        except OSError:
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
    """Write an eta so that 1, 1.0 and "1" are the same."""
    try:
        return f"{float(eta):g}"
    except ValueError:
        return str(eta)


# --------------------------------------------------------------------------------------------------------------
# For pandas and DuckDB.


def read_runs(root: Path | str, which: RunFilter | None = None) -> "pd.DataFrame":
    """Read a row for each run: what `bsrs runs` shows, and every setting of its config."""
    rows = [run_row(status) for status in list_runs(Path(root), which)]
    return _frame(rows, [field.name for field in dataclasses.fields(RunStatus) if field.name != "config"])


def run_row(status: RunStatus) -> dict[str, Any]:
    """Flatten one run: the settings of its config, then how it is going."""
    row = dataclasses.asdict(status)
    settings: dict[str, Any] = row.pop("config")
    return settings | row


def read_records(root: Path | str, which: RunFilter | None = None) -> "pd.DataFrame":
    """Read a row for each record of each run, with the run's name, algorithm, env, eta and seed in front.

    Damaged runs are left out, with a warning.
    """
    rows: list[dict[str, Any]] = []
    for folder, status in found_runs(Path(root), which).items():
        run = {name: getattr(status, name) for name in _OF_THE_RUN}
        try:
            if status.state == "damaged":
                raise BadInput(status.reason)
            rows += [run | line for line in read_metrics(folder)]
        except BadInput as error:
            warnings.warn(f"the run {status.name} is damaged and left out: {error}", stacklevel=2)
    return _frame(rows, [*_OF_THE_RUN, "kind", "step"])


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> "pd.DataFrame":
    """Make a frame of the rows; with these columns if there are none."""
    pandas = optional("pandas", "reading a store as a table", "report")
    return pandas.DataFrame(rows, columns=None if rows else columns)


def connect(root: Path | str, which: RunFilter | None = None) -> "duckdb.DuckDBPyConnection":
    """Open a DuckDB connection with the tables `runs` and `records`."""
    connection = optional("duckdb", "reading a store with DuckDB", "report").connect()
    for name, table in (("runs", read_runs(root, which)), ("records", read_records(root, which))):
        connection.register(f"{name}_frame", table)
        connection.execute(f"create table {name} as select * from {name}_frame")
    return connection
