"""`python -m benchmarks agents`: contestants really train, with the same settings, and are counted right."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

import benchmarks.__main__ as command
from benchmarks import agents, timing
from benchmarks.agents import CASES, Entry, Ours, Peer, bench, entries, missing, operations_per_step, row_of


@pytest.mark.parametrize(
    "entry", [Entry("Pendulum TD3", "bsrs", 2.0), Entry("CartPole", "bsrs", 0.0, members=3)], ids=str
)
def test_our_contestants_learn_from_the_start(entry: Entry) -> None:
    ours = Ours(entry)
    before = ours.agent.updates
    ours.run(6 * entry.members)
    assert ours.agent.updates == before + 6
    assert before > 0


@pytest.mark.parametrize("case", ["Pendulum TD3", "Pendulum SAC", "MinAtar Breakout"])
def test_sb3s_contestants_have_our_settings_and_network(case: str) -> None:
    theirs, ours = Peer(Entry(case, "sb3")), Ours(Entry(case, "bsrs"))
    model, config = theirs.model, Entry(case, "sb3").config()
    for name in ("batch_size", "gamma", "learning_starts", "buffer_size", "gradient_steps"):
        assert getattr(model, name) == getattr(config, name)
    network, own = (model.q_net, "policy") if case[0] == "M" else (model.critic, "critics")
    count = sum(parameter.numel() for parameter in ours.agent.networks[own].parameters())
    assert sum(parameter.numel() for parameter in network.parameters()) == count


def test_sbx_learns_with_our_settings() -> None:
    pytest.importorskip("sbx")
    theirs = Peer(Entry("CartPole", "sbx"))
    assert theirs.model.batch_size == 64
    assert theirs.model._n_updates > 0


def test_operations_of_one_step_by_hand() -> None:
    """In forward passes through one network. Without shaping: both critics at the batch with their gradient (6, less a
    first layer's), the target networks at s' (3), and at every second update the actor and the first critic (6).
    """
    layers = 2.0 * 256 * (4 * 400 + 400 * 300 + 300)
    plain, shaped = (operations_per_step("Pendulum TD3", eta) / layers for eta in (0.0, 2.0))
    assert plain == pytest.approx(11.5, rel=0.08)
    assert shaped - plain == pytest.approx(6, rel=0.05)  # both critics and the actor at s and at s'


def test_a_row_counts_every_members_steps() -> None:
    entry = Entry("Pendulum TD3", "bsrs", 2.0, members=4)
    row = row_of(entry, [40.0, 48.0, 44.0], {"sb3": [20.0, 20.0, 20.0], "rejax": None}, 0.005)
    assert (row["steps_per_s"], row["ratio_to_sb3"], row["ratio_to_rejax"]) == (44.0, 2.2, None)
    assert (row["share_of_matrix_rate"], row["members"]) == (0.22, 4)


def test_every_case_is_run_next_to_sb3() -> None:
    for name in CASES:
        assert entries(name)[0].agent == "sb3"
        assert {entry.eta for entry in entries(name) if entry.agent == "bsrs"} == {0.0, 2.0, "auto"}
    assert set(CASES) == set(command.Name.__args__)


def test_a_peer_that_is_not_there_is_left_out_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agents, "REJAX", Path("/nowhere/python"))
    assert "benchmarks/rejax_env.sh makes it" in missing("rejax")
    assert missing("sb3") == ""


SERVER = """
import json, sys
settings = json.loads(sys.stdin.readline())
assert settings["members"] == 2 and settings["env"] == "CartPole-v1"
for line in sys.stdin:
    print(json.loads(line)[1] / 100, flush=True)
"""


def test_rejax_is_timed_by_its_own_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server in its place: the seconds that it tells are those that count."""
    (tmp_path / "rejax_server.py").write_text(SERVER)
    monkeypatch.setattr(agents, "REJAX", sys.executable)
    monkeypatch.setattr(agents, "__file__", str(tmp_path / "agents.py"))
    assert agents.Rejax(Entry("CartPole", "rejax", members=2)).run(400) == 2.0  # 200 steps of each member


class Counting:
    """A contestant that says itself how long it took."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def run(self, steps: int) -> float:
        return self._seconds * steps


def test_a_race_gives_ratios() -> None:
    builds = {"slow": partial(Counting, 0.02), "fast": partial(Counting, 0.01)}
    results = timing.race(builds, steps={"slow": 10, "fast": 20}, rounds=3)
    assert results["slow"] == [50.0, 50.0, 50.0]
    assert timing.median_ratio(results["fast"], results["slow"]) == 2


def test_rows_are_printed_at_once_or_as_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [{"case": "CartPole", "steps_per_s": 1.5, "ratio": None}, {"case": "Pong", "steps_per_s": 2.0, "ratio": 1.0}]
    printed = []

    def two_rows(*_: object, **__: object):  # type: ignore[no-untyped-def]
        for row in made:
            yield row
            printed.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr(agents, "bench", two_rows)
    with pytest.raises(SystemExit, match="130"):
        command.main(["agents", "--json"])
    assert json.loads(capsys.readouterr().out) == {"rows": made}
    printed.clear()
    with pytest.raises(SystemExit, match="130"):
        command.main(["agents"])
    assert printed[0].split() == ["case", "steps_per_s", "ratio", "CartPole", "1.5", "-"]
    assert printed[1].split() == ["Pong", "2", "1"]


@pytest.mark.timeout(280)
def test_the_whole_benchmark_on_its_small_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "entries", lambda name: [Entry(name, "sb3"), Entry(name, "bsrs", 2.0)])
    rows = list(bench(("CartPole",), quick=True))
    assert [(row["agent"], row["eta"]) for row in rows] == [("sb3", 0.0), ("bsrs", 2.0)]
    assert all(row["steps_per_s"] > 0 and 0 < row["share_of_matrix_rate"] < 1 for row in rows)
    assert rows[0]["ratio_to_sb3"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("agent", "unknown command 'agent': did you mean agents?"),
        ("agents --quik", "unknown flag --quik: did you mean --quick?"),
        ("agents --case Pung", "unknown --case 'Pung': did you mean Pong?"),
        ("tabular --mdp nowhere", "unknown table 'nowhere'"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(words.split())
    told = capsys.readouterr()
    assert (stop.value.code, told.out) == (2, "")
    assert message in told.err
