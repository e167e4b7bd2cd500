"""The recommendation: in words, on noise, and with a true gain."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from bsrs.cli import main
from bsrs.rng import stream
from bsrs.stats.recommend import Recommendation, recommend
from bsrs.stats.records import RunRecord, Series, Task, read_runs, series_of
from run_folders import config, write_run, write_sweep

ETAS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)


@cache
def _settings(seeds: int) -> list[Series]:
    """Every eta, with no scores yet."""
    found = []
    for eta in ETAS:
        configs = [config("CartPole-v1", eta, seed) for seed in range(seeds)]
        runs = tuple(RunRecord(Path(f"{eta}-{c.seed}"), c, "finished", "", None, ()) for c in configs)
        found.append(
            Series(runs, Task(Path("sweep"), "dqn", "CartPole-v1"), "", np.array([500, 1000]), np.zeros((seeds, 2)))
        )
    return found


def _series(scores: np.ndarray) -> list[Series]:
    """scores: (etas, seeds), the same at each of two evaluations."""
    return [
        replace(each, curves=np.repeat(of_eta[:, None], 2, axis=1))
        for each, of_eta in zip(_settings(scores.shape[1]), scores, strict=False)
    ]


def _recommended(scores: np.ndarray) -> Recommendation:
    (found,) = recommend(_series(scores))
    return found


def test_on_noise_it_seldom_names_an_eta() -> None:
    draws = 100
    named = sum(_recommended(noise).helps for noise in stream(0, "noise").normal(size=(draws, 7, 10)))
    assert scipy.stats.binomtest(named, draws, 0.05, alternative="greater").pvalue > 0.01
    assert named / draws <= 0.05


def test_a_gain_of_a_standard_deviation_is_found_with_20_seeds() -> None:
    """Each eta gains what it does in a typical sweep, one standard deviation of the seeds' differences at the best."""
    truth = np.sqrt(2) * np.array([0.0, 0.4, 0.8, 1.0, 0.8, 0.4, -0.5])
    draws = 40
    found = [_recommended(noise + truth[:, None]) for noise in stream(1, "noise").normal(size=(draws, 7, 20))]
    near_best = [each.helps and truth[ETAS.index(float(each.eta))] >= 0.8 * truth.max() for each in found]
    assert np.mean(near_best) >= 0.8


def test_nor_does_it_need_seeds_that_share_their_luck() -> None:
    """One standard deviation of the scores: where seeds share nothing, less than one of their differences."""
    truth = np.array([0.0, 0.4, 0.8, 1.0, 0.8, 0.4, 0.0])
    draws = 60
    found = [_recommended(noise + truth[:, None]) for noise in stream(2, "noise").normal(size=(draws, 7, 20))]
    near_best = sum(each.helps and truth[ETAS.index(float(each.eta))] >= 0.8 for each in found)
    assert scipy.stats.binomtest(near_best, draws, 0.8, alternative="less").pvalue > 0.05


def test_the_sentence_says_what_to_do_and_how_sure_that_is() -> None:
    noise = stream(0, "sentence").normal(size=(3, 10))
    clear = _recommended(noise + np.array([[0.0], [0.0], [3.0]]))
    assert (clear.eta, clear.answer) == (1.0, "use 1")
    assert clear.sentence.startswith("use eta = 1: +")
    assert clear.sentence.endswith(" over eta = 0 on held-out seeds in the mean score over training, 10 seeds")
    unclear = _recommended(noise)
    assert unclear.eta == 0.0
    assert unclear.sentence.startswith("no evidence that any eta helps here: keep 0 (eta = ")
    assert unclear.answer == f"keep 0; {unclear.more_seeds} more seeds would show a gain of 10 %"
    assert unclear.sentence.endswith(unclear.answer.removeprefix("keep 0"))
    few = _recommended(noise[:, :5] + np.array([[0.0], [0.0], [9.0]]))
    assert few.answer == "too few seeds"
    assert few.sentence.startswith("too few seeds to tell whether any eta helps here (5 of at least 6): keep 0; ")
    worse = _recommended(noise + np.array([[0.0], [-6.0], [-9.0]]))
    assert worse.answer == "keep 0: every other is worse"
    assert worse.sentence.startswith("keep eta = 0: every other is worse, 0.5 least clearly: -")


def test_where_eta_0_gains_nothing_no_number_of_seeds_is_named() -> None:
    """A gain is a share of what eta = 0 gained."""
    found = _recommended(np.array([[0.0], [1.0], [1.0]]) * stream(0, "flat").binomial(1, 0.2, size=(3, 10)))
    assert found.more_seeds is None
    assert found.answer == "keep 0; how many seeds a verdict takes cannot be estimated"


def test_more_seeds_are_asked_for_where_scores_are_noisier() -> None:
    noise = 100 + stream(0, "power").normal(size=(3, 10))
    precise, noisy = (_recommended(100 + scale * (noise - 100)).more_seeds for scale in (1, 5))
    few = _series(noise)  # the worst evaluation is the floor, so the scale is the noise's own: 10 % of it is little
    assert precise == noisy > 100
    floor = RunRecord(Path("bad"), config("CartPole-v1", 7.0, 0), "diverged", "", None, ())
    worst = Series((floor,), few[0].task, "", few[0].steps, np.zeros((1, 2)))
    (wide,) = recommend([*few, worst])  # from 0 to 100: 10 % is ten times the noise; the single run is left out
    assert wide.more_seeds == 0
    assert wide.sentence.endswith("a gain of 10 % would probably have shown")


def test_without_eta_0_or_with_one_seed_nothing_is_claimed(tmp_path: Path) -> None:
    write_sweep(tmp_path / "a", ["CartPole-v1"], [1.0, 2.0], seeds=6)
    (without,) = recommend(series_of(read_runs(tmp_path / "a")[0]))
    assert "eta = 0 was not run" in without.sentence
    write_sweep(tmp_path / "b", ["CartPole-v1"], [0.0, 2.0], seeds=1)
    (single,) = recommend(series_of(read_runs(tmp_path / "b")[0]))
    assert (single.eta, single.gain) == (0.0, None)
    assert single.sentence.startswith("too few seeds to tell whether any eta helps here (1 of at least 6 ")


def test_the_command_line_says_it_in_words_and_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sweep(tmp_path, ["CartPole-v1"], [0.0, 0.5, 2.0], seeds=8)
    main(["recommend", str(tmp_path)])
    assert capsys.readouterr().out.startswith("CartPole-v1 · dqn: use eta = ")
    main(["recommend", str(tmp_path), "--json"])
    (found,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert found["gain"]["verdict"] == "holds"
    assert found["eta"] == found["best"] != 0
    assert found["answer"] == f"use {found['eta']:g}"
    write_run(tmp_path / "plain", config("CartPole-v1", 0.0, 0), [1.0])
    with pytest.raises(SystemExit, match="2"):
        main(["recommend", str(tmp_path / "plain")])
    assert "expected a sweep over eta" in capsys.readouterr().err
