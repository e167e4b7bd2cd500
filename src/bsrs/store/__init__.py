"""Run folders: config, append-only records, checkpoints, result. Nothing is lost to a kill, nothing overwritten.

Reading needs no torch; `bsrs.store.run.Run`, which writes, does.
"""

from __future__ import annotations

from bsrs.store.read import read_config, read_metrics, read_policy, read_result

__all__ = ["read_config", "read_metrics", "read_policy", "read_result"]
