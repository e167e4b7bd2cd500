"""The whole store as one table, for pandas and DuckDB."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsrs.config.sweep import RunFilter
from bsrs.errors import BadInput, MissingExtra
from bsrs.store.listing import RunStatus, found_runs, list_runs
from bsrs.store.read import read_metrics

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

_OF_THE_RUN = ("name", "algorithm", "env", "eta", "seed")


def read_runs(root: Path | str, which: RunFilter | None = None) -> pd.DataFrame:
    """A row for each run: what `bsrs runs` shows, and every setting of its config."""
    rows = [run_row(status) for status in list_runs(Path(root), which)]
    columns = None if rows else [field.name for field in dataclasses.fields(RunStatus) if field.name != "config"]
    return _pandas().DataFrame(rows, columns=columns)


def run_row(status: RunStatus) -> dict[str, Any]:
    """One run as a flat row: the settings of its config, then how it is going."""
    row = dataclasses.asdict(status)
    settings: dict[str, Any] = row.pop("config")
    return settings | row


def read_records(root: Path | str, which: RunFilter | None = None) -> pd.DataFrame:
    """A row for each record of each run, with the run's name, algorithm, env, eta and seed in front.

    Damaged runs are left out, with a warning.
    """
    rows: list[dict[str, Any]] = []
    for folder, status in found_runs(Path(root), which):
        run = {name: getattr(status, name) for name in _OF_THE_RUN}
        try:
            if status.state == "damaged":
                raise BadInput(status.reason)
            rows += [run | line for line in read_metrics(folder)]
        except BadInput as error:
            warnings.warn(f"the run {status.name} is damaged and left out: {error}", stacklevel=2)
    return _pandas().DataFrame(rows, columns=None if rows else [*_OF_THE_RUN, "kind", "step"])


def connect(root: Path | str, which: RunFilter | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the tables `runs` and `records`."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtra("reading a store with DuckDB", "report") from None
    connection = duckdb.connect()
    for name, table in (("runs", read_runs(root, which)), ("records", read_records(root, which))):
        connection.register(f"{name}_frame", table)
        connection.execute(f"create table {name} as select * from {name}_frame")
    return connection


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtra("reading a store as a table", "report") from None
    return pd
