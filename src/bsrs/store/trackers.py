"""Other places where a run's records go, for those who watch them there. What counts is in the run's folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bsrs.config.base import identity, to_dict
from bsrs.config.training import TrainingConfig
from bsrs.errors import optional

TrackerName = Literal["tensorboard", "wandb"]


def numbers(line: dict[str, Any], kind: str) -> dict[str, float]:
    """The numbers of a record, by the names that trackers show."""
    return {f"{kind}/{name}": v for name, v in line.items() if isinstance(v, (int, float)) and name != "step"}


class TensorBoard:
    """Event files in the run's folder. Events of a former process that are newer than its checkpoint are dropped."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases under the same name; offline if WANDB_MODE says so, to be synchronised later."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        wandb = optional("wandb", "--track wandb", "wandb")
        self._run = wandb.init(
            project="bsrs",
            id=identity(config),
            name=folder.name,
            group=f"{config.algorithm} {config.env} eta {config.eta}",
            config={"algorithm": config.algorithm, **to_dict(config)},
            dir=str(folder),
            resume="allow",
            reinit="create_new",  # members of a population are runs of their own
            settings=wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
        )

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


Tracker = TensorBoard | WandB


def open_trackers(names: Sequence[TrackerName], folder: Path, config: TrainingConfig, first_step: int) -> list[Tracker]:
    """The trackers of a run that continues at `first_step`."""
    return [TensorBoard(folder, first_step) if name == "tensorboard" else WandB(folder, config) for name in names]
