"""`python -m benchmarks tabular`: every solver gives the same answer, and one that takes too long is stopped."""

from __future__ import annotations

import json

import pytest

from benchmarks import tabular
from benchmarks.__main__ import main
from benchmarks.tabular import QUICK, TABLES, bench, cases
from bsrs.errors import BadInput

pytest.importorskip("quantecon")
pytest.importorskip("mdpsolver")
CASES = (("paper", 0.9), ("20x20", 0.99), ("garnet 2000", 0.99))


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return list(bench(CASES, quick=True))


def test_all_solvers_agree(rows):
    """Ours, quantecon's and mdpsolver's: the same V*, and policies worth as much."""
    for case in CASES:
        own = [row for row in rows if (row["mdp"], row["gamma"]) == case]
        assert {row["solver"].split()[0] for row in own} == {"bsrs", "quantecon", "mdpsolver"}
        for row in own:
            assert row["seconds"] > 0
            assert max(row["max_error"], row["policy_loss"]) < 1e-5, row


def test_an_eta_that_chooses_itself_saves_applications(rows):
    """At most 30 % at a discount of 0.99, and nowhere more than 1.1 times plain value iteration's plus ten."""
    count = {(row["mdp"], row["solver"]): row["applications"] for row in rows}
    for mdp, gamma in CASES:
        plain, *adaptive = (count[mdp, f"bsrs {name}"] for name in ("plain", "aitken", "anderson"))
        assert max(adaptive) <= 1.1 * plain + 10
        if gamma == 0.99:
            assert min(adaptive) <= 0.3 * plain, mdp


def test_one_that_takes_too_long_is_stopped_and_has_no_numbers():
    rows = list(bench([("60x60", 0.999)], quick=True, families=("quantecon",), limit=1e-9))
    assert [row["solver"] for row in rows] == ["quantecon mpi k=20", "quantecon mpi k=50", "quantecon vi"]
    assert all(row["seconds"] is row["max_error"] is None for row in rows)


def test_the_command_prints_one_document(monkeypatch, capsys):
    monkeypatch.setattr(tabular, "QUICK", CASES[:1])
    main(["tabular", "--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"mdp", "gamma", "solver", "seconds", "applications", "max_error"} <= rows[0].keys()


def test_cases():
    with pytest.raises(BadInput, match="garnet 1000"):
        cases(["garnet 1000"], [0.9], quick=False)
    assert {table for table, _ in QUICK} <= TABLES.keys()
    assert cases(["paper"], [0.5], quick=True) == [("paper", 0.5)]
    assert cases([], [0.99], quick=True) == [case for case in QUICK if case[1] == 0.99]
