"""Tables by name, and gridworlds from text maps: the paper's experiments and their larger relatives."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from bsrs.errors import BadInput, unknown
from bsrs.rng import stream
from bsrs.tabular.layouts import Floats, Ints, compressed_rows, require_table
from bsrs.tabular.mdp import MDP, is_file_or_factory, read_mdp

Goal = Literal["loop", "terminate", "reset"]

# What every action in such a cell earns. Goals and pits are where an episode loops, ends or resets.
REWARDS = (
    {"G": 1.0, "P": -1.0} | {str(i): i / 10 for i in range(1, 10)} | {"abcdefghi"[i - 1]: -i / 10 for i in range(1, 10)}
)
LETTERS = {"F", "S", "W", *REWARDS}
EXPECTED = "F (free), S (start), G (goal, +1), P (pit, -1), W (wall), 1 to 9 (+0.1 to +0.9) or a to i (-0.1 to -0.9)"

MAPS: dict[str, str] = {
    "paper": "FFFFFFF FSFFFFF WWWWWFF FFFFFFF FFWWWWW FFFFFGF FFFFFFF",
    "corridor": "SFFFFFFFFFFFFFFFFFFG",
    "two-rooms": "SFFWFFF FFFWFFF FFFFFFF FFFWFFF FFFWFFG",
    "four-rooms": "SFFFFWFFFFF FFFFFWFFFFF FFFFFFFFFFF FFFFFWFFFFF FFFFFWFFFFF WFWWWWFFFFF FFFFFWWWFWW FFFFFWFFFFF "
    "FFFFFWFFFFF FFFFFFFFFFF FFFFFWFFFFG",
    "cliff": "FFFFFFFFFFFF FFFFFFFFFFFF FFFFFFFFFFFF SPPPPPPPPPPG",
}

# up, right, down, left: the two neighbours in this order are the perpendicular moves
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ARROWS = "↑→↓←"


@dataclass(frozen=True, eq=False)
class GridMap:
    """A rectangle of cells. Every cell except a wall is a state, numbered row by row."""

    cells: npt.NDArray[np.str_]  # (height, width) of letters

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse rows of letters separated by white space. `grid_mdp` lists the letters."""
        rows = text.split()
        if not rows:
            raise BadInput("the map is empty; expected rows of the letters F, S, G and W")
        for number, row in enumerate(rows, start=1):
            strange = [letter for letter in row if letter not in LETTERS]
            if strange:
                raise BadInput(f"row {number} of the map has the unknown letter {strange[0]!r}; expected {EXPECTED}")
            if len(row) != len(rows[0]):
                raise BadInput(f"row {number} of the map has {len(row)} cells; expected {len(rows[0])} as in row 1")
        return cls(np.array([list(row) for row in rows]))

    @classmethod
    def open(cls, height: int, width: int) -> Self:
        """Create a map without walls, with the start in one corner and the goal in the opposite one."""
        if height < 1 or width < 1 or height * width < 2:
            raise BadInput(f"an open map of {height}x{width} has no room; expected at least two cells")
        require_table(height * width, len(MOVES), 1)
        cells = np.full((height, width), "F")
        cells[0, 0], cells[-1, -1] = "S", "G"
        return cls(cells)

    @classmethod
    def named(cls, name: str) -> Self:
        """Look up a name (`paper`), a size (`20x20`), a text file, or parse rows of letters (`"SFF FFG"`)."""
        height, _, width = name.partition("x")
        if height.isdigit() and width.isdigit():
            return cls.open(int(height), int(width))
        if name in MAPS:
            return cls.parse(MAPS[name])
        if len(name.split()) > 1 or (name and set(name) <= LETTERS):
            return cls.parse(name)
        if Path(name).is_file():
            return cls.parse(Path(name).read_text(encoding="utf-8", errors="replace"))
        if Path(name).suffix or Path(name).name != name:
            raise BadInput(
                f"map file {name} does not exist; expected a text file with rows of the letters F, S, G and W"
            )
        raise unknown("map", name, [*MAPS, "20x20"])

    @property
    def is_state(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.cells != "W")

    @property
    def n_states(self) -> int:
        return int(self.is_state.sum())

    def states_of(self, letters: str) -> Ints:
        """Return the states whose cells have one of these letters."""
        return np.flatnonzero(np.isin(self.cells[self.is_state], list(letters)))

    def rewards(self) -> Floats:
        """Return the reward of an action in each state, (S,)."""
        return np.array([REWARDS.get(letter, 0.0) for letter in self.cells[self.is_state]])

    def neighbours(self) -> Ints:
        """Return the next state of each move, (S, 4). Moves into walls or edges stay in place."""
        numbers = np.full(self.cells.shape, -1, dtype=np.int32)
        numbers[self.is_state] = np.arange(self.n_states, dtype=np.int32)
        rows, columns = np.nonzero(self.is_state)
        here = numbers[rows, columns]
        targets = np.empty((self.n_states, len(MOVES)), dtype=np.int32)
        for move, (down, right) in enumerate(MOVES):
            to_row = np.clip(rows + down, 0, self.cells.shape[0] - 1)
            to_column = np.clip(columns + right, 0, self.cells.shape[1] - 1)
            there = numbers[to_row, to_column]
            targets[:, move] = np.where(there < 0, here, there)
        return targets

    def policy_text(self, policy: Ints) -> str:
        """Draw the map with an arrow for the policy's move in every state except goals and pits."""
        text = self.cells.copy()
        text[self.is_state] = [ARROWS[action] for action in policy]
        keep = np.isin(self.cells, ["W", "G", "P"])
        text[keep] = np.where(self.cells[keep] == "W", "█", self.cells[keep])
        return "\n".join(" ".join(row) for row in text)


