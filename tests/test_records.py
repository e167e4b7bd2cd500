"""From run folders to series and the table of statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsrs import stats
from bsrs.errors import BadInput
from bsrs.report.plots import task_names
from bsrs.stats.records import read_run, read_runs, series_of
from bsrs.stats.summary import OWN_RANGE, baseline_of, games_together, summary, task_reference
from run_folders import config, write_run, write_sweep


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, config("CartPole-v1", 0.5, 3), [10.0, 20.0]))
    assert (run.outcome, run.step, run.score, run.config.seed) == ("finished", 2000, 20.0, 3)
    steps, values = run.trace("value")
    assert (steps.tolist(), values.tolist()) == ([1000, 2000], [1.0, 2.0])


def test_series_group_by_config_and_sort_by_eta(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["CartPole-v1", "Acrobot-v1"], [2.0, 0.0], seeds=3)
    write_sweep(tmp_path, ["CartPole-v1"], [2.0], seeds=2, control="rescaled")
    runs, unreadable = read_runs(tmp_path)
    series = series_of(runs)
    assert not unreadable
    assert [(s.env, s.eta, s.variant, s.seeds) for s in series] == [
        ("Acrobot-v1", 0.0, "", (0, 1, 2)),
        ("Acrobot-v1", 2.0, "", (0, 1, 2)),
        ("CartPole-v1", 0.0, "control=none", (0, 1, 2)),
        ("CartPole-v1", 2.0, "control=none", (0, 1, 2)),
        ("CartPole-v1", 2.0, "control=rescaled", (0, 1)),
    ]
    assert series[0].curves.shape == (3, 10)
    assert baseline_of(series[4], series) is series[2]


def test_sweeps_are_kept_apart(tmp_path: Path) -> None:
    write_sweep(tmp_path / "one", ["CartPole-v1"], [0.0, 1.0], seeds=2)
    write_sweep(tmp_path / "other", ["CartPole-v1"], [1.0], seeds=2, learning_rate=0.5)
    series = series_of(read_runs(tmp_path)[0])
    assert [(s.task.sweep.name, s.variant) for s in series] == [("one", ""), ("one", ""), ("other", "")]
    assert baseline_of(series[2], series) is None
    assert np.isnan(summary(series)[2].steps_to_level)
    assert list(task_names(summary(series)).values()) == ["CartPole-v1 · dqn · one", "CartPole-v1 · dqn · other"]


def test_a_diverged_run_counts_as_badly_as_any(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [5.0, 50.0, 60.0])
    write_run(tmp_path, config("CartPole-v1", 9.0, 0), [40.0, 41.0, 42.0])
    write_run(tmp_path, config("CartPole-v1", 9.0, 1), [70.0], "diverged", "mean value is 1e9")
    write_run(tmp_path, config("CartPole-v1", 20.0, 1), [], "diverged", "mean value is nan")
    _, nine, twenty = series_of(read_runs(tmp_path)[0])
    assert nine.curves.tolist() == [[40, 41, 42], [70, 5, 5]]
    assert nine.diverged == 1
    assert twenty.curves.tolist() == [[5.0]]


def test_failed_and_unfinished_runs_do_not_count_but_are_read(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0, 2.0])
    write_run(tmp_path, config("CartPole-v1", 0.0, 1), [9.0], "failed", "OSError: ...")
    write_run(tmp_path, config("CartPole-v1", 0.0, 2), [9.0], None)
    runs, _ = read_runs(tmp_path)
    assert sorted(run.outcome for run in runs) == ["failed", "finished", "interrupted"]
    assert series_of(runs)[0].seeds == (0,)


def test_a_damaged_folder_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write_run(tmp_path, config("CartPole-v1", 0.0, 0), [1.0])
    broken = write_run(tmp_path, config("CartPole-v1", 0.0, 1), [1.0])
    (broken / "config.json").write_text("{")
    runs, unreadable = read_runs(tmp_path)
    assert len(runs) == 1
    assert list(unreadable) == [broken]
    assert "config.json" in unreadable[broken]


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        read_runs(tmp_path / "nowhere")


def test_summary_compares_with_eta_zero(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), [24.0, 150.0, 300.0 + seed])
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [200.0, 290.0, 400.0 + seed])
    base, shaped = summary(series_of(read_runs(tmp_path)[0]))
    assert base.improvement is None
    assert base.advantage is None
    assert base.steps_to_level == 3000
    assert base.final.estimate == 301.5
    assert shaped.steps_to_level == 2000  # 90% of the way from a random policy's 23.7 to 301.5
    assert shaped.improvement is not None
    assert (shaped.improvement.estimate, shaped.improvement.high) == (1.0, 1.0)
    assert shaped.improvement.low == pytest.approx(
        0.025 ** (1 / 4)
    )  # four of four: at least that, by the exact interval
    assert shaped.advantage is not None
    assert shaped.advantage.estimate == pytest.approx(100 / (301.5 - 23.7))
    assert (base.gain, base.final_gain) == (None, None)
    assert shaped.gain is not None
    assert shaped.final_gain is not None
    assert (shaped.final_gain.mean, shaped.final_gain.ahead, shaped.final_gain.n) == (pytest.approx(100), 4, 4)
    assert shaped.gain.mean == pytest.approx((176 / 2 + 140 + 100 / 2) / 2)  # trapezoids


def test_failures_are_counted_from_the_scores(tmp_path: Path) -> None:
    """CartPole: a random policy has 23.7, the reference is 500, so a run below 71.3 has failed."""
    for seed, (score, outcome) in enumerate([(70.0, "finished"), (72.0, "finished"), (500.0, "diverged")]):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), [score], outcome)
    (row,) = summary(series_of(read_runs(tmp_path)[0]))
    assert (row.failures.failed, row.failures.runs) == (2, 3)
    assert str(row.failures) == "2 of 3 failed (at most 98%)"


def test_without_a_reference_the_baselines_own_range_is_the_scale(tmp_path: Path) -> None:
    for eta, last in ((0.0, 20.0), (1.0, 1000.0)):
        write_run(tmp_path, config("Other-v0", eta, 0), [10.0, last])
    base, shaped = summary(series_of(read_runs(tmp_path)[0]))
    assert base.reference == shaped.reference == stats.Reference(10.0, 20.0, OWN_RANGE)
    assert shaped.failures.failed == 0


def test_atari_games_together(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"], [0.0, 2.0], seeds=3)
    write_sweep(tmp_path, ["AlienNoFrameskip-v4"], [0.0], seeds=3)  # eta = 2 not run yet
    series = series_of(read_runs(tmp_path)[0])
    games = games_together(series)
    assert games is not None
    assert (games.games, games.etas, games.seeds) == (("Breakout", "Pong"), (0.0, 2.0), (0, 1, 2))
    assert games.curves[2.0].shape == (10, 3, 2)
    pong = next(s for s in series if s.env.startswith("Pong") and s.eta == 2.0)
    assert games.curves[2.0][:, 1, 1] == pytest.approx((pong.curves[1] + 20.7) / 35.3)
    assert games.final[2.0][1, 1] == pytest.approx((pong.final[1] + 20.7) / 35.3)
    assert task_reference(pong.task, series) == stats.reference_of("PongNoFrameskip-v4")


def test_minatar_games_are_relative_to_their_references(tmp_path: Path) -> None:
    envs = ["MinAtar/Breakout-v0", "MinAtar/Freeway-v0"]
    write_sweep(tmp_path, envs, [0.0, 2.0, "auto"], seeds=3)
    write_sweep(tmp_path, envs[:1], ["linear:2:0:500"], seeds=3)  # a schedule that not all games have
    write_sweep(tmp_path, envs, ["linear:1:0:500"], seeds=2)  # and one that takes no seeds from the others
    series = series_of(read_runs(tmp_path)[0])
    games = games_together(series)
    assert games is not None
    assert (games.kind, games.games, games.etas) == ("MinAtar", ("Breakout", "Freeway"), (0.0, 2.0, "auto"))
    assert games.seeds == (0, 1, 2)
    shaped = next(s for s in series if s.env == envs[1] and s.eta == 2.0)
    assert games.final[2.0][:, 1] == pytest.approx((shaped.final - 0.16) / (54.6 - 0.16))


def test_games_without_a_human_score_or_run_twice_are_told(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", ["PongNoFrameskip-v4", "AirRaidNoFrameskip-v4"], [0.0], seeds=1)
    with pytest.raises(BadInput, match="AirRaid"):
        games_together(series_of(read_runs(tmp_path / "a")[0]))
    write_sweep(tmp_path / "b", ["PongNoFrameskip-v4", "AlienNoFrameskip-v4"], [0.0], seeds=1)
    write_sweep(tmp_path / "b", ["PongNoFrameskip-v4"], [0.0], seeds=1, terminal="keep")
    with pytest.raises(BadInput, match="several variants"):
        games_together(series_of(read_runs(tmp_path / "b")[0]))


def test_games_need_common_seeds(tmp_path: Path) -> None:
    for env, seed in (("PongNoFrameskip-v4", 0), ("AlienNoFrameskip-v4", 1)):
        write_run(tmp_path, config(env, 0.0, seed), np.arange(10.0).tolist())
    assert games_together(series_of(read_runs(tmp_path)[0])) is None
