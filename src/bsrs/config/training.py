"""What every training run has in common, whatever the algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One run of one member: everything that its records depend on, and nothing else."""

    algorithm: ClassVar[str]

    env: str
    """The env's id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: float | str = 0.0
    """Shape-scale: a number, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA."""
    seed: int = 0
    """Every random draw of the run comes from named streams of this seed."""
    steps: int
    """Env steps in all."""
    n_envs: int = 1
    """Copies of the env that are stepped together."""
    log_every: int = 1_000
    """Env steps between two lines of training records."""
    eval_every: int = 10_000
    """Env steps between two evaluations; 0 evaluates at the end only."""
    eval_episodes: int = 10
    """Greedy episodes of one evaluation, raw scores."""

    def __post_init__(self) -> None:
        from bsrs.shaping import as_scale

        as_scale(self.eta)
        check_range(self, 1, "steps", "n_envs", "log_every", "eval_episodes")
        check_range(self, 0, "seed", "eval_every")


def check_range(config: Any, low: float, *names: str, high: float = float("inf")) -> None:
    """BadInput unless each named field lies in [low, high]."""
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            expected = f"at least {low:g}" if high == float("inf") else f"between {low:g} and {high:g}"
            raise BadInput(f"{name} is {value}; expected {expected}")
