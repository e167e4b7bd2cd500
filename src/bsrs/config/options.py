"""How runs are carried out, apart from what they find."""

from __future__ import annotations

from dataclasses import dataclass


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
