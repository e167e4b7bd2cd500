"""Commands on tables, and exact solutions as runs of a sweep. The defaults are those of the paper's tabular figure."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import TrainingConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is solved, apart from the table itself."""

    gamma: float = 0.8
    """Set the discount factor, in [0, 1)."""
    slip: float = 0.0
    """Let a move slip to one of its two sides with this probability (maps only)."""
    goal: Literal["loop", "terminate", "reset"] = "loop"
    """Choose what happens after the reward of 1 in the goal (maps only)."""
    tol: float = 1e-6
    """Stop when two iterates differ by less than this in the sup-norm."""


@dataclass(frozen=True, kw_only=True)
class TableProblem(Problem):
    """What every command on tables needs."""

    map: str = "paper"
    """Use this map: paper, corridor, two-rooms, four-rooms, cliff, a size such as 20x20, rows of letters ("SFF FWG"), a
    text file of them, a toy-text env such as FrozenLake-v1, or garnet:STATES:ACTIONS:BRANCHING:SEED."""
    mdp: str = ""
    """Use your own MDP instead: a .npz or .json file with transitions and rewards, or MODULE:FUNCTION."""
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
    """Solve once for each of these: a number, or a rule that chooses eta in every step (auto, which is anderson;
    aitken, aitken-states, spectral)."""
    method: Literal["iterate", "midrange", "mpi", "auto"] | None = None
    """Choose the solver. By default it is iterate, the paper's iteration, if eta is given, and otherwise auto, which
    is rarely slower than value iteration and usually far faster."""
    max_steps: int = 1_000_000
    """Give up after this many iterations."""
    threads: int = 0
    """Use this many threads on large tables; 0 uses all cores."""
    plot: str = ""
    """Draw values and policy early on and at the end (for the last eta) to this .png, .pdf or .svg file. Works for
    maps, FrozenLake, CliffWalking and Taxi."""


@dataclass(frozen=True, kw_only=True)
class SweepTable(TableProblem):
    """Count iterations to convergence, over etas and random initialisations."""

    eta: tuple[float, ...] = (0.0, 0.05, 0.11, 0.2, 0.23, 0.33)
    """Compare these etas."""
    seeds: int = 20
    """Start from this many random Q tables, uniform in [0, 1)."""
    max_steps: int = 100_000
    """Give up after this many iterations."""


@dataclass(frozen=True, kw_only=True)
class TableTheory(TableProblem):
    """Limits of eta that are known before learning."""

    eta: tuple[float, ...] = ()
    """Print the contraction factor and stability of these etas."""
    seeds: int = 20
    """Use this many random initialisations for the empirical limit."""
    plot: str = ""
    """Draw the eigenvalues and the region where each eta is stable to this .png, .pdf or .svg file."""


@dataclass(frozen=True, kw_only=True)
class TableRunConfig(Problem, TrainingConfig):
    """The self-shaped Bellman operator, applied from a random Q table until nothing moves.

    `env` is a map or another table by name, `seed` draws the first table, and a step is one application.
    """

    algorithm: ClassVar[str] = "tabular"

    steps: int = 10_000
    """Give up after this many iterations."""
    log_every: int = 1
    """Iterations between two records."""
    eval_every: int = 0
    """The greedy policy is evaluated at the end only."""
    eval_episodes: int = 1
    """The evaluation is exact: there is one score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", "slip", high=1.0)
        check_range(self, 0.0, "tol")
        if not isinstance(self.eta, float):
            raise BadInput(f"eta is {self.eta!r}; expected a number, for tables have no schedule")
        if (self.n_envs, self.eval_every, self.eval_episodes) != (1, 0, 1):
            raise BadInput("n_envs, eval_every and eval_episodes have no meaning for tables")
