"""`python -m benchmarks sb3`: it measures real training, and prints its ratio."""

from __future__ import annotations

import json

import pytest
from stable_baselines3 import DQN
from torch import nn

from benchmarks.__main__ import main
from benchmarks.sb3 import _add_two_forwards, _filled, _median_difference
from bsrs.sb3 import shape
from sb3_twins import sampled


def test_the_ratio_is_that_of_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sb3", "--quick", "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["SB3"] for row in rows] == ["DQN CartPole-v1", "TD3 Pendulum-v1"]
    for row in rows:
        assert row["plain ms"] > 0
        assert row["auto / shaped"] > 0
        assert row["added / two forwards"] == pytest.approx(row["added ms"] / row["two forwards ms"])


def test_the_yardstick_asks_the_network_at_s_and_at_the_next_s_and_no_more() -> None:
    model = _filled(DQN, "CartPole-v1")
    calls = []
    model.q_net.register_forward_hook(lambda module, arguments, output: calls.append(len(output)))
    model.replay_buffer.sample(32)
    assert calls == []
    _add_two_forwards(model)
    model.replay_buffer.sample(32)
    assert calls == [32, 32]


@pytest.mark.parametrize(("size", "passes"), [(32, [64]), (256, [256, 256])])
def test_shaping_evaluates_both_states_once_in_one_pass_if_the_batch_is_small(size: int, passes: list[int]) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": nn.Tanh}, learning_starts=300)
    shape(model.learn(300), eta=2.0)
    calls: list[int] = []
    model.q_net.q_net[1].register_forward_hook(lambda module, arguments, output: calls.append(len(output)))
    sampled(model, size)
    assert calls == passes


def test_differences_are_taken_between_neighbours() -> None:
    assert _median_difference([1.0, 10.0, 2.0], [2.0, 12.0, 2.5]) == 1.0
