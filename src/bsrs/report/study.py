"""The content of a report: runs, statistics, claims and figures."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bsrs.errors import BadInput
from bsrs.stats.records import RunRecord, read_runs, series_of
from bsrs.stats.summary import Row, summary
from bsrs.store.files import read_bytes, read_json, walk


@dataclass(frozen=True, kw_only=True)
class Study:
    """The content of a report, for `write_report`."""

    folders: Sequence[Path]
    """Folders with the runs."""
    runs: Sequence[RunRecord]
    rows: Sequence[Row]
    """Statistics of each series."""
    title: str = ""
    """Headline; by default the names of the folders."""
    unreadable: Mapping[Path, str] = field(default_factory=dict)
    """Run folders or files that cannot be read, with the reason."""
    claims: Sequence[Mapping[str, str]] = ()
    """Claims with verdicts, from `python -m experiments`."""
    figures: Sequence[Path] = ()
    """PNG files to include."""
    group_by: Sequence[str] = ()
    """Config fields that distinguish the series. Empty: all fields, and each folder by itself."""

    def name_of(self, folder: Path) -> str:
        """Name a run's folder as the reader knows it: below the folder that was asked for."""
        root = next((root for root in self.folders if folder.is_relative_to(root)), folder.parent)
        return str(folder.relative_to(root if len(self.folders) == 1 else root.parent))


def read_study(folders: Sequence[Path], *, title: str = "", group_by: Sequence[str] = ()) -> Study:
    """Read all runs in `folders`, with the claims and figures that `python -m experiments` left there."""
    if not folders:
        raise BadInput("no folder is named; expected one or more that hold runs")
    runs: list[RunRecord] = []
    unreadable: dict[Path, str] = {}
    for folder in folders:
        found, damaged = read_runs(folder)
        if not found and not damaged:
            raise BadInput(f"{folder} holds no runs; expected folders with a config.json")
        runs += found
        unreadable |= damaged
    claims: list[Mapping[str, str]] = []
    figures: list[Path] = []
    for path in _files(folders):
        try:
            if path.suffix == ".png":
                read_png(path)
                figures.append(path)
            else:
                claims += _claims(path)
        except BadInput as error:
            unreadable[path] = str(error)
    return Study(
        folders=folders,
        runs=runs,
        rows=summary(series_of(runs, group_by)),
        title=title,
        unreadable=unreadable,
        claims=claims,
        figures=figures,
        group_by=group_by,
    )


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Find claims and pictures in the folders and below, but not in runs. No link is followed: pages are shared."""
    for root in folders:
        for folder, names, below in walk(root):
            if names is None or "config.json" in names:
                below.clear()
            else:
                yield from (folder / name for name in names if name == "claims.json" or name.endswith(".png"))


def _claims(path: Path) -> list[Mapping[str, str]]:
    claims: Any = read_json(path).get("claims")
    texts = ("claim", "shown", "interval", "verdict", "settle")
    for claim in claims if isinstance(claims, list) else [None]:
        p = claim.get("p") if isinstance(claim, dict) else None
        sound = isinstance(claim, dict) and all(isinstance(claim.get(name), str) for name in texts)
        if not sound or not (p is None or (isinstance(p, (int, float)) and 0 <= p <= 1)):
            raise BadInput(f"{path} is damaged; rerun the experiment that wrote it")
    return list(claims)


def read_png(path: Path) -> tuple[bytes, int]:
    """Read a picture's bytes and its width."""
    content = read_bytes(path)
    width = struct.unpack(">I", content[16:20])[0] if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) > 24 else 0
    if not width:
        raise BadInput(f"{path} is not a PNG picture; remove it or create it again")
    return content, width
