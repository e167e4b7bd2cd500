"""`bsrs report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bsrs.report import read_study, write_report


@dataclass(frozen=True)
class ReportArguments:
    """One self-contained HTML page about one or more folders of runs."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Where the runs are; folders below count too."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page to write."""
    title: str = ""
    """Headline; by default the folders' names."""
    group_by: str = ""
    """Overlay the folders: runs with equal values of these config fields (for example double,eta) are one line."""


def report(arguments: ReportArguments) -> None:
    """Write the page and say where it is."""
    group_by = tuple(name.strip().replace("-", "_") for name in arguments.group_by.split(",") if name.strip())
    study = read_study(arguments.folders, title=arguments.title, group_by=group_by)
    page = write_report(study, arguments.out)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser")
