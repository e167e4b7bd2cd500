"""Run folders: config, append-only records, checkpoints, result. Nothing is lost to a kill, nothing overwritten."""

from __future__ import annotations

from bsrs.store.read import read_config, read_metrics, read_policy, read_result
from bsrs.store.run import Run

__all__ = ["Run", "read_config", "read_metrics", "read_policy", "read_result"]
