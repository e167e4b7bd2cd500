"""Statistics: by hand on small arrays, by properties on any, and coverage by simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bsrs import stats
from bsrs.errors import BadInput
from bsrs.rng import stream

SHAPES = st.tuples(st.integers(2, 5), st.integers(1, 4))
NUMBERS = st.floats(-100, 100).map(lambda x: round(x, 3))
SCORES = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=NUMBERS))
PAIRS = SHAPES.flatmap(lambda shape: st.tuples(*[arrays(np.float64, shape, elements=NUMBERS)] * 2))

AGGREGATES = [stats.mean, stats.median, stats.iqm, stats.optimality_gap]

# runs x tasks; the means over runs are 2, 10, 0.25
HAND = np.array([[1.0, 8.0, 0.0], [3.0, 12.0, 0.5]])


def test_aggregates_by_hand() -> None:
    assert stats.mean(HAND) == pytest.approx((2 + 10 + 0.25) / 3)
    assert stats.median(HAND) == 2.0
    assert stats.iqm(HAND) == pytest.approx((0.5 + 1 + 3 + 8) / 4)  # six numbers: one cut at either end
    assert stats.optimality_gap(HAND) == pytest.approx(1 - (1 + 1 + 0 + 1 + 1 + 0.5) / 6)


def test_interquartile_mean_ignores_the_outer_quarters() -> None:
    scores = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert stats.iqm(scores) == 2.5
    scores[0], scores[3] = -1e9, 1e9
    assert stats.iqm(scores) == 2.5


def test_performance_profile_by_hand() -> None:
    profile = stats.performance_profile(HAND, np.array([-1.0, 0.0, 1.0, 8.0, 12.0]))
    assert profile.tolist() == pytest.approx([1, 5 / 6, 3 / 6, 1 / 6, 0])  # strictly above


@pytest.mark.parametrize("aggregate", AGGREGATES)
@given(scores=SCORES)
def test_aggregates_lie_within_the_scores_and_do_not_mind_the_order(aggregate: Any, scores: np.ndarray) -> None:
    rng = stream(0, "order")
    shuffled = rng.permutation(scores, axis=0)[:, rng.permutation(scores.shape[1])]
    assert aggregate(shuffled) == pytest.approx(aggregate(scores), abs=1e-9)
    level = aggregate(scores) if aggregate is not stats.optimality_gap else 1 - aggregate(scores)
    assert scores.min() - 1e-9 <= level or aggregate is stats.optimality_gap
    assert level <= scores.max() + 1e-9


@pytest.mark.parametrize("aggregate", [stats.mean, stats.median, stats.iqm])
@given(scores=SCORES, scale=st.floats(0.1, 10), shift=NUMBERS)
def test_aggregates_move_with_the_scale(aggregate: Any, scores: np.ndarray, scale: float, shift: float) -> None:
    assert aggregate(scale * scores + shift) == pytest.approx(scale * aggregate(scores) + shift, abs=1e-6)


@given(scores=SCORES)
def test_leading_axes_are_independent(scores: np.ndarray) -> None:
    stacked = np.stack([scores, 2 * scores])
    for aggregate in AGGREGATES:
        assert aggregate(stacked).tolist() == pytest.approx([float(aggregate(scores)), float(aggregate(2 * scores))])
    thresholds = np.array([-1.0, 0.5])
    assert (stats.performance_profile(stacked, thresholds)[0] == stats.performance_profile(scores, thresholds)).all()


# ---- the bootstrap


@pytest.mark.parametrize("aggregate", AGGREGATES)
@given(scores=SCORES)
def test_the_interval_holds_the_estimate(aggregate: Any, scores: np.ndarray) -> None:
    interval = stats.bootstrap(aggregate, scores, seed=0, draws=50)
    assert interval.low <= interval.estimate <= interval.high
    assert interval.estimate == aggregate(scores)


def test_one_seed_repeats_and_two_differ() -> None:
    scores = stream(3, "scores").normal(size=(6, 3))
    same, again, other = (stats.bootstrap(stats.iqm, scores, seed=seed) for seed in (1, 1, 2))
    assert (same.low, same.high) == (again.low, again.high)
    assert (same.low, same.high) != (other.low, other.high)


def test_runs_are_drawn_within_their_task() -> None:
    """Tasks far apart, runs within a task equal: nothing can vary unless runs cross over to another task."""
    scores = np.tile([0.0, 100.0, 1000.0], (5, 1))
    interval = stats.bootstrap(stats.mean, scores, seed=0)
    assert interval.low == interval.high == interval.estimate


def test_interval_agrees_with_scipy() -> None:
    """SciPy draws each of several samples by itself: with a task for each sample that is the same bootstrap."""
    scores = stream(0, "scores").normal(loc=[0.0, 5.0, 9.0], size=(8, 3))

    def iqm_of_tasks(*tasks: np.ndarray, axis: int) -> np.ndarray:
        return scipy.stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)

    reference = scipy.stats.bootstrap(
        tuple(scores.T), iqm_of_tasks, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    ours = stats.bootstrap(stats.iqm, scores, seed=0, draws=20_000)
    assert [ours.low, ours.high] == pytest.approx([reference.low, reference.high], abs=0.03)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = 0
    for trial in range(300):
        scores = stream(trial, "coverage").normal(loc=[0.0, 1.0, 3.0], scale=[1.0, 0.5, 2.0], size=(20, 3))
        interval = stats.bootstrap(stats.mean, scores, seed=trial, draws=400)
        covered += bool(interval.low <= 4 / 3 <= interval.high)
    assert 0.90 <= covered / 300 <= 0.98


def test_curves_are_resampled_run_by_run_whatever_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = stream(0, "curves").normal(size=(5, 1, 4, 2))  # steps, 1, runs, tasks
    whole = stats.bootstrap(stats.median, curves, seed=0, draws=100)
    assert whole.low.shape == (5, 1)
    monkeypatch.setattr("bsrs.stats.resampling.NUMBERS_AT_ONCE", 1)
    one_by_one = stats.bootstrap(stats.median, curves, seed=0, draws=100)
    assert (whole.low == one_by_one.low).all()


def test_one_run_says_nothing_about_its_spread() -> None:
    interval = stats.bootstrap(stats.mean, np.array([[3.0]]), seed=0)
    assert (interval.low, interval.estimate, interval.high) == (-np.inf, 3.0, np.inf)


def test_pairing_removes_what_the_seeds_share() -> None:
    rng = stream(0, "paired")
    luck = rng.normal(scale=10, size=(12, 1))
    x, y = luck + 1 + rng.normal(scale=0.1, size=(12, 1)), luck

    def gain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.mean(x) - stats.mean(y)

    paired = stats.bootstrap(gain, x, y, seed=0, paired=True)
    free = stats.bootstrap(gain, x, y, seed=0)
    assert paired.estimate == free.estimate
    assert 0.9 < paired.low < paired.high < 1.1
    assert free.high - free.low > 5


@pytest.mark.parametrize(
    ("samples", "settings", "words"),
    [
        ([np.array([1.0, 2.0])], {}, "shape"),
        ([np.empty((0, 3))], {}, "shape"),
        ([np.array([[np.nan], [1.0]])], {}, "not finite"),
        ([np.zeros((2, 1)), np.zeros((3, 1))], {"paired": True}, "paired"),
        ([np.zeros((2, 1))], {"confidence": 95}, "confidence"),
    ],
)
def test_bad_scores_are_told(samples: list[np.ndarray], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        stats.bootstrap(lambda *arrays: stats.mean(arrays[0]), *samples, seed=0, **settings)


# ---- comparisons


def test_probability_of_improvement_by_hand() -> None:
    x, y = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[0.0, 5.0], [2.0, 6.0], [3.0, 5.0]])
    # task 1: 1 beats 0; 2 beats 0 and ties 2 -> 2.5 of 6; task 2: four ties -> 2 of 6
    assert stats.probability_of_improvement(x, y) == pytest.approx((2.5 / 6 + 2 / 6) / 2)
    assert stats.probability_of_improvement(x, y[:2], paired=True) == pytest.approx((1 + 0.5 + 0.5 + 0) / 4)


@given(pair=PAIRS)
def test_probability_of_improvement_is_mann_whitney_and_adds_up_to_one(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pair
    there, back = stats.probability_of_improvement(x, y), stats.probability_of_improvement(y, x)
    assert there + back == pytest.approx(1)
    paired = [stats.probability_of_improvement(*both, paired=True) for both in ((x, y), (y, x))]
    assert sum(paired) == pytest.approx(1)
    u = scipy.stats.mannwhitneyu(x, y, axis=0, method="asymptotic").statistic
    assert there == pytest.approx((u / (len(x) * len(y))).mean())


def test_relative_advantage_is_right_for_negative_scores() -> None:
    assert stats.relative_advantage(-10.0, -15.0, -20.7) == pytest.approx(5 / 5.7)
    assert stats.relative_advantage(-15.0, -10.0, -20.7) == pytest.approx(-5 / 10.7)
    assert stats.relative_advantage(30.0, 20.0, 0.0) == 0.5  # no floor below: the plain share
    assert stats.relative_advantage(-10.0, -25.0, -20.7) > 0  # a baseline below random play
    assert stats.relative_advantage(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1.0).tolist() == [0, np.inf]


@given(score=NUMBERS, baseline=NUMBERS, floor=NUMBERS)
def test_relative_advantage_has_the_sign_of_the_gain(score: float, baseline: float, floor: float) -> None:
    assert np.sign(stats.relative_advantage(score, baseline, floor)) == np.sign(score - baseline)


def test_honest_best_by_hand() -> None:
    best = stats.honest_best(np.array([[5.0, 5.0, 5.0], [9.0, 6.0, 3.0]]))
    # the others' means of candidate 1 are 4.5, 6, 7.5 against 5
    assert best.chosen.tolist() == [0, 1, 1]
    assert best.scores.tolist() == [5.0, 6.0, 3.0]
    assert best.naive == 1
    assert best.optimism == pytest.approx(6 - 14 / 3)


def test_honest_best_is_not_flattered_by_noise() -> None:
    """Seven candidates that are all the same: the naive best promises a gain, the honest one does not."""
    naive, honest = [], []
    for trial in range(400):
        best = stats.honest_best(stream(trial, "noise").normal(size=(7, 5)))
        naive.append(best.naive_scores.mean())
        honest.append(best.scores.mean())
    assert np.mean(naive) > 0.4
    assert abs(np.mean(honest)) < 0.08


def test_honest_best_needs_a_seed_to_choose_and_one_to_judge() -> None:
    with pytest.raises(BadInput, match="2 seeds"):
        stats.honest_best(np.ones((3, 1)))


# ---- curves


def test_curves_by_hand() -> None:
    steps, values = np.array([10, 20, 40]), np.array([[0.0, 2.0, 4.0], [1.0, 1.0, 1.0]])
    assert stats.area_under_curve(steps, values).tolist() == pytest.approx([(10 + 60) / 30, 1])
    assert stats.steps_to_threshold(steps, values, 1.5).tolist() == [20, np.inf]
    assert stats.final_score(steps, values).tolist() == [4, 1]
    assert stats.final_score(steps, values, share=0.5).tolist() == [3, 1]
    assert stats.area_under_curve(steps[:1], values[:, :1]).tolist() == [0, 1]


@pytest.mark.parametrize(("steps", "values"), [([1, 2], [1.0]), ([], []), ([2, 1], [0.0, 0.0])])
def test_bad_curves_are_told(steps: list[int], values: list[float]) -> None:
    with pytest.raises(BadInput, match="curve"):
        stats.area_under_curve(np.array(steps), np.array(values))


# ---- Atari


def test_human_normalised_by_hand() -> None:
    assert stats.human_normalised([-20.7, 14.6, -3.05], "Pong").tolist() == pytest.approx([0, 1, 0.5])
    assert stats.human_normalised(-17.5, "DoubleDunk") == pytest.approx(0.5)


def test_all_57_games_have_both_scores() -> None:
    from bsrs.stats.atari import reference_scores

    assert len(reference_scores()) == 57
    assert all(human > random for random, human in reference_scores().values())


def test_a_game_without_a_human_score_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"AirRaid"):
        stats.human_normalised(100.0, "AirRaid")


@pytest.mark.parametrize(
    ("env", "game"),
    [
        ("PongNoFrameskip-v4", "Pong"),
        ("ALE/MsPacman-v5", "MsPacman"),
        ("Breakout-v4", "Breakout"),
        ("AirRaidNoFrameskip-v4", "AirRaid"),
        ("CartPole-v1", None),
        ("MinAtar/Breakout-v1", None),
    ],
)
def test_game_of_an_env(env: str, game: str | None) -> None:
    assert stats.game_name(env) == game
