"""Reading a run's folder, whoever wrote it and whether or not it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsrs.config.algorithms import config_type
from bsrs.config.base import from_dict, identity_of
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.store.files import read_json, read_lines

if TYPE_CHECKING:
    from bsrs.agents.agent import State

FORMAT = 1


def read_config(folder: Path) -> TrainingConfig:
    """The config of the run in `folder`, checked against the hash that was written with it."""
    path = folder / "config.json"
    if not path.exists():
        raise BadInput(f"{folder} holds no run: there is no config.json")
    content = read_json(path)
    if not isinstance(content.get("format"), int) or content["format"] > FORMAT:
        raise BadInput(f"{path} has format {content.get('format')!r}; this version of bsrs reads up to {FORMAT}")
    missing = [key for key in ("algorithm", "identity", "config") if key not in content]
    if missing:
        raise BadInput(f"{path} is damaged: {missing[0]} is missing")
    kind = config_type(content["algorithm"])
    # Of the data as written: an older version's config lacks the fields that have come since.
    if identity_of(kind, content["config"]) != content["identity"]:
        raise BadInput(f"{path} was changed after the run began: its identity is not {content['identity']} any more")
    return from_dict(kind, kind.upgraded(content["config"]), str(path))


def read_result(folder: Path) -> dict[str, Any] | None:
    """How the run ended, or None while it has not."""
    path = folder / "result.json"
    return read_json(path) if path.exists() else None


def checkpoint_step(folder: Path) -> int:
    """How far the run's checkpoint is; 0 without one, or where it cannot be read."""
    try:
        return int(read_json(folder / "checkpoint" / "state.json")["info"]["step"])
    except (OSError, BadInput, KeyError, TypeError, ValueError):
        return 0


def has_ended(folder: Path) -> bool:
    """Whether the run needs no more work. One that failed does."""
    result = read_result(folder)
    return result is not None and result.get("outcome") in ("finished", "diverged")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every whole record of the run so far."""
    path = folder / "metrics.jsonl"
    return read_lines(path) if path.exists() else []


def read_policy(folder: Path) -> State:
    """The trained model: of the end, or of the last checkpoint of a run that is not there yet."""
    import safetensors.torch  # torch only for those who want the model

    from bsrs.agents.agent import State
    from bsrs.store import checkpoint

    path = folder / "model.safetensors"
    if path.exists():
        try:
            return State(safetensors.torch.load(path.read_bytes()))
        except safetensors.SafetensorError as error:
            raise BadInput(f"{path} is damaged: {error}") from None
    loaded = checkpoint.load(folder / "checkpoint")
    if loaded is None:
        raise BadInput(f"the run {folder} has no model yet: it was stopped before its first checkpoint")
    return loaded[0].part("agent").part("policy")
