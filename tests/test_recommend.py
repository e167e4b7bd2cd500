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
    assert scipy.stats.binomtest(near_best, draws, 0.75, alternative="less").pvalue > 0.05


def test_the_sentence_says_what_to_do_and_how_sure_that_is() -> None:
    noise = 200 + 10 * stream(0, "sentence").normal(size=(3, 10))
    clear = _recommended(noise + np.array([[0.0], [0.0], [30.0]]))
    assert (clear.eta, clear.answer) == (1.0, "use 1; 0 of 10 failed (at most 26%)")
    assert clear.sentence.startswith("use eta = 1. Typical gain over eta = 0: over training +")
    assert " on 10 held-out seeds, at the end +" in clear.sentence
    assert clear.sentence.endswith(". 0 of 10 failed (at most 26%); at eta = 0, 0 of 10 failed (at most 26%).")
    unclear = _recommended(noise)
    assert unclear.eta == 0.0
    assert unclear.answer == "keep 0; a gain of 10% would probably have shown"
    assert unclear.sentence.startswith(
        f"keep 0: no evidence that any eta helps here{unclear.answer.removeprefix('keep 0')}. The best was eta = "
    )
    few = _recommended(noise[:, :5] + np.array([[0.0], [0.0], [90.0]]))
    assert few.answer == "too few seeds"
    assert few.sentence.startswith("too few seeds to tell whether any eta helps here (5 of at least 6): keep 0; ")
    worse = _recommended(noise + np.array([[0.0], [-60.0], [-90.0]]))
    assert worse.answer == "keep 0: every other eta is worse"
    assert worse.sentence.startswith("keep 0: every other eta is worse, 0.5 least clearly. Typical gain ")


def test_a_gain_over_training_that_is_lost_at_the_end_is_part_of_the_answer() -> None:
    base, shaped = _series(200 + stream(0, "end").normal(size=(2, 10)))
    rising = replace(base, curves=base.curves + np.array([0.0, 40.0]))
    falling = replace(shaped, curves=shaped.curves + np.array([90.0, 0.0]))
    (by_training,), (by_final,) = recommend([rising, falling]), recommend([rising, falling], by="final")
    assert by_training.answer == "use 0.5, but it is worse at the end; 0 of 10 failed (at most 26%)"
    assert by_training.other is not None
    assert by_training.other.verdict == "does not hold"
    assert (by_final.eta, by_final.by, by_final.answer) == (0.0, "final", "keep 0: every other eta is worse")


def test_more_failures_than_the_baselines_are_part_of_the_answer() -> None:
    """CartPole: a run below 71 has failed."""
    scores = 100 + 5 * stream(0, "risk").normal(size=(2, 20)) + np.array([[0.0], [200.0]])
    scores[1, :2] = 70.0
    found = _recommended(scores)
    assert found.answer == "use 0.5, at a risk of failed runs; 2 of 20 failed (at most 28%)"
    assert ". 2 of 20 failed (at most 28%); at eta = 0, 0 of 20 failed (at most 14%)" in found.sentence
    scores[0, :2] = 70.0  # the baseline fails as often
    assert _recommended(scores).answer == "use 0.5; 2 of 20 failed (at most 28%)"


def test_without_a_reference_the_sentence_says_what_failures_are_judged_by() -> None:
    task = Task(Path("sweep"), "dqn", "Unknown-v0")
    series = [replace(each, task=task) for each in _series(np.ones((2, 8)))]
    (flat,) = recommend(series)
    assert flat.sentence.endswith(". No reference score for Unknown-v0: only diverged runs count as failed.")
    assert flat.more_seeds is None
    assert flat.answer == "keep 0; how many seeds a verdict takes cannot be estimated"
    (rising,) = recommend([replace(each, curves=each.curves + np.array([0.0, 1.0])) for each in series])
    assert rising.sentence.endswith("failures are judged by the baseline's own first and last evaluation.")


def test_more_seeds_are_asked_for_where_scores_are_noisier() -> None:
    noise = stream(0, "power").normal(size=(3, 10))
    precise, noisy = (_recommended(200 + scale * noise).more_seeds for scale in (1, 100))
    assert precise == 0
    assert noisy is not None
    assert noisy > 20


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
    assert found["answer"] == f"use {found['eta']:g}; 0 of 8 failed (at most 31%)"
    assert (found["by"], found["failures"]["failed"], found["failures"]["runs"]) == ("training", 0, 8)
    main(["recommend", str(tmp_path), "--by", "final", "--json"])
    (other,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert (other["by"], other["eta"]) == ("final", 0.0)  # all curves reach 100
    write_run(tmp_path / "plain", config("CartPole-v1", 0.0, 0), [1.0])
    with pytest.raises(SystemExit, match="2"):
        main(["recommend", str(tmp_path / "plain")])
    assert "expected a sweep over eta" in capsys.readouterr().err
