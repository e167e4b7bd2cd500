"""Starts the same sweep again and again, each time in a new process group that can be killed as a whole.

What it imports is imported once, so that a test can afford twenty starts.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from bsrs.config.sweep import SweepConfig, SweepOptions
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.executors.local import PRELOAD, LocalExecutor
from bsrs.sweep.plan import expand

SWEEP = SweepConfig(
    algorithm="dqn",
    env=("CartPole-v1",),
    eta=(0.0, 0.5, 1.0),
    seeds=2,
    fields={
        "steps": 800,
        "learning_starts": 100,
        "buffer_size": 500,
        "batch_size": 16,
        "gradient_steps": 1,
        "log_every": 50,
        "eval_every": 300,
        "eval_episodes": 2,
        "hidden": [16],
    },
)


def sweep(root: Path) -> None:
    options = SweepOptions(workers=2, members=1, checkpoint_every=70)
    run_sweep(expand(SWEEP), root, options, LocalExecutor(2, start_method="fork"))


def main() -> None:
    """Each line of standard input is a folder: sweep there, say the process group, then how it ended."""
    for name in PRELOAD:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.write(1, f"{os.getpid()}\n".encode())
            sweep(Path(line.strip()))
            sys.stderr.flush()
            os._exit(0)
        os.write(1, f"{os.waitpid(child, 0)[1]}\n".encode())


if __name__ == "__main__":
    main()
