"""`python -m benchmarks tabular`: every solver gives the same answer, and one that takes too long is stopped."""

from __future__ import annotations

import json

import pytest

from benchmarks import tabular
from benchmarks.__main__ import main
from benchmarks.tabular import FULL, QUICK, TABLES, Plan, bandwidth, bench
from bsrs.errors import BadInput

pytest.importorskip("quantecon")
pytest.importorskip("mdpsolver")
CASES = (("paper", 0.9), ("20x20", 0.99), ("garnet 2000", 0.99))


@pytest.fixture(scope="module")
def report() -> dict:
    return bench(Plan(CASES, rounds=1))


def test_all_solvers_agree(report):
    """Ours, quantecon's and mdpsolver's: the same V*, and policies worth as much."""
    for case in CASES:
        rows = [row for row in report["rows"] if (row["mdp"], row["gamma"]) == case]
        families = {row["solver"].split()[0] for row in rows}
        assert families == {"bsrs", "quantecon", "mdpsolver"}
        for row in rows:
            assert max(row["max_error"], row["policy_loss"]) < 1e-5, row
    assert report["stopped"] == []


def test_an_eta_that_chooses_itself_saves_applications(report):
    """At most 30 % at a discount of 0.99, and nowhere more than 1.1 times plain value iteration's plus ten."""
    count = {(row["mdp"], row["solver"]): row["applications"] for row in report["rows"]}
    for mdp, gamma in CASES:
        plain, *adaptive = (count[mdp, f"bsrs {name}"] for name in ("plain", "aitken", "anderson"))
        assert max(adaptive) <= 1.1 * plain + 10
        if gamma == 0.99:
            assert min(adaptive) <= 0.3 * plain, mdp


def test_the_best_of_both_sides(report):
    assert [(line["mdp"], line["gamma"]) for line in report["best"]] == list(CASES)
    for line in report["best"]:
        assert line["ours"].startswith("bsrs")
        assert line["peer"].startswith(("quantecon", "mdpsolver"))
        assert line["times_as_fast"] == pytest.approx(line["peer_seconds"] / line["our_seconds"])


def test_one_that_takes_too_long_is_left_out():
    report = bench(Plan((("60x60", 0.999),), families=("quantecon",), rounds=1, limit=0.0))
    assert report["rows"] == report["best"] == []
    assert {line["solver"] for line in report["stopped"]} == {
        "quantecon mpi k=20",
        "quantecon mpi k=50",
        "quantecon vi",
    }


def test_bandwidth_of_a_small_grid():
    figures = bandwidth(threads=1, side=50, rounds=2)
    assert figures["table_mb"] == pytest.approx(2500 * 4 * 12 / 1e6)
    assert figures["share"] == pytest.approx(figures["gb_per_s"] / figures["copy_gb_per_s"])


def test_the_command_prints_one_document(monkeypatch, capsys):
    monkeypatch.setattr(tabular, "QUICK", CASES[:1])
    monkeypatch.setattr(tabular, "bandwidth", lambda threads: bandwidth(threads, side=50, rounds=2))
    main(["tabular", "--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {"mdp", "gamma", "solver", "seconds", "applications", "max_error"} <= rows[0].keys()


def test_an_unknown_table_is_named():
    with pytest.raises(BadInput, match="garnet 1000"):
        Plan((("garnet 1000", 0.9),))
    assert {table for table, _ in QUICK + FULL} <= TABLES.keys()
