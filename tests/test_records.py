"""From run folders to series and the table of statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsrs.errors import BadInput
from bsrs.report.plots import task_names
from bsrs.stats.records import read_run, read_runs, series_of
from bsrs.stats.summary import baseline_of, floor_of, games_together, summary
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
    assert sorted(run.outcome for run in runs) == ["failed", "finished", "unfinished"]
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
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), [0.0, 5.0, 10.0 + seed])
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [9.0, 18.0, 20.0 + seed])
    base, shaped = summary(series_of(read_runs(tmp_path)[0]))
    assert base.improvement is None
    assert base.advantage is None
    assert base.steps_to_level == 3000
    assert base.final.estimate == 11.5
    assert shaped.steps_to_level == 2000  # 90 % of the way from 0 to 11.5
    assert shaped.improvement is not None
    assert (shaped.improvement.estimate, shaped.improvement.high) == (1.0, 1.0)
    assert shaped.improvement.low == pytest.approx(
        0.025 ** (1 / 4)
    )  # four of four: at least that, by the exact interval
    assert shaped.advantage is not None
    assert shaped.advantage.estimate == pytest.approx(10 / 11.5)


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
    assert floor_of(pong.task, series) == -20.7


def test_minatar_games_are_relative_to_plain(tmp_path: Path) -> None:
    envs = ["MinAtar/Breakout-v0", "MinAtar/Freeway-v0"]
    write_sweep(tmp_path, envs, [0.0, 2.0, "auto"], seeds=3)
    write_sweep(tmp_path, envs[:1], ["linear:2:0:500"], seeds=3)  # a schedule that not all games have
    write_sweep(tmp_path, envs, ["linear:1:0:500"], seeds=2)  # and one that takes no seeds from the others
    series = series_of(read_runs(tmp_path)[0])
    games = games_together(series)
    assert games is not None
    assert (games.kind, games.games, games.etas) == ("MinAtar", ("Breakout", "Freeway"), (0.0, 2.0, "auto"))
    assert games.seeds == (0, 1, 2)
    plain, shaped = (next(s for s in series if s.env == envs[1] and s.eta == eta) for eta in (0.0, 2.0))
    assert games.final[0.0].mean(axis=0) == pytest.approx([1, 1])
    assert games.final[2.0][:, 1] == pytest.approx(shaped.final / plain.final.mean())
    assert games_together([each for each in series if each.eta != 0.0]) is None


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
