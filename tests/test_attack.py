"""The short form of `make attack`: kills, damaged files and hostile inputs, in a process that may be forked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parent / "attack" / "run.py"


def test_the_short_attack_finds_nothing() -> None:
    ended = subprocess.run([sys.executable, str(RUN), "--short"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = {
        what: int(times.replace(",", "")) for what, times in re.findall(r"\| ([^|*]+) \| ([\d,]+) \|", ended.stdout)
    }
    assert counts["kills in all"] >= 20
    assert sum(times for what, times in counts.items() if ", exit code" in what) == 60
    assert counts["damage of finished runs, told by report"] >= 2
    assert counts["damage of unfinished runs, healed"] >= 5
