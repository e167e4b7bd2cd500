"""The one reader of run folders, whoever wrote them and whether or not they have ended. A bad one is `Damaged`.

When a run ends, its result seals it: size and checksum of its other files, and of itself. Runs of older versions have
no seal and are read without; model and timing may be missing from any, for many do not keep them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bsrs.config.settings import RunSettings, identity_in_format_1
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, listed
from bsrs.scales import is_own_scale
from bsrs.shaping import BOOTSTRAPPED
from bsrs.store.files import Damaged, is_count, is_number, matches, parse_json, read_bytes, read_json, walk
from bsrs.writing import Denied, Exhausted

if TYPE_CHECKING:
    from bsrs.agents.agent import State


FORMAT = 2
"""1: version 0.1, whose identities depend on its config classes."""
ENDED = ("finished", "diverged")
SEALED = ("config.json", "metrics.jsonl", "timing.jsonl", "model.safetensors")
_NEEDED = ("config.json", "metrics.jsonl")
_OF_A_RUN = frozenset({"config.json", "metrics.jsonl", "result.json"})
_LARGEST_MODEL = 2**32
_LARGEST_METRICS = 2**30


@dataclass(frozen=True)
class RunRecord:
    """One run, as read from its folder."""

    folder: Path
    config: RunSettings
    outcome: str
    """finished, diverged, failed, or interrupted."""
    reason: str
    seconds: float | None
    """Training time; for a member of a population, its share."""
    metrics: tuple[dict[str, Any], ...]
    sealed: bool = False

    def trace(self, name: str, kind: str = "train") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return steps and values of one recorded quantity; None in the records is no number here."""
        lines = [line for line in self.metrics if line["kind"] == kind and is_number(line.get(name, ""))]
        steps = np.array([line["step"] for line in lines], dtype=np.int64)
        return steps, np.array([line[name] for line in lines], dtype=np.float64)

    @property
    def step(self) -> int:
        """Last recorded step."""
        return max((line["step"] for line in self.metrics), default=0)

    @property
    def score(self) -> float | None:
        """Score of the last evaluation, or None."""
        return next((line["score"] for line in reversed(self.metrics) if line["kind"] == "eval"), None)


def read_run(folder: Path) -> RunRecord:
    """Read the run in `folder` with its records, ended or not."""
    config, result = read_config(folder), read_result(folder)
    metrics = tuple(read_metrics(folder))
    if result is None:
        return RunRecord(folder, config, "interrupted", "", None, metrics)
    outcome, step, score = (result[name] for name in ("outcome", "step", "score"))
    if outcome == "finished":  # it has every evaluation, and the last of them is its result: also without a seal
        evaluations = [(line["step"], line["score"]) for line in metrics if line["kind"] == "eval"]
        least = step // config.eval_every if config.eval_every else 1
        if len(evaluations) < least or evaluations[-1:] != [(step, score)]:
            raise Damaged(f"{folder / 'metrics.jsonl'} lacks evaluations of a run that finished at step {step}")
    sealed = "seal" in result
    return RunRecord(folder, config, outcome, result["reason"], result.get("wall_time_s"), metrics, sealed)


def read_runs(*roots: Path) -> tuple[list[RunRecord], dict[Path, str]]:
    """Read every run in `roots` and below; for damaged ones, return the folder and the reason."""
    runs, damaged = [], {}
    for folder in itertools.chain.from_iterable(map(run_folders, roots)):
        try:
            runs.append(read_run(folder))
        except Exhausted:
            raise
        except BadInput as error:
            damaged[folder] = str(error)
    return runs, damaged


