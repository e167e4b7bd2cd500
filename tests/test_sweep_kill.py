"""A sweep that is killed again and again ends as if it had never been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bsrs.rng import stream
from bsrs.sweep.plan import expand
from sweep_zygote import SWEEP


class Zygote:
    """The helper process, from the outside."""

    def __init__(self) -> None:
        here = Path(__file__).parent
        self._process = subprocess.Popen(
            [sys.executable, str(here / "sweep_zygote.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, root: Path) -> int:
        """Start the sweep; its process group."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{root}\n")
        self._process.stdin.flush()
        return int(self._line())

    def ended(self) -> int:
        """Wait for its end; the wait status."""
        return int(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    helper = Zygote()
    yield helper
    helper.close()


def files(root: Path, name: str) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in root.glob(f"*/{name}")}


def test_killed_twenty_times_at_random_moments(zygote: Zygote, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    began = time.monotonic()
    zygote.start(undisturbed)
    assert zygote.ended() == 0
    moments = iter(stream(0, "kills").uniform(0.0, (time.monotonic() - began) / 8, size=20).tolist())
    attempt = 0
    while (moment := next(moments, None)) is not None:  # a second sweep, should the first end before all the kills
        attempt += 1
        disturbed = tmp_path / f"disturbed-{attempt}"
        results: dict[str, bytes] = {}
        while moment is not None:
            group = zygote.start(disturbed)
            time.sleep(moment)
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(group, signal.SIGKILL)
            ended = zygote.ended()
            assert results.items() <= files(disturbed, "result.json").items()  # what has ended stays as it was
            results = files(disturbed, "result.json")
            if ended == 0:
                break
            assert ended == signal.SIGKILL
            moment = next(moments, None)
        else:
            zygote.start(disturbed)
            assert zygote.ended() == 0
        assert results.items() <= files(disturbed, "result.json").items()
        assert len(files(disturbed, "result.json")) == len(expand(SWEEP)) == 6
        assert files(disturbed, "metrics.jsonl") == files(undisturbed, "metrics.jsonl")
        assert files(disturbed, "model.safetensors") == files(undisturbed, "model.safetensors")
