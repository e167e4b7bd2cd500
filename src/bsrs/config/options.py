"""How runs are carried out, apart from what they find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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

    @property
    def trackers(self) -> tuple[Literal["tensorboard", "wandb"], ...]:
        """All that are wanted."""
        return (*(("tensorboard",) if self.tensorboard else ()), *self.track)