def run_folders(root: Path) -> Iterator[Path]:
    """Find the folders of runs in `root` and below, in order, without following links or searching inside runs."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder; expected one that holds runs")
    for folder, names, folders in walk(root):
        if names is None or not _OF_A_RUN.isdisjoint(names):  # reading an unreadable folder as a run says why
            folders.clear()
            yield folder


def pick_run(root: Path, eta: float | str | None = None, seed: int | None = None) -> Path:
    """Find the one run below `root` with this eta and seed; several or none raise BadInput with a list."""
    if (root / "config.json").exists():
        return root
    found = {}
    for folder in run_folders(root):
        with suppress(BadInput):  # damaged ones are no choice
            found[folder] = read_config(folder)
    fits = [f for f, c in found.items() if eta in (None, c.eta) and seed in (None, c.seed)]
    if len(fits) == 1:
        return fits[0]
    if not found:
        raise BadInput(f"{root} holds no run: there is no config.json, and no folder with one")
    several = [found[folder] for folder in fits] or list(found.values())
    etas, seeds = listed(sorted({str(c.eta) for c in several})), listed(map(str, sorted({c.seed for c in several})))
    envs = listed(sorted({c.env for c in several}))
    which = f"{len(fits)} runs" if fits else "no run with that eta and seed; it has"
    choice = f"choose one by its folder, or by eta ({etas}) and seed ({seeds}); envs: {envs}"
    raise BadInput(f"{root} holds {which}: {choice}" if fits else f"{root} holds {which} eta {etas}, seed {seeds}")


def read_config(folder: Path) -> RunSettings:
    """Read the settings of the run in `folder`, and check them against the hash that was written with them."""
    path = folder / "config.json"
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise Damaged(f"{folder} holds no run: there is no config.json") from None
    if not is_count(content.get("format")) or content["format"] > FORMAT:
        raise BadInput(f"{path} has format {content.get('format')!r}; this version of bsrs reads up to {FORMAT}")
    for name, kind in (("algorithm", str), ("identity", str), ("config", dict)):
        if not isinstance(content.get(name), kind):
            raise Damaged(f"{path} is damaged: {name} is missing")
    settings = RunSettings.read(content["algorithm"], content["config"], str(path))
    identity = settings.identity
    if content["format"] == 1:
        identity = identity_in_format_1(content["algorithm"], content["config"])
    if identity != content["identity"]:
        raise Damaged(f"{path} was changed after the run began: its identity is not {content['identity']} any more")
    return settings


def read_result(folder: Path) -> dict[str, Any] | None:
    """Read how the run ended, or None while it has not, and verify its seal."""
    path = folder / "result.json"
    try:
        result = read_json(path)
    except FileNotFoundError:
        return None
    sound = (
        result.get("outcome") in (*ENDED, "failed")
        and (is_count(result.get("step")) or (result.get("step") is None and result["outcome"] == "failed"))
        and is_number(result.get("score"))
        and isinstance(result.get("reason"), str)
        and is_number(result.get("wall_time_s"))
        and isinstance(result.get("seal", {}), dict)
        and ("checksum" in result or "seal" not in result)
    )
    if not sound:
        raise Damaged(f"{path} is damaged: expected an outcome, a step and a score")
    for name, mark in result.get("seal", {}).items():
        if name not in SEALED or not isinstance(mark, dict):
            raise Damaged(f"{path} is damaged: it seals {name[:40]!r}")
        try:
            if not matches(folder / name, mark):
                raise Damaged(f"{folder / name} has changed since the run ended")
        except FileNotFoundError:
            if name in _NEEDED:
                raise Damaged(f"{folder / name} is missing") from None
    return result


class Checkpoint(NamedTuple):
    """A checkpoint on the disk, and the engine that computed it."""

    path: Path
    engine: str


def checkpoints(folder: Path) -> dict[int, Checkpoint]:
    """Find the run's checkpoints by their step: the last one, and the one before it if that is still there."""
    found = {}
    for path in (folder / "checkpoint.old", folder / "checkpoint"):
        if os.path.lexists(path):
            step, engine = _label(path)
            found[step] = Checkpoint(path, engine)
    return found


def _label(path: Path) -> tuple[int, str]:
    """Read step and engine of a checkpoint; 0 for one that will be found damaged when it is loaded."""
    try:
        content = read_json(path / "state.json")
        step, engine = content["info"]["step"], content["about"].get("engine", "")
    except (Damaged, FileNotFoundError, KeyError, TypeError, AttributeError):
        return 0, ""
    return (step, str(engine)) if is_count(step) else (0, "")


