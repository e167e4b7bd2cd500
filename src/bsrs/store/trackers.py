"""Other places where a run's records go, for those who watch them there. What counts is in the run's folder."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bsrs.config.base import to_dict
from bsrs.config.settings import RunSettings
from bsrs.config.training import TrainingConfig
from bsrs.errors import optional
from bsrs.writing import own_file, own_folder

TrackerName = Literal["tensorboard", "csv", "wandb"]


def numbers(line: dict[str, Any], kind: str) -> dict[str, float]:
    """Select the numbers of a record, by the names that trackers show."""
    return {f"{kind}/{name}": v for name, v in line.items() if isinstance(v, (int, float)) and name != "step"}


class TensorBoard:
    """Event files in the run's folder. Events of a former process that are newer than its checkpoint are dropped."""

    def __init__(self, folder: Path, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(own_folder(folder / "tensorboard")), purge_step=first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class CSV:
    """A table in the run's folder, with a row for each number: step, name, value."""

    def __init__(self, folder: Path, first_step: int) -> None:
        self._file = os.fdopen(own_file(folder / "metrics.csv", os.O_RDWR), "r+", newline="", errors="replace")
        rows = list(csv.reader(self._file))
        self._file.seek(0)
        self._file.truncate()
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(("step", "name", "value"))
        # Those of a former process that are newer than its checkpoint come again.
        self._writer.writerows(row for row in rows[1:] if len(row) == 3 and _step(row[0]) < first_step)

    def log(self, values: dict[str, float], step: int) -> None:
        self._writer.writerows((step, name, value) for name, value in values.items())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _step(text: str) -> float:
    """Read the step of a row; infinite if it is no step of ours."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else math.inf


class WandB:
    """A run of Weights & Biases under the same name; offline with WANDB_MODE=offline, to be synchronised later."""

    def __init__(self, folder: Path, config: TrainingConfig) -> None:
        wandb = optional("wandb", "--track wandb", "wandb")
        self._run = wandb.init(
            project="bsrs",
            id=RunSettings.of(config).identity,
            name=folder.name,
            group=f"{config.algorithm} {config.env} eta {config.eta}",
            config={"algorithm": config.algorithm, **to_dict(config)},
            dir=str(own_folder(folder / "wandb").parent),
            resume="allow",
            reinit="create_new",  # members of a population are runs of their own
            settings=wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
        )

    def log(self, values: dict[str, float], step: int) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()


Tracker = TensorBoard | CSV | WandB


def open_trackers(names: Sequence[TrackerName], folder: Path, config: TrainingConfig, first_step: int) -> list[Tracker]:
    """Open the trackers of a run that continues at `first_step`."""
    opened: list[Tracker] = []
    for name in names:
        if name == "wandb":
            opened.append(WandB(folder, config))
        else:
            opened.append((TensorBoard if name == "tensorboard" else CSV)(folder, first_step))
    return opened
