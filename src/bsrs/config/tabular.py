"""Commands on tables, and exact solutions as runs of a sweep. The defaults are those of the paper's tabular figure."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import TrainingConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is solved, apart from the table itself."""

    gamma: float = 0.8
    """Discount factor, in [0, 1)."""
    slip: float = 0.0
    """Probability that a move goes to one of its two sides instead (maps only)."""
    goal: Literal["loop", "terminate", "reset"] = "loop"
    """What an action in the goal does after its reward of 1 (maps only)."""
    tol: float = 1e-6
    """Converged when two iterates differ by less than this in the sup-norm."""


@dataclass(frozen=True, kw_only=True)
class TableProblem(Problem):
    """What every command on tables needs."""

    map: str = "paper"
    """A named map (paper, corridor, two-rooms, four-rooms, cliff), a size such as 20x20, rows of letters ("SFF FWG") or
    a text file of them, a toy-text env such as FrozenLake-v1, or garnet:STATES:ACTIONS:BRANCHING:SEED."""
    mdp: str = ""
    """A table of your own instead of a map: a .npz or .json file with transitions and rewards, or MODULE:FUNCTION."""
    json: bool = False
    """Print one JSON document instead of a table."""

    @property
    def table(self) -> str:
        """The name of the table."""
        if self.mdp and self.map != TableProblem.map:
            raise BadInput(f"--map {self.map} and --mdp {self.mdp} are both given; expected one of them")
        return self.mdp or self.map


@dataclass(frozen=True, kw_only=True)
class SolveTable(TableProblem):
    """Solve one table exactly."""

    eta: tuple[float | str, ...] = ()
    """Shape-scales, one solution for each: numbers, or rules that choose it in every step: auto (which is anderson),
    aitken, aitken-states, anderson, spectral."""
    method: Literal["iterate", "midrange", "mpi", "auto"] | None = None
    """The paper's iteration (taken if etas are given), or the solver that never needs much more than plain value
    iteration and mostly far less (auto, taken if none is given)."""
    max_steps: int = 1_000_000
    """Give up after so many applications of the operator."""
    threads: int = 0
    """Threads on large tables; 0 takes all cores."""
    plot: str = ""
    """Draw values and policy early on and at the end (of the last eta) into this file: .png, .pdf or .svg; for maps,
    FrozenLake, CliffWalking and Taxi."""


@dataclass(frozen=True, kw_only=True)
class SweepTable(TableProblem):
    """Applications of the self-shaped operator to convergence, over shape-scales and random initialisations."""

    eta: tuple[float, ...] = (0.0, 0.05, 0.11, 0.2, 0.23, 0.33)
    """Shape-scales."""
    seeds: int = 20
    """How many random initialisations of Q, uniform in [0, 1)."""
    max_steps: int = 100_000
    """Give up after so many applications of the operator."""


@dataclass(frozen=True, kw_only=True)
class TableTheory(TableProblem):
    """What can be said about eta beforehand."""

    eta: tuple[float, ...] = ()
    """Shape-scales to judge: contraction factor and stability."""
    seeds: int = 20
    """Random initialisations for the empirical limit."""
    plot: str = ""
    """Draw the eigenvalues in the region where each eta is stable into this file: .png, .pdf or .svg."""


@dataclass(frozen=True, kw_only=True)
class TableRunConfig(Problem, TrainingConfig):
    """The self-shaped Bellman operator, applied from a random Q table until nothing moves.

    `env` is a map or another table by name, `seed` draws the first table, and a step is one application.
    """

    algorithm: ClassVar[str] = "tabular"

    steps: int = 10_000
    """Give up after so many applications."""
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
