"""One run's folder, written by the process that trains it."""

import platform
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bsrs.agents.agent import State
from bsrs.config.base import identity, to_dict
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store import checkpoint
from bsrs.store.files import (
    BEGINNING,
    Damaged,
    Lines,
    checksum,
    clear_words_when_full,
    make_folder,
    write_json,
    write_whole,
)
from bsrs.store.lock import Lock
from bsrs.store.read import FORMAT, SEALED, read_config, read_result
from bsrs.store.trackers import Tracker, TrackerName, numbers, open_trackers
from bsrs.train import Outcome


class Run:
    """The folder of a run that this process holds. A `Recorder` for the training loop."""

    def __init__(
        self,
        folder: Path,
        config: TrainingConfig,
        *,
        resume: bool = False,
        track: Sequence[TrackerName] = (),
        members: int = 1,
    ) -> None:
        self.folder, self.config, self._members = folder, config, members
        with clear_words_when_full(folder):
            make_folder(folder)
            self._lock = Lock(folder / "lock", f"the run {folder}")
        with ExitStack() as opened:
            opened.callback(self._lock.release)
            self._take(resume)
            self._metrics = Lines(folder / "metrics.jsonl")
            opened.callback(self._metrics.close)
            self._timing = Lines(folder / "timing.jsonl")
            opened.pop_all()
        self._began, self._earlier = time.monotonic(), 0.0
        self._track = track
        self._trackers: list[Tracker] = []

    def _take(self, resume: bool) -> None:
        """Make the folder this run's, or find that it is."""
        config_file = self.folder / "config.json"
        if not config_file.exists():
            strangers = [path.name for path in self.folder.iterdir() if path.name not in ("lock", "config.json.new")]
            if strangers:
                raise BadInput(f"{self.folder} holds {strangers[0]} but no run; expected an empty or new folder")
            content = {"format": FORMAT, "algorithm": self.config.algorithm, "identity": identity(self.config)}
            write_json(config_file, {**content, "config": to_dict(self.config)})
            return
        theirs = read_config(self.folder)
        if theirs != self.config:
            raise BadInput(
                f"{self.folder} holds another run ({_difference(theirs, self.config)}); choose another folder"
            )
        result = read_result(self.folder)
        if result is not None and result["outcome"] != "failed":
            raise BadInput(f"the run {self.folder} has ended already: {result['outcome']} at step {result['step']}")
        if not resume:
            raise BadInput(f"{self.folder} holds this run, unfinished: continue it with --resume")

    # ---- what the training loop calls

    def append(self, line: dict[str, Any]) -> None:
        self._metrics.append(line)
        self._tell(line, line["kind"])

    def timing(self, line: dict[str, Any]) -> None:
        self._timing.append(line)
        self._tell(line, "timing")

    def _tell(self, line: dict[str, Any], kind: str) -> None:
        for tracker in self._trackers:
            tracker.log(numbers(line, kind), line["step"])

    def save(self, state: State) -> None:
        self._metrics.flush()
        self._timing.flush()
        about = {"metrics": self._metrics.mark(), "timing": self._timing.mark(), "wall_time_s": self.wall_time()}
        checkpoint.save(self.folder / "checkpoint", state, about)

    # ---- its beginning and its end

    def load(self) -> State | None:
        """The state to go on from, None at the beginning; records that are newer than it are dropped."""
        loaded = checkpoint.load(self.folder / "checkpoint")
        state, about = loaded or (None, {"metrics": BEGINNING, "timing": BEGINNING, "wall_time_s": 0.0})
        self._metrics.cut(about["metrics"])
        self._timing.cut(about["timing"])
        self._earlier = about["wall_time_s"]
        (self.folder / "result.json").unlink(missing_ok=True)  # of an attempt that failed
        first_step = state.info["step"] + 1 if state else 0
        self._trackers = open_trackers(self._track, self.folder, self.config, first_step)
        return state

    def start_again(self, why: Damaged) -> None:
        """Runs are repeatable: what a disk did not keep is made again, from the beginning."""
        warnings.warn(f"{why}: the run starts again", stacklevel=2)
        checkpoint.set_aside(self.folder)

    def finish(self, outcome: Outcome, policy: State) -> None:
        """The last word: the trained model, and the result that seals it all. The checkpoint has done its duty."""
        write_whole(self.folder / "model.safetensors", checkpoint.tensor_bytes(policy))
        self._metrics.flush()
        self._timing.flush()
        seal = {name: checksum(self.folder / name) for name in SEALED}
        self._result(outcome=outcome.outcome, step=outcome.step, score=outcome.score, reason=outcome.reason, seal=seal)
        checkpoint.remove(self.folder / "checkpoint")

    def fail(self, error: BaseException) -> None:
        """The run broke down; it can be tried again from its checkpoint."""
        with suppress(OSError, BadInput):  # a full disk may be why, and must not hide it
            self._result(outcome="failed", step=None, score=None, reason=f"{type(error).__name__}: {error}")

    def wall_time(self) -> float:
        """Seconds of training so far, over all processes that took part: of a population's, the share of one member."""
        return self._earlier + (time.monotonic() - self._began) / self._members

    def _result(self, **content: Any) -> None:
        about = {"wall_time_s": round(self.wall_time(), 3), "versions": _versions(), "host": platform.node()}
        write_json(self.folder / "result.json", {**content, **about}, sealed=True)

    def close(self) -> None:
        """Let go of the folder."""
        self._metrics.close()
        self._timing.close()
        for tracker in self._trackers:
            tracker.close()
        self._lock.release()


def _difference(theirs: TrainingConfig, ours: TrainingConfig) -> str:
    if theirs.algorithm != ours.algorithm:
        return f"of {theirs.algorithm}, not {ours.algorithm}"
    mine = to_dict(ours)
    different = [
        f"{name} {value!r}, not {mine[name]!r}" for name, value in to_dict(theirs).items() if value != mine[name]
    ]
    return ", ".join(different)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("bsrs", "torch", "numpy", "gymnasium", "ale-py"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
