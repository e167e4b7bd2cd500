"""`bsrs bench dqn` and `bsrs bench td3`: contestants really train, with the same settings, and are counted right."""

from __future__ import annotations

import json
from typing import Any

import pytest

import bsrs.bench.agents as module
from bsrs.bench.agents import CASES, Contest, Entry, Ours, Sb3, _row, contests
from bsrs.bench.timing import Result
from bsrs.cli import main


@pytest.mark.parametrize(
    "entry",
    [Entry("td3", "bsrs", "replay", 2.0), Entry("MinAtar Seaquest", "bsrs", "shaped", 2.0, members=2)],
    ids=str,
)
def test_our_contestants_train(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bsrs.train.LONGEST_EPISODE", 500)
    ours = Ours(entry, threads=1, quick=True)
    ours.run(24 if entry.members == 2 else 4)
    report = ours.report()  # runs two more blocks
    assert ours._loop.step == (36 if entry.members == 2 else 12)
    assert sum(report["shares"].values()) == pytest.approx(1, abs=0.01)
    assert report["shares"]["update"] > 0.3
    assert report["operations"] > 0
    assert report["evaluation_s"] > 0


@pytest.mark.parametrize("case", ["td3", "sac", "MinAtar Breakout"])
def test_sb3s_contestants_have_our_settings_and_network(case: str) -> None:
    entry = Entry(case, "sb3", "plain")
    theirs, ours = Sb3(entry, threads=1, quick=True), Ours(Entry(case, "bsrs", "plain"), threads=1, quick=True)
    theirs.run(3)
    model, config = theirs.model, entry.config()
    for name in ("batch_size", "gamma", "learning_starts", "buffer_size", "gradient_steps"):
        assert getattr(model, name) == getattr(config, name)
    network, networks = (model.q_net, ours._agent.online) if case[0] == "M" else (model.critic, ours._agent.critics)
    assert sum(parameter.numel() for parameter in network.parameters()) == networks.weights.numbers.numel()


def test_operations_of_one_step_by_hand() -> None:
    """In forward passes through one network of TD3: 11.5 plain; replay asks both critics once more, policy twice and
    the actor 1.5 times more. The first layer, where it needs no gradient of its input, makes the small difference."""
    layers = 2.0 * 256 * (4 * 400 + 400 * 300 + 300)
    counted = []
    for variant, eta in (("plain", 0.0), ("policy", 2.0), ("replay", 2.0)):
        ours = Ours(Entry("td3", "bsrs", variant, eta), threads=1, quick=True)
        ours.run(4)
        counted.append(ours.report()["operations"] / layers)
    plain, policy, replay = counted
    assert plain == pytest.approx(11.5, rel=0.02)
    assert replay - plain == pytest.approx(2, rel=0.02)
    assert policy - plain == pytest.approx(5.5, rel=0.02)


def test_a_population_counts_every_members_steps() -> None:
    entry = Entry("td3", "bsrs", "policy", 2.0, members=4)
    report = {"operations": 1e6, "matrix_rate": 1e8, "peak_mb": 7.4, "untouched_mb": 2.0, "evaluation_s": 1.0}
    theirs = Result((20.0, 20.0, 20.0), report)
    row = _row(entry, Contest((entry,), processes=2, threads=1), Result((40.0, 48.0, 44.0), report), theirs, theirs)
    assert (row["steps_per_s"], row["ratio_to_sb3"], row["share_of_matrix_rate"]) == (44.0, 2.2, 0.22)
    assert (row["variant"], row["processes"], row["members"], row["peak_mb"]) == ("policy", 2, 4, 9)
    between = entry.config().eval_every * 4 / 22  # seconds of training, in one of the two processes
    assert row["evaluation_share"] == pytest.approx(1 / (1 + between), abs=1e-3)


def test_every_case_is_run_beside_sb3() -> None:
    for contest in contests(list(CASES), quick=False):
        assert contest.entries[0].agent == "sb3"
        assert len({entry.case for entry in contest.entries}) == 1
    assert {"shaped", "policy"} <= {
        entry.variant for contest in contests(list(CASES), True) for entry in contest.entries
    }


def test_bench_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole benchmark on its small case."""
    document: dict[str, Any] = module.bench(("CartPole",), quick=True, threads=1)
    rows = document["rows"]
    assert [(row["agent"], row["eta"]) for row in rows] == [
        ("sb3", 0.0),
        ("bsrs", 0.0),
        ("bsrs", "auto"),
        ("bsrs", 2.0),
    ]
    assert all(row["steps_per_s"] > 0 and 0 < row["share_of_matrix_rate"] < 1 for row in rows)
    assert rows[0]["ratio_to_sb3"] == rows[3]["ratio_to_eta_2"] == 1
    assert [row["evaluation_share"] is None for row in rows] == [True, False, False, False]
    monkeypatch.setattr(module, "bench", lambda cases, **settings: document)
    main(["bench", "dqn", "--json"])
    assert json.loads(capsys.readouterr().out) == document
    main(["bench", "dqn"])
    assert "CartPole" in capsys.readouterr().out
