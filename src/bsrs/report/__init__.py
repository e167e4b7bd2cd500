"""One self-contained page from a folder of runs."""

from __future__ import annotations

from bsrs.report.page import write_report

__all__ = ["write_report"]
