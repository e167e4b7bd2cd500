"""How runs are carried out, apart from what they find."""

import re
from dataclasses import dataclass
from typing import Literal

from bsrs.config.training import MOST_STEPS, check_finite, check_range
from bsrs.errors import BadInput

MOST_THREADS = 10_000


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is carried out. Nothing here changes what it finds, but for rounding."""

    resume: bool = False
    """Go on with the unfinished run in the folder."""
    device: str = "cpu"
    """Where the networks live: cpu, cuda, cuda:1, ..."""
    threads: int = 0
    """Threads of PyTorch; 0 leaves its own choice."""
    checkpoint_every: int = 50_000
    """Env steps between two checkpoints; 0 writes none."""
    tensorboard: bool = True
    """Write TensorBoard's event files too."""
    track: tuple[Literal["wandb"], ...] = ()
    """Report to Weights & Biases as well; with WANDB_MODE=offline nothing leaves this machine."""

    def __post_init__(self) -> None:
        check_finite(self)
        check_device(self.device)
        check_range(self, 0, "threads", high=MOST_THREADS)
        check_range(self, 0, "checkpoint_every", high=MOST_STEPS)

    @property
    def trackers(self) -> tuple[Literal["tensorboard", "wandb"], ...]:
        """All that are wanted."""
        return (*(("tensorboard",) if self.tensorboard else ()), *self.track)


def check_device(name: str) -> None:
    """BadInput unless it is the name of a device that can train; whether it is there shows when it is used."""
    if not re.fullmatch(r"(cpu|cuda|mps|xpu)(:\d{1,4})?", name):
        raise BadInput(f"device is {name[:40]!r}; expected cpu, cuda, cuda:1, mps or xpu")
