"""`python -m benchmarks rllib`: it measures real updates."""

import json

import pytest

pytest.importorskip("ray.rllib")

from benchmarks.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's warnings about itself


def test_it_times_plain_and_shaped_updates(capsys: pytest.CaptureFixture[str]) -> None:
    main(["rllib", "--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["RLlib"] for row in rows] == ["DQN CartPole-v1", "SAC Pendulum-v1"]
    assert all(number > 0 for row in rows for name, number in row.items() if name != "RLlib")
