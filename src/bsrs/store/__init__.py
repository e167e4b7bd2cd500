"""Run folders: config, append-only records, checkpoints, result. Nothing is lost to a kill, nothing overwritten.

Reading needs no torch; `bsrs.store.run.Run`, which writes, does.
"""

from bsrs.store.read import RunRecord, read_config, read_metrics, read_model, read_result, read_run, read_runs

__all__ = ["RunRecord", "read_config", "read_metrics", "read_model", "read_result", "read_run", "read_runs"]
