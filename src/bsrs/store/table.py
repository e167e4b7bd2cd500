"""List the runs in a folder, and read them as tables for pandas and DuckDB."""

import dataclasses
import os
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsrs.config.settings import RunSettings
from bsrs.config.sweep import RunFilter, RunState
from bsrs.errors import BadInput, optional
from bsrs.store.lock import is_held
from bsrs.store.read import read_config, read_metrics, read_run, run_folders
from bsrs.writing import Exhausted

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

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


def list_runs(root: Path, which: RunFilter | None = None) -> list[RunStatus]:
    """List the runs of the store that pass the filter, by name."""
    return list(found_runs(root, which).values())


def found_runs(root: Path, which: RunFilter | None = None) -> dict[Path, RunStatus]:
    """List them as `list_runs` does, by their folders."""
    found = {folder: run_status(folder) for folder in run_folders(root)}
    passing = [pair for pair in found.items() if which is None or _passes(pair[1], which)]
    return dict(sorted(passing, key=lambda pair: pair[1].name))


def run_status(folder: Path) -> RunStatus:
    """Read one run at a glance; what is wrong with a damaged one is its reason."""
    about: dict[str, Any] = {"name": folder.name, "age_s": _age(folder)}
    try:
        run = read_run(folder)
    except Exhausted:
        raise
    except BadInput as error:
        about |= {"algorithm": "?", "env": "?", "eta": "?", "seed": 0, "steps": 0}
        with suppress(BadInput):
            about |= _settings(read_config(folder))
        return RunStatus(**about, step=0, score=None, state="damaged", reason=str(error))
    about |= {**_settings(run.config), "step": run.step, "score": run.score}
    if run.outcome in ("interrupted", "failed") and is_held(folder / "lock"):
        return RunStatus(**about, state="running")
    about |= {"state": run.outcome, "reason": run.reason, "sealed": run.sealed}
    return RunStatus(**about)


def _settings(config: RunSettings) -> dict[str, Any]:
    named = {name: getattr(config, name) for name in ("algorithm", "env", "eta", "seed", "steps")}
    return {**named, "config": dict(config.fields)}


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
