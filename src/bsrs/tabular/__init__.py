"""Tabular MDPs: operators, solvers, limits of eta, and sampled learning."""

from bsrs.tabular.grids import GridMap, grid_mdp
from bsrs.tabular.iterate import Solutions, solve_many
from bsrs.tabular.mdp import MDP
from bsrs.tabular.operators import bellman, expected_next, greedy_policy, relaxed_bellman, shaped_bellman, state_value
from bsrs.tabular.solve import Solution, solve

__all__ = [
    "MDP",
    "GridMap",
    "Solution",
    "Solutions",
    "bellman",
    "expected_next",
    "greedy_policy",
    "grid_mdp",
    "relaxed_bellman",
    "shaped_bellman",
    "solve",
    "solve_many",
    "state_value",
]
