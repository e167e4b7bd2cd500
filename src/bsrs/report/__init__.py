"""One self-contained page from a study: runs, statistics, claims and figures."""

from bsrs.report.page import write_report
from bsrs.report.study import Study, read_study

__all__ = ["Study", "read_study", "write_report"]
