"""What a page is about: runs, statistics, claims and figures, read and computed once by whoever wants the page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bsrs.errors import BadInput
from bsrs.stats.records import RunRecord, read_runs, series_of
from bsrs.stats.summary import Row, summary


@dataclass(frozen=True, kw_only=True)
class Study:
    """Given to `write_report`, which reads no files of its own but the figures named here."""

    folders: Sequence[Path]
    """Where the runs are."""
    runs: Sequence[RunRecord]
    rows: Sequence[Row]
    """`summary` of the runs' series."""
    title: str = ""
    """Headline; by default the folders' names."""
    unreadable: Mapping[Path, str] = field(default_factory=dict)
    """Folder of a run -> why it cannot be read."""
    claims: Sequence[Mapping[str, str]] = ()
    """The paper's claims with verdicts, as `bsrs reproduce` judges them."""
    figures: Sequence[Path] = ()
    """PNG files."""
    group_by: Sequence[str] = ()
    """The config's fields that tell the series apart; empty: every field, in each folder by itself."""

    def name_of(self, folder: Path) -> str:
        """A run's folder as the reader knows it: below the folder that was asked for."""
        root = next((root for root in self.folders if folder.is_relative_to(root)), folder.parent)
        return str(folder.relative_to(root if len(self.folders) == 1 else root.parent))


def read_study(folders: Sequence[Path], *, title: str = "", group_by: Sequence[str] = ()) -> Study:
    """All runs in `folders`, with the claims and figures that `bsrs reproduce` left there."""
    runs: list[RunRecord] = []
    unreadable: dict[Path, str] = {}
    for folder in folders:
        found, damaged = read_runs(folder)
        if not found and not damaged:
            raise BadInput(f"{folder} holds no runs; expected folders with a config.json")
        runs += found
        unreadable |= damaged
    return Study(
        folders=folders,
        runs=runs,
        rows=summary(series_of(runs, group_by)),
        title=title,
        unreadable=unreadable,
        claims=[claim for path in _files(folders, "claims.json") for claim in _claims(path)],
        figures=[path for path in _files(folders, "*.png") if not (path.parent / "config.json").exists()],
        group_by=group_by,
    )


def _files(folders: Sequence[Path], pattern: str) -> Iterator[Path]:
    """Those in the folders and below. A link that leads out of them is not followed: a page is sent to others."""
    for folder in folders:
        inside = folder.resolve()
        yield from (path for path in sorted(folder.rglob(pattern)) if path.resolve().is_relative_to(inside))


def _claims(path: Path) -> list[dict[str, str]]:
    try:
        claims: list[dict[str, str]] = json.loads(path.read_text())["claims"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is damaged; `bsrs reproduce` writes it anew") from None
    return claims
