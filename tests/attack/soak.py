"""Memory and file handles over time: one long run, and many runs in one process. `python tests/attack/soak.py`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bsrs.config.algorithms import preset
from bsrs.config.sweep import RunOptions
from bsrs.run import run

STEPS, RUNS = 500_000, 200


def usage() -> tuple[float, int]:
    """Resident memory in MB, and open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir("/proc/self/fd"))


def show(what: str, number: int) -> None:
    memory, handles = usage()
    print(f"| {what} | {number:,} | {memory:,.0f} | {handles} |", flush=True)


def one_long_run(folder: Path, steps: int) -> None:
    def progress(step: int, steps_per_s: float, score: float | None, record: Mapping[str, Any]) -> None:
        if step == 1_000 or step % (steps // 10) == 0:
            show("steps of one run", step)

    # Few gradient steps, which are not what is tried here; the target network waits for them.
    rare = {"train_freq": 16, "gradient_steps": 1, "target_update_interval": 3_200, "eval_every": 25_000}
    config = preset("dqn", "classic", env="CartPole-v1", eta=0.0, seed=0, steps=steps, **rare)
    (outcome,) = run([config], [folder], RunOptions(threads=1), progress)
    assert outcome.step == steps, outcome


def many_runs(folder: Path, runs: int) -> None:
    for seed in range(runs):
        config = preset(
            "dqn", "classic", env="CartPole-v1", eta=0.5, seed=seed, steps=600, learning_starts=200, eval_every=0
        )
        run([config], [folder / str(seed)], RunOptions(threads=1, checkpoint_every=200))
        if seed == 0 or (seed + 1) % max(runs // 10, 1) == 0:
            show("runs in one process", seed + 1)


def main(steps: int = STEPS, runs: int = RUNS) -> None:
    print("| what | number | memory in MB | open files |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        one_long_run(Path(folder) / "long", steps)
    with tempfile.TemporaryDirectory() as folder:
        many_runs(Path(folder), runs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
