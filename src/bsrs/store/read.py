"""The one reader of run folders, whoever wrote them and whether or not they have ended. A bad one is `Damaged`.

When a run ends, its result seals it: size and checksum of its other files, and of itself. Runs of older versions have
no seal and are read without; model and timing may be missing from any, for many do not keep them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bsrs.config.algorithms import find_algorithm
from bsrs.config.base import from_dict, identity, identity_of
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.files import Damaged, checksum, is_count, is_number, read_bytes, read_json, read_lines, walk

if TYPE_CHECKING:
    from bsrs.agents.agent import State


FORMAT = 1
ENDED = ("finished", "diverged")
SEALED = ("config.json", "metrics.jsonl", "timing.jsonl", "model.safetensors")
_NEEDED = ("config.json", "metrics.jsonl")
_OF_A_RUN = frozenset({"config.json", "metrics.jsonl", "result.json"})
_LARGEST_MODEL = 2**32


@dataclass(frozen=True)
class RunRecord:
    """One run as its folder tells it."""

    folder: Path
    config: TrainingConfig
    outcome: str
    """finished, diverged, failed, or unfinished while it has not ended."""
    reason: str
    seconds: float | None
    """Of training; of a population's, the share of one member."""
    metrics: tuple[dict[str, Any], ...]
    sealed: bool = False

    def trace(self, name: str, kind: str = "train") -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Steps and values of one recorded quantity; None in the records is not a number here."""
        lines = [line for line in self.metrics if line["kind"] == kind and is_number(line.get(name, ""))]
        steps = np.array([line["step"] for line in lines], dtype=np.int64)
        return steps, np.array([line[name] for line in lines], dtype=np.float64)

    @property
    def step(self) -> int:
        """How far it came."""
        return max((line["step"] for line in self.metrics), default=0)

    @property
    def score(self) -> float | None:
        """Of the last evaluation."""
        scores = self.trace("score", "eval")[1]
        return float(scores[-1]) if len(scores) else None


def read_run(folder: Path) -> RunRecord:
    """The run in `folder` with its records, ended or not."""
    config, result = read_config(folder), read_result(folder)
    metrics = tuple(read_metrics(folder))
    if result is None:
        return RunRecord(folder, config, "unfinished", "", None, metrics)
    outcome, step, score = (result[name] for name in ("outcome", "step", "score"))
    if outcome == "finished":  # it has every evaluation, and the last of them is its result: also without a seal
        evaluations = [(line["step"], line["score"]) for line in metrics if line["kind"] == "eval"]
        least = step // config.eval_every if config.eval_every else 1
        if len(evaluations) < least or evaluations[-1:] != [(step, score)]:
            raise Damaged(f"{folder / 'metrics.jsonl'} lacks evaluations of a run that finished at step {step}")
    sealed = "seal" in result
    return RunRecord(folder, config, outcome, result["reason"], result.get("wall_time_s"), metrics, sealed)


def read_runs(*roots: Path) -> tuple[list[RunRecord], dict[Path, str]]:
    """Every run in `roots` and below, and the folders of those that are damaged with the reason."""
    runs, damaged = [], {}
    for folder in itertools.chain.from_iterable(map(run_folders, roots)):
        try:
            runs.append(read_run(folder))
        except BadInput as error:
            damaged[folder] = str(error)
    return runs, damaged


def run_folders(root: Path) -> Iterator[Path]:
    """The folders of runs in `root` and below, in order; no link is followed, no run's own folders are searched."""
    if not root.is_dir():
        raise BadInput(f"{root} is not a folder; expected one that holds runs")
    for folder, names, folders in walk(root):
        if names is None or not _OF_A_RUN.isdisjoint(names):  # who reads an unreadable one as a run is told why
            folders.clear()
            yield folder


def read_config(folder: Path) -> TrainingConfig:
    """The config of the run in `folder`, checked against the hash that was written with it."""
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
    config_class = find_algorithm(content["algorithm"]).config_class
    # Of the data as written: an older version's config lacks the fields that have come since.
    if identity_of(config_class, content["config"]) != content["identity"]:
        raise Damaged(f"{path} was changed after the run began: its identity is not {content['identity']} any more")
    return from_dict(config_class, config_class.upgraded(content["config"]), str(path))


def read_result(folder: Path) -> dict[str, Any] | None:
    """How the run ended, or None while it has not; its seal is verified."""
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
        if name not in SEALED:
            raise Damaged(f"{path} is damaged: it seals {name[:40]!r}")
        try:
            if checksum(folder / name) != mark:
                raise Damaged(f"{folder / name} has changed since the run ended")
        except FileNotFoundError:
            if name in _NEEDED:
                raise Damaged(f"{folder / name} is missing") from None
    return result


def checkpoint_step(folder: Path) -> int:
    """How far the run's checkpoint is; 0 without one, or where it cannot be read."""
    try:
        step = read_json(folder / "checkpoint" / "state.json")["info"]["step"]
        return step if is_count(step) else 0
    except (OSError, BadInput, KeyError, TypeError):
        return 0


def has_ended(folder: Path) -> bool:
    """Whether the run needs no more work. One that failed does."""
    result = read_result(folder)
    return result is not None and result["outcome"] in ENDED


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every whole record of the run so far."""
    try:
        return read_lines(folder / "metrics.jsonl")
    except FileNotFoundError:
        return []


def read_model(folder: Path, *, trust: bool = False) -> tuple[TrainingConfig, State]:
    """The config and the trained model: of the end, or of the last checkpoint of a run that is not there yet.

    An env named MODULE:ID imports that module, which may be anybody's: refused unless `trust` says that it is known.
    """
    config = read_config(folder)
    if ":" in config.env and not trust:
        raise BadInput(
            f"the run {folder} has the env {config.env!r}, which imports code: say --trust (in Python trust=True)"
            " if you know where the folder comes from"
        )
    read_result(folder)
    return config, _read_policy(folder)


def _read_policy(folder: Path) -> State:
    import safetensors.torch  # torch only for those who want the model

    from bsrs.agents.agent import State
    from bsrs.store import checkpoint

    path = folder / "model.safetensors"
    try:
        return State(safetensors.torch.load(read_bytes(path, _LARGEST_MODEL)))
    except FileNotFoundError:
        loaded = checkpoint.load(folder / "checkpoint")
    except Exception as error:  # whatever reading bytes of unknown origin may raise
        raise Damaged(f"{path} is damaged: {error}") from None
    if loaded is None:
        raise BadInput(f"the run {folder} has no model: it was removed, or the run stopped before its first checkpoint")
    try:
        networks = loaded[0].part("agent").tensors
    except (KeyError, TypeError) as error:
        raise Damaged(f"the checkpoint of {folder} is damaged: {error}") from None
    return State({name.removeprefix("policy/"): tensor for name, tensor in networks.items()})


@lru_cache(maxsize=100_000)  # a sweep asks again and again
def folder_name(config: TrainingConfig) -> str:
    """A readable name for the run's folder that no other config shares."""
    env = config.env.replace("/", "-").replace(":", "-")
    eta = f"{config.eta:g}" if isinstance(config.eta, float) else config.eta.replace(":", "-")
    return f"{config.algorithm}-{env}-eta{eta}-seed{config.seed}-{identity(config)}"
