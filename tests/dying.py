"""`python tests/dying.py LINES train ...`: the bsrs command in a process that kills itself.

It dies once it has written LINES lines of records (metrics.jsonl and timing.jsonl) and a checkpoint: in mid-run,
however busy the machine is. A test that watches the folder from outside may look too late.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def train_and_die(words: Sequence[str], lines: int) -> None:
    """`bsrs WORDS` in a process of its own, up to its death."""
    command = [sys.executable, __file__, str(lines), *words]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def _main() -> None:
    from bsrs.cli import main
    from bsrs.store import checkpoint
    from bsrs.store.run import Lines

    sys.path.insert(0, "")  # as `python -m bsrs` has it: modules of the folder it is started in
    left = int(sys.argv[1])
    saved = False
    save, append = checkpoint.save, Lines.append

    def save_and_note(*words: Any, **named: Any) -> None:
        nonlocal saved
        save(*words, **named)
        saved = True

    def append_and_die(self: Lines, *words: Any, **named: Any) -> None:
        nonlocal left
        append(self, *words, **named)
        left -= 1
        if left <= 0 and saved:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.save = save_and_note
    Lines.append = append_and_die  # type: ignore[method-assign]
    main(sys.argv[2:])


if __name__ == "__main__":
    _main()
