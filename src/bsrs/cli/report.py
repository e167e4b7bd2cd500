"""`bsrs report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bsrs.report import write_report


@dataclass(frozen=True)
class ReportArguments:
    """One self-contained HTML page about a folder of runs."""

    folder: tyro.conf.Positional[Path]
    """Where the runs are; folders below it count too."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page to write."""
    title: str = ""
    """Headline; by default the folder's name."""


def report(arguments: ReportArguments) -> None:
    """Write the page and say where it is."""
    page = write_report(arguments.folder, arguments.out, arguments.title)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser")
