"""Figures: axes in, axes out; what is drawn is what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from bsrs.cli import main
from bsrs.figures.boards import board_of
from bsrs.figures.curves import (
    Curve,
    learning_curves,
    sensitivity,
)
from bsrs.figures.style import BLACK, WHITE, eta_colours, eta_label, new_figure, project_style, save
from bsrs.stats import Interval
from bsrs.tabular import MDP
from bsrs.tabular.grids import named_mdp
from experiments.bars import relative_advantages


def _axes() -> Axes:
    return new_figure(4, 3)[1]


def _around(*estimate: float, width: float = 1.0) -> Interval:
    middle = np.array(estimate)
    return Interval(middle, middle - width, middle + width)


def test_learning_curves_draw_the_estimate_and_its_band() -> None:
    ax = _axes()
    curves = [
        Curve("0", BLACK, np.array([10, 20]), _around(1.0, 3.0)),
        Curve("2", "#123456", np.array([10, 20]), _around(2.0, 5.0)),
    ]
    assert learning_curves(ax, curves, score="score") is ax
    assert [line.get_ydata().tolist() for line in ax.lines] == [[1, 3], [2, 5]]
    low, high = (
        ax.collections[1].get_paths()[0].vertices[:, 1].min(),
        ax.collections[1].get_paths()[0].vertices[:, 1].max(),
    )
    assert (low, high) == (1.0, 6.0)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "2"]


def test_a_band_far_wider_than_the_curves_rise_leaves_them_room() -> None:
    _, (left, right) = new_figure(6, 3, 1, 2, sharey=True)
    learning_curves(left, [Curve("0", BLACK, np.array([10, 20]), _around(0.0, 10.0, width=1_000.0))], score="score")
    assert left.get_ylim() == pytest.approx((-3, 13))
    learning_curves(right, [Curve("0", BLACK, np.array([10, 20]), _around(0.0, 20.0, width=1.0))], score="score")
    assert left.get_ylim() == right.get_ylim() == pytest.approx((-6, 26))  # what both panels need
    narrow = _axes()
    learning_curves(narrow, [Curve("0", BLACK, np.array([10, 20]), _around(0.0, 10.0, width=0.1))], score="score")
    assert narrow.get_ylim() == pytest.approx((-0.6, 10.6))  # no more than the bands need


def test_an_unknown_band_is_not_drawn() -> None:
    ax = _axes()
    infinite = Interval(np.array([1.0, 2.0]), np.full(2, -np.inf), np.full(2, np.inf))
    learning_curves(ax, [Curve("0", BLACK, np.array([10, 20]), infinite)], score="score")
    assert ax.collections[0].get_paths() == []
    assert np.isfinite(ax.get_ylim()).all()


def test_sensitivity_marks_every_eta_and_the_baseline() -> None:
    ax = sensitivity(_axes(), ["0", "1"], [BLACK, "#123456"], _around(4.0, 6.0), name="final", baseline=0)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1"]
    assert [4.0, 4.0] in [list(line.get_ydata()) for line in ax.lines]  # the level of eta = 0


def test_bars_are_sorted_and_what_is_beyond_the_axis_is_written() -> None:
    ax = relative_advantages(_axes(), ["a", "b", "c", "d"], Interval(*[np.array([0.1, -0.5, 30.0, np.inf])] * 3))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["d", "c", "a", "b"]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([10, 10, 0.1, -0.5])
    assert [text.get_text() for text in ax.texts] == ["∞", "+3000%"]


def test_every_eta_has_a_colour_of_its_own() -> None:
    etas = [-0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, "linear:0:1:100"]
    for dark in (False, True):
        colours = eta_colours(etas, dark=dark)
        assert list(colours) == etas
        assert len(set(colours.values())) == len(etas)
    assert eta_colours([2.0, 0.0])[2.0] == eta_colours([0.5, 2.0, 5.0])[2.0]  # whatever else is shown
    assert eta_colours([0.0]) == {0.0: BLACK}
    assert eta_colours([0.0], dark=True) == {0.0: WHITE}
    assert [eta_label(eta) for eta in (-0.5, 2.0, "linear:0:1:100")] == ["−0.5", "2", "linear:0:1:100"]


def test_figures_are_saved_twice_and_the_same_each_time(tmp_path: Path) -> None:
    def write(name: str) -> list[bytes]:
        with project_style():
            figure, ax = new_figure(3, 2)
            learning_curves(ax, [Curve("0", BLACK, np.array([10, 20]), _around(1.0, 2.0))], score="score")
            return [path.read_bytes() for path in save(figure, tmp_path / name / "curve")]

    assert write("a") == write("b")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["curve.pdf", "curve.png"]


@pytest.mark.parametrize("name", ["paper", "cliff", "FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4"])
def test_the_arrows_of_a_board_point_where_the_moves_lead(name: str) -> None:
    mdp = MDP.from_gymnasium(name, is_slippery=False) if name.startswith("Frozen") else named_mdp(name)
    board, moved, seen = board_of(name), 0, set()
    for states in board.layers.values():
        places = {int(state): place for place, state in np.ndenumerate(states) if state >= 0}
        seen |= set(places)
        for state, (row, column) in places.items():
            for action, move in enumerate(board.actions):
                if not isinstance(move, str) and mdp.termination()[state, action] == 0:
                    (to,) = mdp.transitions[[state * mdp.n_actions + action]].indices
                    aim = (row + move[0], column + move[1])
                    assert places[int(to)] in {aim, (row, column), (3, 0)}  # there, against a wall, down the cliff
                    moved += places[int(to)] == aim
    assert seen == set(range(mdp.n_states))
    assert moved > len(seen)


def test_plots_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tabular", "solve", "--map", "two-rooms", "--eta", "0.1", "anderson", "--plot", str(tmp_path / "two.png")])
    main(["tabular", "theory", "--map", "SFG", "--seeds", "2", "--plot", str(tmp_path / "sub" / "theory.svg")])
    assert (tmp_path / "two.png").stat().st_size > 10_000
    assert "spectral limit" in (tmp_path / "sub" / "theory.svg").read_text()
    for words, says in (("--plot x.txt", "cannot write the plot"), ("--map garnet:5:2:2:0 --plot x.png", "no board")):
        with pytest.raises(SystemExit):
            main(["tabular", "solve", *words.split()])
        assert says in capsys.readouterr().err
