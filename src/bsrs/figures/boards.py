"""Values and policies on the board of a map or a toy-text env, and the eigenvalues that decide which eta is stable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from bsrs.errors import BadInput
from bsrs.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, new_figure
from bsrs.tabular.adaptive import Complexes
from bsrs.tabular.grids import MOVES, GridMap
from bsrs.tabular.mdp import Ints
from bsrs.tabular.solve import Solution

UP, RIGHT, DOWN, LEFT = MOVES
Action = tuple[int, int] | str  # a move, down and right, or a letter for what is none


@dataclass(frozen=True, eq=False)
class Board:
    """Where the states of a table lie: one layer for each setting of what is not a place."""

    layers: Mapping[str, Ints]  # title -> (height, width) states, -1 for walls
    actions: tuple[Action, ...]
    signs: dict[tuple[int, int], str]  # letters on cells; no arrow is drawn there
    columns: int = 1  # layers side by side


def board_of(name: str) -> Board:
    """The board of a map or of FrozenLake, CliffWalking or Taxi."""
    if name.startswith(("FrozenLake", "CliffWalking", "Taxi")):
        return _toy_text_board(name)
    if name.startswith("garnet:") or "-v" in name:
        raise BadInput(f"{name} has no board to draw; expected a map, FrozenLake, CliffWalking or Taxi")
    grid = GridMap.named(name)
    states = np.full(grid.cells.shape, -1)
    states[grid.is_state] = np.arange(grid.n_states)
    return Board({"": states}, MOVES, _signs(grid.cells, "GP"))


def _toy_text_board(name: str) -> Board:
    import gymnasium

    env: Any = gymnasium.make(name).unwrapped
    if name.startswith("Taxi"):
        places, states = ("R", "G", "Y", "B", "taxi"), np.arange(500).reshape(5, 5, 5, 4)
        layers = {
            f"from {places[at]} to {places[to]}": states[:, :, at, to] for at in range(len(places)) for to in range(4)
        }
        signs = {place: places[i] for i, place in enumerate(env.locs)}
        return Board(layers, (DOWN, UP, RIGHT, LEFT, "pick", "drop"), signs, columns=4)
    if name.startswith("FrozenLake"):
        cells = env.desc.astype(str)
        return Board({"": np.arange(cells.size).reshape(cells.shape)}, (LEFT, DOWN, RIGHT, UP), _signs(cells, "GH"))
    cells = np.full(env.shape, "F")
    cells[-1, 1:-1], cells[-1, -1] = "C", "G"
    return Board({"": np.arange(cells.size).reshape(cells.shape)}, MOVES, _signs(cells, "CG"))


def _signs(cells: Any, letters: str) -> dict[tuple[int, int], str]:
    return {(row, column): cells[row, column] for row, column in np.argwhere(np.isin(cells, list(letters))).tolist()}


def draw_layer(ax: Axes, board: Board, title: str, solution: Solution, limits: tuple[float, float]) -> Any:
    """One layer: values as colours, the best moves as arrows where some are better; the image, for a colour bar."""
    value, policy = solution.optimal_value, solution.policy
    chosen = np.ptp(solution.q, axis=1) > 1e-12
    states = board.layers[title]
    shown = np.where(states >= 0, value[states], np.nan)
    image = ax.imshow(shown, vmin=limits[0], vmax=limits[1], cmap="viridis")
    ax.set_facecolor(GREY)
    dark = np.nan_to_num(shown) < np.mean(limits)
    for (row, column), state in np.ndenumerate(states):
        ink = "white" if dark[row, column] else "black"
        action = board.actions[policy[state]]
        sign = board.signs.get((row, column)) if len(board.layers) == 1 else None
        if state >= 0 and (sign or (isinstance(action, str) and chosen[state])):
            ax.text(column, row, str(sign or action), color=ink, ha="center", va="center", fontsize=8 if sign else 5)
        elif state >= 0 and chosen[state] and not isinstance(action, str):
            centre, half = np.array([column, row]), 0.28 * np.array([action[1], action[0]])
            arrow = {"arrowstyle": "->", "color": ink, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", tuple(centre + half), tuple(centre - half), arrowprops=arrow)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=7)
    return image


def before_and_after(board: Board, before: Solution, after: Solution, *, title: str) -> Figure:
    """The values and the policy early on and at the end, in the unshaped problem's units, on one scale."""
    rows = -(-len(board.layers) // board.columns)
    height, width = next(iter(board.layers.values())).shape
    side = 0.42 if len(board.layers) == 1 else 0.24
    size = (max(5.0, 2 * board.columns * (side * width + 0.25) + 1.2), max(2.4, rows * (side * height + 0.3) + 1.0))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=10)
    on_board = np.concatenate([states[states >= 0] for states in board.layers.values()])
    values = np.concatenate([solution.optimal_value[on_board] for solution in (before, after)])
    # The colour bar has a place of its own, 0.9 inches wide, so that the panels are equal.
    halves: Any = figure.subfigures(1, 3, width_ratios=[1, 1, 1.8 / (size[0] - 0.9)])
    for half, solution in zip(halves[:2], (before, after), strict=True):
        axes = half.subplots(rows, board.columns, squeeze=False)
        for ax, layer in zip(axes.flat, board.layers, strict=True):
            image = draw_layer(ax, board, layer, solution, (values.min(), values.max()))
        half.suptitle(f"after {solution.applications} applications", fontsize=9)
    bar = halves[2].add_axes((0.05, 0.12, 0.2, 0.7))
    halves[2].colorbar(image, cax=bar, label="value")
    return figure


def stability(eigenvalues: Complexes, gamma: float, etas: Sequence[tuple[str, float]]) -> Figure:
    """The eigenvalues of the optimal policy's chain, and for each eta the disc in which they must lie."""
    figure, ax = new_figure(6.2, 4.4)
    ax.add_patch(Circle((0, 0), 1, fill=False, color=GREY, linestyle=":"))
    for (name, eta), colour in zip(etas, (GREEN, BLUE, VERMILION, ORANGE, PURPLE), strict=False):
        reach = gamma * (1 + eta)  # |-eta + gamma (1 + eta) lam| < 1
        ax.add_patch(Circle((eta / reach, 0), 1 / reach, fill=False, color=colour, linewidth=1.4))
        ax.plot([], [], color=colour, label=f"η = {eta:.3g} {name}".strip())
    ax.plot(
        eigenvalues.real, eigenvalues.imag, color=BLACK, marker="o", markersize=4, linestyle="none", label="eigenvalues"
    )
    ax.set(aspect="equal", xlim=(-1.4, 2.4), ylim=(-1.4, 1.4), xlabel="real part", ylabel="imaginary part")
    ax.set_title(f"stable near the optimum while all lie in the disc of η; γ = {gamma:g}", fontsize=9)
    ax.legend(loc="upper right")
    return figure


def save_as(figure: Figure, path: str) -> Path:
    """Write the figure in the format that the name ends in."""
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=200)
    except (ValueError, OSError) as error:
        raise BadInput(f"cannot write the plot {path}: {error}") from None
    return file
