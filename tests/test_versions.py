"""The comparison of two versions: from runs to scores, and from scores to the table in the docs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsrs.errors import BadInput
from experiments.versions import compare, difference, read_scores, scores
from run_folders import write_sweep

ROOT = Path(__file__).parent.parent


def test_the_docs_have_the_table_of_the_stored_scores() -> None:
    lines = list(compare(read_scores(ROOT / "results" / "versions" / "scores.csv")))
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert "\n".join(lines) in page.partition("<!-- versions -->")[2]
    assert len(lines) == 2 + 8
    assert all(float(line.split("|")[-2]) > 0.05 for line in lines[2:])  # as the page says


def test_scores_are_those_of_the_runs(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["CartPole-v1"], [0.0, 2.0], seeds=3)
    rows = list(scores("old", tmp_path))
    assert [(row["eta"], row["seed"]) for row in rows] == [(eta, str(s)) for eta in ("0.0", "2.0") for s in range(3)]
    assert all(row["outcome"] == "finished" and float(row["over training"]) > 0 for row in rows)
    with pytest.raises(BadInput, match="fewer than two runs of a version"):
        list(compare(rows))


def test_a_version_that_learns_worse_is_told() -> None:
    old = np.random.default_rng(0).normal(size=20)
    low, high, p = difference(old, old - 2.0)
    assert low < -2 < high < 0
    assert p < 0.001
    assert difference(old, old)[2] > 0.99
