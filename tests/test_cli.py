from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bsrs.cli import commands, main


def run(capsys, *words: str) -> str:
    main(words)
    return capsys.readouterr().out


def fails(capsys, *words: str) -> str:
    """The sentence on standard error of a command that must end with exit code 2 and without a traceback."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_sweep_as_json(capsys):
    out = run(capsys, *"tabular sweep --map paper --gamma 0.8 --eta 0 0.23 5 --seeds 4 --json".split())
    rows = json.loads(out)["rows"]
    assert [set(row) for row in rows] == [{"eta", "steps_mean", "steps_std", "converged"}] * 3
    assert [row["converged"] for row in rows] == [True, True, False]
    assert rows[1]["steps_mean"] < 0.85 * rows[0]["steps_mean"]


def test_sweep_as_a_table(capsys):
    out = run(capsys, *"tabular sweep --eta -0.5 0 0.2 --seeds 2".split())
    assert "fewest steps at eta = 0.2" in out


def test_solve(capsys):
    out = run(capsys, *"tabular solve --eta 0 0.23".split())
    assert "converged" in out
    assert "G ←" in out
    document = json.loads(run(capsys, *"tabular solve --map FrozenLake-v1 --gamma 0.9 --json".split()))
    assert len(document["value"]) == len(document["policy"]) == 16
    assert document["rows"][0]["start_value"] == pytest.approx(document["value"][0])


def test_policies_carry_their_eta(capsys):
    out = run(capsys, *"tabular solve --eta 0 auto 9 --max-steps 200".split())
    assert "policy at eta 0, auto:\n" in out
    assert "policy at eta 9 (" in out  # it did not converge, and has another policy
    assert "anderson" in out


def test_a_table_of_your_own(capsys, tmp_path):
    (tmp_path / "mine.json").write_text('{"transitions": [[[1.0]]], "rewards": [[1.0]]}')
    words = ["tabular", "solve", "--mdp", str(tmp_path / "mine.json"), "--gamma", "0.5", "--json"]
    assert json.loads(run(capsys, *words))["value"] == pytest.approx([2.0])
    assert "both given; expected one of them" in fails(capsys, *words, "--map", "corridor")
    assert "expected it with a map only" in fails(capsys, *words, "--slip", "0.1")
    assert json.loads(run(capsys, "tabular", "theory", *words[2:-1], "--seeds", "2", "--json"))["map"] == words[3]


def test_the_panels_of_a_plot_are_equal(tmp_path):
    from bsrs.figures.boards import before_and_after, board_of
    from bsrs.tabular import solve
    from bsrs.tabular.grids import named_mdp

    solution = solve(named_mdp("FrozenLake-v1"), 0.9)
    figure = before_and_after(board_of("FrozenLake-v1"), solution, solution, title="t")
    figure.draw_without_rendering()
    first, second = (half.axes[0].get_position().bounds for half in figure.subfigs[:2])
    sizes = [half.axes[0].get_window_extent().size for half in figure.subfigs[:2]]
    assert first[2:] == pytest.approx(second[2:], rel=0.02)
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_solve_says_what_it_picked(capsys):
    document = json.loads(run(capsys, *"tabular solve --method auto --json".split()))
    assert document["rows"][0]["method"] == "mpi"
    assert "expected none: it chooses" in fails(capsys, *"tabular solve --method auto --eta 0.2".split())


@pytest.mark.parametrize("terminal", [False, True])
def test_long_solves_show_how_far_they_are(capsys, monkeypatch, terminal):
    monkeypatch.setattr("bsrs.cli.show.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    main("tabular solve --gamma 0.99 --eta 0 3".split())
    said = capsys.readouterr().err
    assert "paper, eta 0" in said
    assert "applications" in said


def test_theory(capsys):
    document = json.loads(run(capsys, *"tabular theory --seeds 3 --eta 0.05 0.3 --json".split()))
    assert document["proven_high"] == pytest.approx(1 / 9)
    assert document["spectral_limit"] == pytest.approx(1.0)
    assert 0.3 < document["empirical_limit"] < 1.0
    assert [row["proven"] for row in document["rows"]] == [True, False]
    assert 0.1 < document["best_eta"] < document["empirical_limit"]  # one that can be used
    assert document["best_steps"] < 0.85 * document["plain_steps"]
    assert "spectral limit" in run(capsys, *"tabular theory --seeds 2 --map garnet:10:2:3:0".split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("tabular solve --gamma 1", "gamma is 1.0; expected a number in [0, 1)"),
        ("tabular solve --map papr", "unknown map 'papr': did you mean paper?"),
        ("tabular solve --map FrozenLak-v1", "unknown env 'FrozenLak-v1': did you mean FrozenLake"),
        ("tabular solve --map no/such.txt", "map file no/such.txt does not exist"),
        ("tabular solve --slip 2", "slip is 2.0"),
        ("tabular sweep --eta nan", "eta"),
        ("tabular sweep --seeds 0", "at least one"),
        ("tabular sweep --tol -1", "tol is -1.0"),
        ("tabular sweep --eta high", "high"),
        ("tabular sweep --goal jump", "jump"),
        ("tabular swep", "did you mean sweep"),
        ("report", "no folder is named"),
        ("recommend", "no folder is named"),
        ("tablular", "did you mean tabular"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(capsys, words, says):
    assert says in fails(capsys, *words.split())


def test_a_map_file_with_an_unknown_letter(capsys, tmp_path):
    (tmp_path / "map.txt").write_text("SFG\nFQF\n")
    assert "row 2 of the map has the unknown letter 'Q'" in fails(
        capsys, "tabular", "solve", "--map", str(tmp_path / "map.txt")
    )


def test_help_names_every_command_and_is_light(capsys):
    out = run(capsys, "--help")
    assert all(" ".join(name) in out for name in commands())
    assert "sweep" in run(capsys, "tabular")
    code = (
        "import sys; from bsrs.cli import main; main(['--help']);"
        "print([name for name in ('torch', 'numpy', 'tyro') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", commands(), ids=" ".join)
def test_every_command_has_help(capsys, name):
    with pytest.raises(SystemExit) as stop:
        main([*name, "--help"])
    assert stop.value.code == 0
    assert f"bsrs {' '.join(name)}" in capsys.readouterr().out


def test_version(capsys):
    assert run(capsys, "--version").startswith("bsrs 0.")


@pytest.mark.parametrize("command", [" ".join(words) for words in commands()])
def test_help_shows_no_empty_defaults(capsys, command: str) -> None:
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert "default: )" not in out
    assert "default: None" not in out
    assert "default: ''" not in out


def test_help_points_to_the_presets_instead_of_listing_their_values(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["train", "dqn", "--help"])
    out = capsys.readouterr().out
    assert "bsrs presets dqn" in out
    assert "zoo-cartpole:" not in out
