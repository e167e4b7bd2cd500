"""Configs of the commands on tables."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Table:
    """What every command on tables needs."""

    map: str = "paper"
    """A named map (paper, corridor, two-rooms, four-rooms, cliff), a size such as 20x20, rows of letters ("SFF FWG") or
    a text file of them, a toy-text env such as FrozenLake-v1, or garnet:STATES:ACTIONS:BRANCHING:SEED."""
    gamma: float = 0.8
    """Discount factor, in [0, 1)."""
    slip: float = 0.0
    """Probability that a move goes to one of its two sides instead (maps only)."""
    goal: Literal["loop", "terminate", "reset"] = "loop"
    """What an action in the goal does after its reward of 1 (maps only)."""
    tol: float = 1e-6
    """Converged when two iterates differ by less than this in the sup-norm."""
    json: bool = False
    """Print one JSON document instead of a table."""


@dataclass(frozen=True)
class SolveTable(Table):
    """Solve one table exactly."""

    eta: tuple[str, ...] = ()
    """Shape-scales, one solution for each: numbers, or aitken, anderson, spectral (they choose themselves)."""
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


@dataclass(frozen=True)
class SweepTable(Table):
    """Applications of the self-shaped operator to convergence, over shape-scales and random initialisations."""

    eta: tuple[float, ...] = (0.0, 0.05, 0.11, 0.2, 0.23, 0.33)
    """Shape-scales."""
    seeds: int = 20
    """How many random initialisations of Q, uniform in [0, 1)."""
    max_steps: int = 100_000
    """Give up after so many applications of the operator."""


@dataclass(frozen=True)
class TableTheory(Table):
    """What can be said about eta beforehand."""

    eta: tuple[float, ...] = ()
    """Shape-scales to judge: contraction factor and stability."""
    seeds: int = 20
    """Random initialisations for the empirical limit."""
    plot: str = ""
    """Draw the eigenvalues in the region where each eta is stable into this file: .png, .pdf or .svg."""
