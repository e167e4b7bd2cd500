"""The settings of an exact solution as a run of a sweep. The defaults are those of the paper's tabular figure."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import TrainingConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class TableRunConfig(TrainingConfig):
    """The self-shaped Bellman operator, applied from a random Q table until nothing moves.

    `env` is a map or another table by name, `seed` draws the first table, and a step is one application.
    """

    algorithm: ClassVar[str] = "tabular"

    steps: int = 10_000
    """Give up after so many applications."""
    gamma: float = 0.8
    """Discount factor."""
    slip: float = 0.0
    """Probability that a move goes to one of its two sides instead (maps only)."""
    goal: Literal["loop", "terminate", "reset"] = "loop"
    """What an action in the goal does after its reward of 1 (maps only)."""
    tol: float = 1e-6
    """Converged when two iterates differ by less than this in the sup-norm."""
    log_every: int = 1
    """Applications between two records."""
    eval_every: int = 0
    """The greedy policy is judged at the end only."""
    eval_episodes: int = 1
    """And exactly: there is one score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", "slip", high=1.0)
        check_range(self, 0.0, "tol")
        if not isinstance(self.eta, float):
            raise BadInput(f"eta is {self.eta!r}; expected a number, for tables have no schedule")
        if (self.n_envs, self.eval_every, self.eval_episodes) != (1, 0, 1):
            raise BadInput("n_envs, eval_every and eval_episodes have no meaning for tables")