def grid_mdp(
    grid: GridMap | str,
    *,
    slip: float = 0.0,
    goal: Goal = "loop",
    random_rewards: int | None = None,
) -> MDP:
    """Create the MDP of a map with four moves, for example `grid_mdp("SFF FWG")`.

    Letters are F (free), S (start), W (wall), G (goal, every action earns 1), P (pit, -1), the digits 1 to 9 (+0.1 to
    +0.9) and the letters a to i (-0.1 to -0.9).

    Args:
        grid: A `GridMap`, or a name, size, text file or rows of letters as in `GridMap.named`.
        slip: Probability that a move goes to one of its two sides instead.
        goal: What follows an action in a goal or pit: "loop", "terminate", or "reset" to the start.
        random_rewards: A seed. Replaces all rewards with uniform random ones.
    """
    grid = GridMap.named(grid) if isinstance(grid, str) else grid
    if not 0.0 <= slip <= 1.0:
        raise BadInput(f"slip is {slip}; expected a probability from 0 to 1")
    require_table(grid.n_states, len(MOVES), 1 if slip == 0.0 else 3)
    goals = grid.states_of("GP")
    if random_rewards is None and not grid.rewards().any():
        raise BadInput("the map has no goal; expected at least one letter G")
    transitions = _moves(grid.neighbours(), slip)
    start = np.zeros(grid.n_states)
    starts = grid.states_of("S")
    start[starts if len(starts) else slice(None)] = 1 / (len(starts) or grid.n_states)
    if goal != "loop" or random_rewards is None:
        transitions = _replace_rows(transitions, goals, goal, start)
    if random_rewards is None:
        rewards = np.repeat(grid.rewards()[:, None], len(MOVES), axis=1)
    else:
        rewards = stream(random_rewards, "grid rewards").random((grid.n_states, len(MOVES)))
    return MDP(transitions, rewards, start=start)


def _moves(neighbours: Ints, slip: float) -> sparse.csr_array:
    """(S * 4, S) transition rows of the plain moves."""
    n_states, n_moves = neighbours.shape
    if slip == 0.0:
        targets, probabilities = neighbours[:, :, None], np.ones(1)
    else:
        sides = [np.roll(neighbours, shift, axis=1) for shift in (0, 1, -1)]
        targets, probabilities = np.stack(sides, axis=2), np.array([1.0 - slip, slip / 2, slip / 2])
    n_rows, width = n_states * n_moves, len(probabilities)
    pointers = np.arange(0, n_rows * width + 1, width, dtype=np.int32)
    rows = sparse.csr_array((np.tile(probabilities, n_rows), targets.ravel(), pointers), shape=(n_rows, n_states))
    return compressed_rows(rows)


def _replace_rows(transitions: sparse.csr_array, goals: Ints, goal: Goal, start: Floats) -> sparse.csr_array:
    """The goals' rows made to loop, to end (empty rows), or to go back to the start."""
    n_states = transitions.shape[1]
    rows = (goals[:, None] * len(MOVES) + np.arange(len(MOVES))).ravel()
    keep = np.ones(transitions.shape[0])
    keep[rows] = 0.0
    kept = sparse.csr_array(sparse.diags_array(keep) @ transitions)
    kept.eliminate_zeros()
    if goal == "terminate":
        return compressed_rows(kept)
    if goal == "loop":
        columns, probabilities = np.repeat(goals, len(MOVES)), np.ones(len(rows))
    else:
        starts = np.flatnonzero(start)
        columns, probabilities = np.tile(starts, len(rows)), np.tile(start[starts], len(rows))
        rows = np.repeat(rows, len(starts))
    added = sparse.coo_array((probabilities, (rows, columns)), shape=(transitions.shape[0], n_states))
    return compressed_rows(kept + added)


def is_map(name: str) -> bool:
    """Whether a table's name is that of a map: `slip` and `goal` mean something then."""
    return not (name.startswith("garnet:") or re.search(r"-v\d+$", name) or is_file_or_factory(name))


def named_mdp(name: str, *, slip: float = 0.0, goal: Goal = "loop") -> MDP:
    """A map's name, size or file (see `GridMap.named`), a toy-text env's id, or `garnet:STATES:ACTIONS:BRANCHING:SEED`.

    `slip` and `goal` are for maps; BadInput where another table has one of them.
    """
    if not is_map(name) and (slip != 0.0 or goal != "loop"):
        which = f"slip {slip:g}" if slip else f"goal {goal}"
        raise BadInput(f"{which} was given with the table {name!r}; expected it with a map only")
    if name.startswith("garnet:"):
        try:
            n_states, n_actions, branching, seed = map(int, name.split(":")[1:])
        except ValueError:
            raise BadInput(f"map {name!r} cannot be read; expected garnet:STATES:ACTIONS:BRANCHING:SEED") from None
        return MDP.garnet(n_states, n_actions, branching, seed=seed)
    if re.search(r"-v\d+$", name):
        return MDP.from_gymnasium(name)
    if not is_map(name):
        return read_mdp(name)
    return grid_mdp(GridMap.named(name), slip=slip, goal=goal)
