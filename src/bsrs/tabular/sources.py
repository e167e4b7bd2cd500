"""A table by its name, as command lines and configs give it."""

import re

from bsrs.errors import BadInput
from bsrs.tabular.grids import Goal, GridMap, grid_mdp
from bsrs.tabular.mdp import MDP


def named_mdp(name: str, *, slip: float = 0.0, goal: Goal = "loop") -> MDP:
    """A map's name, size or file (see `GridMap.named`), a toy-text env's id, or `garnet:STATES:ACTIONS:BRANCHING:SEED`.

    `slip` and `goal` are for maps.
    """
    if name.startswith("garnet:"):
        return _garnet(name)
    if re.search(r"-v\d+$", name):
        return MDP.from_gymnasium(name)
    return grid_mdp(GridMap.named(name), slip=slip, goal=goal)


def _garnet(name: str) -> MDP:
    try:
        n_states, n_actions, branching, seed = map(int, name.split(":")[1:])
    except ValueError:
        raise BadInput(f"map {name!r} cannot be read; expected garnet:STATES:ACTIONS:BRANCHING:SEED") from None
    return MDP.garnet(n_states, n_actions, branching, seed=seed)