def checkpoint_step(folder: Path) -> int:
    """Read how far the run's last checkpoint is; 0 without one, or where it cannot be read."""
    try:
        return max(checkpoints(folder), default=0)
    except BadInput:
        return 0


def has_ended(folder: Path) -> bool:
    """Return whether the run needs no more work. One that failed does."""
    result = read_result(folder)
    return result is not None and result["outcome"] in ENDED


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read every whole record of the run so far, without one that a killed process left half-written at the end.

    A record has a kind and a step; everything else in it is a number, a word, nothing, or a list of these.
    """
    path = folder / "metrics.jsonl"
    try:
        pieces = read_bytes(path, _LARGEST_METRICS).split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    records = []
    for number, piece in enumerate(pieces, start=1):
        where = f"{path}, line {number}"
        record = parse_json(piece, where)
        if not (isinstance(record, dict) and isinstance(record.get("kind"), str) and is_count(record.get("step"))):
            raise Damaged(f"{where} is damaged: expected an object with a kind and a step")
        for name, value in record.items():
            for part in value if isinstance(value, list) else (value,):
                if not (is_number(part) or isinstance(part, (str, bool))):
                    raise Damaged(f"{where} is damaged: {name} is {str(value)[:40]}; expected numbers")
        if record["kind"] == "eval" and not is_number(record.get("score")):
            raise Damaged(f"{where} is damaged: expected an evaluation with a score")
        records.append(record)
    return records


_MAY_IMPORT = ("env", "network", "actor", "critic", "eta", "potential")
"""Settings that import code where they are MODULE:NAME."""


_UNSHAPED = {"eta": 0.0, "potential": BOOTSTRAPPED}


def _imports(name: str, value: str) -> bool:
    """Return whether the setting names code. A schedule of eta has colons, too."""
    return is_own_scale(value) if name == "eta" else ":" in value


def read_model(
    folder: Path, *, trust: bool = False, replace: Mapping[str, Any] | None = None, policy_only: bool = False
) -> tuple[TrainingConfig, State]:
    """Read the config and the trained model: of the end, or of the last checkpoint of an unfinished run.

    `replace` has settings in place of the run's; with `policy_only` what shaped the training is left out. A run that
    names code as MODULE:NAME is refused unless `trust` says that the user knows where it comes from.
    """
    settings = read_config(folder)
    given = dict(replace or {})
    if policy_only:
        given |= {name: _UNSHAPED[name] for name in settings.fields.keys() & _UNSHAPED.keys()}
    for name in _MAY_IMPORT:
        value = str(settings.fields.get(name, ""))
        if name not in given and _imports(name, value) and not value.startswith("python/") and not trust:
            raise BadInput(
                f"the run {folder} has the {name} {value!r}, which imports code: say --trust (in Python trust=True)"
                f" if you know where the folder comes from, or pass {name}=... yourself"
            )
    read_result(folder)
    model = _read_policy(folder)
    if given.get("eta", settings.eta) != settings.eta:
        model.info.pop("shaping", None)  # what another scale remembers
    return settings.as_config(**given), model


def _read_policy(folder: Path) -> State:
    from bsrs.agents.agent import State  # torch only for those who want the model
    from bsrs.store import checkpoint

    path = folder / "model.safetensors"
    try:
        return checkpoint.read_model_bytes(read_bytes(path, _LARGEST_MODEL))
    except FileNotFoundError:
        saved = checkpoints(folder)
    except (Denied, Exhausted, MemoryError):
        raise
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise Damaged(f"{path} is damaged: {error}") from None
    if not saved:
        raise BadInput(f"the run {folder} has no model: it was removed, or the run stopped before its first checkpoint")
    try:
        agent = checkpoint.load(saved[max(saved)].path)[0].part("agent")
        shaping = agent.info["shaping"]
    except (KeyError, TypeError) as error:
        raise Damaged(f"the checkpoint of {folder} is damaged: {error}") from None
    tensors = {name.removeprefix("policy/"): tensor for name, tensor in agent.tensors.items()}
    return State(tensors, info={"shaping": shaping})
