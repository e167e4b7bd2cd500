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
from experiments.calibration import NULLS, calibrate

UNLIKE = tuple(NULLS)[3:]  # arms of different shape

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


def test_a_seed_is_drawn_with_all_its_tasks() -> None:
    """What one task of a seed gains another loses: drawn together the sum cannot vary, and nothing is known of it."""
    luck = stream(0, "luck").normal(size=(6, 1))
    interval = stats.bootstrap(stats.mean, np.concatenate([luck, -luck], axis=1), seed=0)
    assert not interval.known
    assert stats.bootstrap(stats.mean, np.concatenate([luck, luck], axis=1), seed=0).known


def test_it_is_never_narrower_than_students_t() -> None:
    scores = stream(0, "scores").lognormal(size=(7, 1))
    interval = stats.bootstrap(stats.mean, scores, seed=0)
    student = scipy.stats.ttest_1samp(scores[:, 0], 0.0).confidence_interval(0.95)
    assert interval.low <= student.low + 1e-9
    assert interval.high > student.high  # the long tail is on that side


def test_with_many_runs_it_is_the_usual_interval() -> None:
    scores = stream(0, "scores").normal(size=(200, 1))
    interval = stats.bootstrap(stats.mean, scores, seed=0)
    reference = scipy.stats.bootstrap(
        (scores[:, 0],), np.mean, method="BCa", n_resamples=5_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert [interval.low, interval.high] == pytest.approx([reference.low, reference.high], abs=0.02)


def test_curves_are_resampled_run_by_run_whatever_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = stream(0, "curves").normal(size=(5, 1, 4, 2))  # steps, 1, runs, tasks
    whole = stats.bootstrap(stats.median, curves, seed=0, draws=100)
    assert whole.low.shape == (5, 1)
    monkeypatch.setattr("bsrs.stats.resampling.NUMBERS_AT_ONCE", 1)
    one_by_one = stats.bootstrap(stats.median, curves, seed=0, draws=100)
    assert (whole.low == one_by_one.low).all()


@pytest.mark.parametrize("runs", [1, 5])
def test_runs_without_a_spread_say_nothing_about_it(runs: int) -> None:
    interval = stats.bootstrap(stats.mean, np.full((runs, 1), 3.0), seed=0)
    assert (interval.low, interval.estimate, interval.high) == (-np.inf, 3.0, np.inf)


def test_pairing_removes_what_the_seeds_share() -> None:
    rng = stream(0, "paired")
    luck = rng.normal(scale=10, size=(12, 1))
    x, y = luck + 1 + rng.normal(scale=0.1, size=(12, 1)), luck

    def gain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return stats.mean(x) - stats.mean(y)

    paired = stats.bootstrap(gain, x, y, seed=0)
    assert 0.9 < paired.low < paired.high < 1.1
    assert stats.bootstrap(stats.mean, x, seed=0).high > 5


@pytest.mark.parametrize(
    ("samples", "settings", "words"),
    [
        ([np.array([1.0, 2.0])], {}, "shape"),
        ([np.empty((0, 3))], {}, "shape"),
        ([np.array([[np.nan], [1.0]])], {}, "not finite"),
        ([np.zeros((2, 1)), np.zeros((3, 1))], {}, "same seeds"),
        ([np.zeros((2, 1))], {"confidence": 95}, "confidence"),
    ],
)
def test_bad_scores_are_told(samples: list[np.ndarray], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        stats.bootstrap(lambda *arrays: stats.mean(arrays[0]), *samples, seed=0, **settings)


# ---- comparisons


DIFFERENCES = st.lists(NUMBERS, min_size=2, max_size=9).map(np.array)


@given(differences=DIFFERENCES)
def test_the_sign_flip_test_is_scipys(differences: np.ndarray) -> None:
    def mean_of(x: np.ndarray, axis: int) -> np.ndarray:
        return np.round(x.mean(axis=axis), 9)  # ties are ties

    kind = {"permutation_type": "samples", "vectorized": True, "n_resamples": np.inf}
    reference = scipy.stats.permutation_test((differences,), mean_of, **kind).pvalue
    assert stats.paired_difference(differences, np.zeros(len(differences))).p == pytest.approx(reference)


def test_five_seeds_are_never_enough_and_six_may_be() -> None:
    scores = np.array([10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
    five, six = (stats.paired_difference(scores[:n], np.zeros(n)) for n in (5, 6))
    assert (five.p, five.verdict) == (2 / 32, "inconclusive")
    assert (six.p, six.verdict) == (2 / 64, "holds")
    assert stats.paired_difference(np.zeros(6), scores).verdict == "does not hold"


def test_a_claim_needs_its_size() -> None:
    scores = np.array([10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
    verdicts = [stats.paired_difference(scores, 0 * scores, claimed=size).verdict for size in (12.0, 13.0, 20.0)]
    assert verdicts == ["holds", "inconclusive", "does not hold"]


@given(differences=DIFFERENCES)
def test_turning_a_comparison_round_turns_everything_round(differences: np.ndarray) -> None:
    there, back = (
        stats.paired_difference(differences, 0 * differences),
        stats.paired_difference(0 * differences, differences),
    )
    assert there.p == back.p
    assert [there.mean, there.low, there.high] == pytest.approx([-back.mean, -back.high, -back.low], abs=1e-6)
    opposite = {"holds": "does not hold", "does not hold": "holds", "inconclusive": "inconclusive"}
    assert back.verdict == opposite[there.verdict]


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((2, 3), (2, 3))])
def test_scores_that_are_no_pairs_are_told(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(BadInput, match="the same seeds"):
        stats.paired_difference(*(np.zeros(shape) for shape in shapes))


@given(differences=arrays(np.float64, (3, 6), elements=NUMBERS))
def test_settings_are_corrected_for_each_other(differences: np.ndarray) -> None:
    together = stats.sign_flip_p(differences)
    alone = np.array([float(stats.sign_flip_p(each[None])[0]) for each in differences])
    assert (together >= alone - 1e-12).all()
    assert stats.sign_flip_p(np.repeat(differences[:1], 3, axis=0)) == pytest.approx(np.full(3, alone[0]))


def test_flips_are_enumerated_up_to_20_seeds_and_drawn_beyond() -> None:
    scores = 1 + stream(0, "flips").normal(scale=0.1, size=22)
    for seeds, p in ((12, 2 / 2**12), (20, 2 / 2**20)):
        found = stats.paired_difference(scores[:seeds], np.zeros(seeds))
        assert (found.exact, found.p, found.p_text) == (True, p, f"{p:.2g}")
    found = stats.paired_difference(scores, np.zeros(22))
    assert (found.exact, found.p_text) == (False, "2e-05 (100,000 random flips)")
    noise = stream(1, "flips").normal(size=21)
    drawn, reference = stats.paired_difference(noise, 0 * noise).p, scipy.stats.ttest_1samp(noise, 0.0).pvalue
    assert drawn == pytest.approx(reference, abs=0.02)


@pytest.mark.parametrize(
    ("shift", "not_worse", "not_better", "equivalent"),
    [
        (0.0, "holds", "holds", "holds"),
        (-0.5, "inconclusive", "holds", "inconclusive"),
        (-2.0, "does not hold", "holds", "does not hold"),
        (2.0, "holds", "does not hold", "does not hold"),
    ],
)
def test_equivalence_needs_a_margin(shift: float, not_worse: str, not_better: str, equivalent: str) -> None:
    """Two one-sided tests: nine differences around the shift, the margin is 0.5."""
    scores, zero = shift + np.linspace(-0.4, 0.4, 9), np.zeros(9)
    assert stats.within(scores, zero, low=-0.5).verdict == not_worse
    assert stats.within(scores, zero, high=0.5).verdict == not_better
    assert stats.within(scores, zero, low=-0.5, high=0.5).verdict == equivalent
    few = stats.within(scores[:5], zero[:5], low=-9.0, high=9.0)
    assert few.verdict == "inconclusive"


def test_several_tasks_are_judged_over_seeds_and_over_tasks() -> None:
    """Two of six tasks carry all: that is clear for other seeds on these six, and not for other tasks."""
    gains = np.array([2.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    differences = gains + stream(0, "tasks").normal(scale=0.1, size=(1, 10, 6))
    found = stats.pooled(differences)
    assert found.by_task == pytest.approx(gains, abs=0.15)
    assert found.over_seeds.gain.mean == pytest.approx(found.over_tasks.gain.mean)
    assert (found.over_seeds.gain.verdict, found.over_tasks.gain.verdict) == ("holds", "inconclusive")
    assert stats.pooled(differences + 1).over_tasks.gain.verdict == "holds"


def test_failures_are_bounded_from_above() -> None:
    assert stats.failure_bound(0, 10) == pytest.approx(1 - 0.05 ** (1 / 10))  # 26%
    assert stats.failure_bound(10, 10) == 1.0
    exact = scipy.stats.binomtest(3, 10, alternative="less").proportion_ci(0.95, method="exact")
    assert stats.failure_bound(3, 10) == pytest.approx(exact.high)


def test_a_run_fails_near_the_random_policys_score() -> None:
    reference = stats.reference_of("MountainCar-v0")
    assert reference is not None
    assert reference.failed([-200.0, -190.1, -189.9, -100.0]).tolist() == [True, True, False, False]
    assert reference.normalised([-200.0, -100.8]).tolist() == [0, 1]
    assert stats.reference_of("ALE/Pong-v5") == stats.Reference(-20.7, 14.6, "a human tester")
    assert stats.reference_of("Unknown-v0") is None


def test_the_sample_size_is_that_of_a_t_test() -> None:
    assert stats.seeds_needed(1.0, 1.0) == 10  # 7.85, and half the squared quantile for the small sample
    assert stats.seeds_needed(1.0, 0.1) == 787
    assert stats.seeds_needed(1.0, 1.0, questions=6) > 10
    assert stats.seeds_needed(1.0, 0.0) is None


def test_holm_by_hand() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_only_raises_and_keeps_the_order(p: list[float]) -> None:
    corrected = stats.holm(p)
    assert all(a <= b for a, b in zip(p, corrected, strict=True))
    assert corrected[int(np.argmin(p))] == pytest.approx(min(1.0, len(p) * min(p)))
    assert sorted(range(len(p)), key=lambda i: (p[i], i)) == sorted(
        range(len(p)), key=lambda i: (corrected[i], p[i], i)
    )


def test_probability_of_improvement_by_hand() -> None:
    x, y = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[0.0, 5.0], [2.0, 6.0]])
    assert stats.probability_of_improvement(x, y) == pytest.approx((1 + 0.5 + 0.5 + 0) / 4)


@given(
    pair=st.integers(1, 9).flatmap(
        lambda n: st.tuples(*[arrays(np.float64, n, elements=st.sampled_from([0.0, 1.0, 2.0]))] * 2)
    )
)
def test_the_probability_of_improvement_has_an_interval_with_a_width(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = pair
    there, back = stats.improvement(x, y), stats.improvement(y, x)
    assert there.low <= there.estimate <= there.high
    assert there.high - there.low > 0.3
    assert [there.low, there.high] == pytest.approx([1 - back.high, 1 - back.low])
    if not (x == y).any():
        wins = scipy.stats.binomtest(int((x > y).sum()), len(x)).proportion_ci(method="exact")
        assert [there.low, there.high] == pytest.approx([wins.low, wins.high])


def test_relative_advantage_is_right_for_negative_scores() -> None:
    assert stats.relative_advantage(-10.0, -15.0, -20.7) == pytest.approx(5 / 5.7)
    assert stats.relative_advantage(-15.0, -10.0, -20.7) == pytest.approx(-5 / 10.7)
    assert stats.relative_advantage(30.0, 20.0, 0.0) == 0.5  # no floor below: the plain share
    assert stats.relative_advantage(-10.0, -25.0, -20.7) > 0  # a baseline below random play
    assert stats.relative_advantage(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1.0).tolist() == [0, np.inf]


@given(score=NUMBERS, baseline=NUMBERS, floor=NUMBERS)
def test_relative_advantage_has_the_sign_of_the_gain(score: float, baseline: float, floor: float) -> None:
    assert np.sign(stats.relative_advantage(score, baseline, floor)) == np.sign(score - baseline)


def test_the_best_of_one_is_the_paired_test() -> None:
    x, y = stream(0, "scores").normal(loc=[[1.5], [0.0]], size=(2, 8))
    best, pair = stats.best_of(x[None], y), stats.paired_difference(x, y)
    assert (best.gain.mean, best.gain.p, best.gain.verdict) == (pytest.approx(pair.mean), pair.p, pair.verdict)


def test_the_best_is_judged_on_seeds_that_did_not_choose_it() -> None:
    best = stats.best_of(np.array([[5.0, 5.0, 5.0, 5.0], [24.0, 2.0, 2.0, -4.0]]), np.zeros(4))
    assert (best.chosen, best.choices.tolist()) == (0, [0, 0, 0, 1])  # the surer gain, unless the last is not seen
    assert best.gain.mean == pytest.approx((5 + 5 + 5 - 4) / 4)
    assert best.flattered == pytest.approx(6)  # the larger one, as papers report it


def test_the_interval_of_the_best_agrees_with_its_test() -> None:
    held = 0
    for trial in range(60):
        scores = stream(trial, "best").normal(loc=[[0.0], [0.5], [1.0], [2.0]], size=(4, 8))
        best = stats.best_of(scores[1:], scores[0])
        assert best.gain.low <= best.gain.mean <= best.gain.high
        assert best.gain.p <= 0.05 or best.gain.low <= 0
        held += best.gain.verdict == "holds"
    assert 20 < held < 60


def test_the_best_needs_a_seed_to_choose_and_one_to_judge() -> None:
    with pytest.raises(BadInput, match="2 seeds"):
        stats.best_of(np.ones((3, 1)), np.ones(1))


def test_intervals_and_verdicts_hold_their_level() -> None:
    """Few draws here; `python -m experiments calibration` has many."""
    draws = 80
    rows = calibrate(draws, (6, 10), ("paired difference", "best of 4"), ("normal", "lognormal", "bimodal"))
    for row in rows:
        coverage = 0.88 if row.distribution == "lognormal" else 0.92
        for errors, allowed in ((1 - row.coverage, 1 - coverage), (row.false_holds, 0.04)):
            p = scipy.stats.binomtest(round(errors * draws), draws, allowed, alternative="greater").pvalue
            assert p > 0.005, row
    for statistic in {row.statistic for row in rows}:
        assert np.mean([row.false_holds for row in rows if row.statistic == statistic]) < 0.04


@pytest.mark.parametrize(("draw", "middle", "least"), [("normal", 0.0, 0.92), ("lognormal", 1.0729, 0.88)])
def test_the_interval_of_the_interquartile_mean_covers_it(draw: str, middle: float, least: float) -> None:
    scores = getattr(stream(0, draw), draw)(size=(80, 10, 1))
    found = stats.iqm_interval(scores, seed=0, draws=300)
    missed = int(((found.low > middle) | (middle > found.high)).sum())
    assert scipy.stats.binomtest(missed, 80, 1 - least, alternative="greater").pvalue > 0.005


def test_pooled_claims_hold_their_level_where_one_run_in_ten_fails() -> None:
    """Equal means, and failures in the shaped arm alone: 40 experiments of six tasks, ten seeds and four etas."""
    rows = calibrate(160, (10,), ("6 tasks pooled, over seeds", "6 tasks pooled, over tasks"), UNLIKE)
    assert len(rows) == 2 * 4
    for row in rows:
        assert scipy.stats.binomtest(round(row.false_holds * 40), 40, 0.05, alternative="greater").pvalue > 0.005, row


def test_a_single_comparison_cannot_see_a_rare_failure() -> None:
    """Why no gain is told without failed runs: with one task, the typical gain is all that ten seeds show."""
    rows = {row.distribution: row.false_holds for row in calibrate(60, (10,), ("paired difference",), UNLIKE)}
    assert rows["10% failures, shaped only"] > 0.1
    assert max(rows["10% failures in both"], rows["three times the spread"]) < 0.1


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
    from bsrs.stats.references import atari_references

    assert len(atari_references()) == 57
    assert all(each.span > 0 for each in atari_references().values())


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
