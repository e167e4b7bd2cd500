"""A run's folder, written by the process that trains it."""

import dataclasses
import platform
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bsrs.agents.agent import State
from bsrs.config.base import to_dict
from bsrs.config.settings import RunSettings
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store import checkpoint
from bsrs.store.card import NAME, model_card
from bsrs.store.files import BEGINNING, Damaged, Lines, checksum, write_json
from bsrs.store.lock import Lock
from bsrs.store.read import FORMAT, SEALED, checkpoints, read_config, read_metrics, read_result
from bsrs.store.trackers import Tracker, TrackerName, numbers, open_trackers
from bsrs.train import Outcome
from bsrs.writing import Denied, explained, make_folder, write_whole

TRACEBACK = "traceback.txt"
"""Where a failed run keeps what Python said about it."""


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
        self.engine = ""
        """What computes the gradient steps: kernel or pytorch."""
        if folder.is_symlink():
            raise Denied(f"{folder} is a link; expected the folder itself")
        make_folder(folder)
        self._refuse_strangers()
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
        """Make the folder this run's, or check that it is."""
        config_file, ours = self.folder / "config.json", RunSettings.of(self.config)
        if not config_file.exists():
            self._refuse_strangers()
            content = {"format": FORMAT, "algorithm": ours.algorithm, "identity": ours.identity}
            write_json(config_file, {**content, "config": to_dict(self.config)})
            return
        theirs = read_config(self.folder)
        if theirs != ours:
            raise BadInput(f"{self.folder} holds another run ({_difference(theirs, ours)}); choose another folder")
        result = read_result(self.folder)
        if result is not None and result["outcome"] != "failed":
            checkpoint.remove(self.folder / "checkpoint")  # left by a kill just before its end
            how = f"{result['outcome']} at step {result['step']}"
            raise BadInput(f"the run {self.folder} has ended already: {how}; choose another folder to train it again")
        if not resume:
            raise BadInput(
                f"{self.folder} holds this run, unfinished; choose another folder, or let it resume (--resume)"
            )

    def _refuse_strangers(self) -> None:
        """Refuse a folder that holds something else."""
        with explained(self.folder):
            names = [path.name for path in self.folder.iterdir()]
        strangers = [name for name in names if name not in ("lock", "config.json.new")]
        if strangers and "config.json" not in names:
            raise BadInput(f"{self.folder} holds {strangers[0]} but no run; expected an empty or new folder")

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
        marks = {"metrics": self._metrics.mark(), "timing": self._timing.mark()}
        about = {**marks, "wall_time_s": self.wall_time(), "engine": self.engine}
        checkpoint.save(self._checkpoint, state, about, keep_last=self._members > 1)

    # ---- its beginning and its end

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def load(self, step: int | None = None) -> State | None:
        """Load the state at `step`, by default of the last checkpoint; None at the beginning. Drop newer records.

        A checkpoint that is `Damaged` is taken out of the way.
        """
        found = checkpoints(self.folder)
        path = found[max(found) if step is None else step].path if found and step in (None, *found) else None
        state: State | None = None
        about: dict[str, Any] = {"metrics": BEGINNING, "timing": BEGINNING, "wall_time_s": 0.0}
        try:
            if path is not None:
                state, about = checkpoint.load(path)
            self._metrics.cut(about["metrics"])
            self._timing.cut(about["timing"])
        except Damaged as error:
            self.set_aside(path, error)
            raise
        if path is not None:
            checkpoint.settle(self._checkpoint, path)
        self._earlier = about["wall_time_s"]
        with explained(self.folder):
            for name in ("result.json", TRACEBACK):  # of an attempt that failed
                (self.folder / name).unlink(missing_ok=True)
        if not self._trackers:
            self._trackers = open_trackers(
                self._track, self.folder, self.config, state.info["step"] + 1 if state else 0
            )
        return state

    def set_aside(self, path: Path | None, why: Damaged) -> None:
        """Set a damaged checkpoint aside: runs are repeatable, so what a disk did not keep is computed again."""
        warnings.warn(f"{why}: the run starts again", stacklevel=2)
        checkpoint.set_aside(path or self._checkpoint)

    def finish(self, outcome: Outcome, policy: State) -> None:
        """Write the trained model, its card and the result that seals the run, and remove the checkpoint."""
        write_whole(self.folder / "model.safetensors", checkpoint.model_bytes(policy))
        self._metrics.flush()
        self._timing.flush()
        seal = {name: checksum(self.folder / name) for name in SEALED}
        result = self._result(**dataclasses.asdict(outcome), seal=seal, engine=self.engine)
        card = model_card(self.folder, RunSettings.of(self.config), result, read_metrics(self.folder))
        write_whole(self.folder / NAME, card.encode())
        write_json(self.folder / "result.json", result, sealed=True)  # the last: now the run has ended
        checkpoint.remove(self._checkpoint)

    def fail(self, error: BaseException) -> None:
        """Record that the run broke down; it can be tried again from its checkpoint."""
        with suppress(OSError, BadInput):  # a full disk may be why, and must not hide it
            if not isinstance(error, BadInput) or error.__cause__ is not None:
                write_whole(
                    self.folder / TRACEBACK,
                    "".join(traceback.format_exception(error)).encode(errors="backslashreplace"),
                )
            reason = f"{type(error).__name__}: {error}"
            failed = self._result(outcome="failed", step=None, score=None, reason=reason)
            write_json(self.folder / "result.json", failed, sealed=True)

    def wall_time(self) -> float:
        """Return the seconds of training so far, over all processes: of a population's, the share of one member."""
        return self._earlier + (time.monotonic() - self._began) / self._members

    def _result(self, **content: Any) -> dict[str, Any]:
        about = {"wall_time_s": round(self.wall_time(), 3), "versions": _versions(), "host": platform.node()}
        return {**content, **about}

    def close(self) -> None:
        """Close the run's files and release the folder."""
        self._metrics.close()
        self._timing.close()
        for tracker in self._trackers:
            tracker.close()
        self._lock.release()


def _difference(theirs: RunSettings, ours: RunSettings) -> str:
    if theirs.algorithm != ours.algorithm:
        return f"of {theirs.algorithm}, not {ours.algorithm}"
    names = sorted(theirs.meaning.keys() | ours.meaning.keys())
    pairs = [(name, getattr(theirs, name, None), getattr(ours, name, None)) for name in names]
    return ", ".join(f"{name} {their!r}, not {our!r}" for name, their, our in pairs if their != our)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("bsrs", "torch", "numpy", "gymnasium", "ale-py"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
