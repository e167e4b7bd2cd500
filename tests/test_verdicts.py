"""From runs to verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bsrs.stats import Comparison, Interval
from bsrs.stats.records import Series, read_runs, series_of
from bsrs.stats.references import reference_of
from bsrs.stats.summary import gain
from experiments import auto_eta
from experiments.atari import draw_games, judge_atari, judge_minatar
from experiments.auto_eta import draw_auto, judge_auto
from experiments.claims import Claim, Scope, area, corrected, final, judged, too_small, tuned
from experiments.continuous import (
    judge_mujoco,
    judge_pendulum,
    judge_potentials,
    judge_rescaling,
    judge_target_ablation,
)
from experiments.experiments import EXPERIMENTS
from experiments.figures import VARIANTS, draw_pendulum, draw_variants
from experiments.pooling import gains
from experiments.theory import between, judge_theory
from experiments.variants import with_options
from experiments.zoo import faster_target, judge_zoo
from experiments.zoo import plan as zoo_plan
from run_folders import config, made_up_curve, write_run, write_sweep

GAMES = ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"]
SMALL_GAMES = ["MinAtar/Breakout-v0", "MinAtar/Freeway-v0"]
ENVS = ["CartPole-v1", "Pendulum-v1", "Hopper-v4", *GAMES, *SMALL_GAMES]
SCOPE = Scope(dict.fromkeys(ENVS, 10_000), "python -m experiments it")


def _interval(low: float, high: float) -> Interval:
    return Interval(np.array((low + high) / 2), np.array(low), np.array(high))


def _series(root: Path) -> list[Series]:
    return series_of(read_runs(root)[0])


def _verdicts(claims: list[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


# ---- verdicts


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1, 3, "holds"), (0.5, 2, "inconclusive"), (5, 10, "does not hold")]
)
def test_a_quantity_between_two_numbers(low: float, high: float, verdict: str) -> None:
    assert between(_interval(low, high), 1, 3) == verdict


CLEAR = Comparison(1.5, 1.0, 2.0, 0.01, 10, "holds")


def test_a_gain_over_training_that_is_lost_at_the_end_says_so() -> None:
    lost = replace(CLEAR, mean=-3.0, low=-4.0, high=-2.0, verdict="does not hold")
    claim = judged("it helps", CLEAR, "+1.5", Scope({}, ""), end=lost, failures="0 of 10 failed")
    assert (claim.verdict, claim.shown) == ("holds", "+1.5, but worse at the end")
    assert (claim.end, claim.failures) == ("-3 [-4, -2]", "0 of 10 failed")


def test_too_small_is_never_a_guess_and_names_what_would_settle_it() -> None:
    told = judged("it helps", CLEAR, "+1.5", Scope({}, "run more"), small="too small to tell: 2 seeds")
    assert (told.verdict, told.settle, told.interval) == ("inconclusive", "run more", "[1, 2]")
    assert "2 seeds" in told.shown
    assert judged("it helps", CLEAR, "+1.5", Scope({}, "run more")).verdict == "holds"
    absent = judged("it helps", None, "", Scope({}, "run more"))
    assert (absent.verdict, absent.shown) == ("inconclusive", "not among these runs")


def test_of_several_claims_one_that_barely_passed_no_longer_does() -> None:
    barely = judged("it helps", replace(CLEAR, p=0.03), "", Scope({}, ""))
    clearly = judged("it helps", CLEAR, "", Scope({}, ""))
    exact = Claim("it is so", "", "exact", "holds")
    assert _verdicts(corrected([barely])) == ["holds"]
    several = corrected([barely, exact, clearly, barely])
    assert _verdicts(several) == ["inconclusive", "holds", "holds", "inconclusive"]
    assert [claim.p for claim in several] == pytest.approx([0.06, None, 0.03, 0.06])


# ---- evidence


def test_too_few_seeds_and_steps_are_counted(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["CartPole-v1"], [0.0], seeds=2)
    series = _series(tmp_path)
    assert (
        too_small(series, Scope({"CartPole-v1": 20_000}, ""))
        == "too small to tell: 2 of at least 6 seeds, 10,000 of 20,000 steps"
    )
    assert too_small([], SCOPE) == "not among these runs"


def test_gains_are_paired_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), [10.0 * seed] * 10)
    for seed in range(1, 6):
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [10.0 * seed + 1 + 0.01 * seed] * 10)
    zero, one = _series(tmp_path)
    effect = gain(one, zero, final)
    assert effect is not None
    assert (effect.mean, effect.n) == (pytest.approx(1.02), 3)  # seeds 1 to 3
    assert effect.high - effect.low < 0.2  # the seeds' own spread is gone


def test_the_tuned_eta_is_chosen_on_other_seeds(tmp_path: Path) -> None:
    for eta, scores in {0.0: [1, 1, 1], 1.0: [5, 5, 5], 2.0: [9, 6, 3]}.items():
        for seed, score in enumerate(scores):
            write_run(tmp_path, config("CartPole-v1", eta, seed), [float(score)] * 10)
    best = tuned(_series(tmp_path), area)
    assert best is not None
    assert best.held_out.tolist() == pytest.approx([5, 6, 3])
    assert best.same_seeds.tolist() == pytest.approx([9, 6, 3])
    assert best.words == "+3.67 with eta 1, 2, chosen on other seeds (as in the paper, on the same seeds: +5)"


# ---- experiments on made-up runs


def test_pendulum_claims(tmp_path: Path) -> None:
    write_sweep(tmp_path / "many", ["Pendulum-v1"], [-0.5, 0.0, 2.0, 5.0], seeds=10, algorithm="td3")
    claims = judge_pendulum(_series(tmp_path / "many"), SCOPE)
    assert _verdicts(claims) == ["holds", "holds", "inconclusive", "holds"]
    assert claims[2].shown == "not among these runs"  # eta = 10
    write_sweep(tmp_path / "few", ["Pendulum-v1"], [-0.5, 0.0, 2.0, 5.0], seeds=3, algorithm="td3")
    assert set(_verdicts(judge_pendulum(_series(tmp_path / "few"), SCOPE))) == {"inconclusive"}


def test_a_pendulum_claim_that_noise_hides_says_how_many_seeds_would_tell(tmp_path: Path) -> None:
    for seed, lead in enumerate((-2.0, 2.0, -2.0, 2.0, 0.0, 2.0, 0.0, 2.0)):
        write_run(tmp_path, config("Pendulum-v1", 0.0, seed, "td3"), [0.0] * 10)
        write_run(tmp_path, config("Pendulum-v1", 10.0, seed, "td3"), [lead] * 10)
    *_, at_ten, negative = judge_pendulum(_series(tmp_path), SCOPE)
    assert (at_ten.verdict, at_ten.settle) == ("inconclusive", "about 144 seeds")  # ((2.50 + 0.84) * 1.77 / 0.5)^2 + 3
    assert (negative.verdict, negative.settle) == ("inconclusive", SCOPE.command)  # no such runs


def test_the_pendulum_figure_has_the_negative_eta_in_its_second_panel_only(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["Pendulum-v1"], [-0.5, 0.0, 2.0], seeds=2, algorithm="td3")
    left, right = draw_pendulum(_series(tmp_path))["pendulum"].axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["0", "2"]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["−0.5", "0", "2"]


def test_mujoco_claims(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["Hopper-v4"], [0.0, 2.0], seeds=6, algorithm="td3")
    hopper, humanoid = judge_mujoco(_series(tmp_path), SCOPE)
    assert hopper.verdict == "holds"
    assert (humanoid.verdict, humanoid.settle) == ("inconclusive", SCOPE.command)
    assert len(draw_variants("mujoco", _series(tmp_path))["mujoco"].axes) == 1


def test_atari_claims_need_many_games(tmp_path: Path) -> None:
    write_sweep(tmp_path, GAMES, [0.0, 2.0, 10.0], seeds=6)
    series = _series(tmp_path)
    claims = judge_atari(series, SCOPE)
    assert "2 of at least 30 games" in claims[0].shown
    assert claims[0].verdict == "inconclusive"
    assert claims[0].shown.startswith("0 of 2 games")
    figures = draw_games("atari", series)
    assert list(figures) == ["atari-games", "atari-median"]
    assert {tick.get_text() for tick in figures["atari-games"].axes[0].get_xticklabels()} == {"Pong", "Breakout"}


def test_one_game_has_bars_but_no_median(tmp_path: Path) -> None:
    write_sweep(tmp_path, GAMES[:1], [0.0, 2.0], seeds=2)
    assert list(draw_games("atari", _series(tmp_path))) == ["atari-games"]
    assert set(_verdicts(judge_atari(_series(tmp_path), SCOPE))) == {"inconclusive"}


def test_minatar_is_judged_and_drawn_as_atari_is(tmp_path: Path) -> None:
    write_sweep(tmp_path, SMALL_GAMES, [0.0, 2.0, "auto"], seeds=6)
    series = _series(tmp_path)
    (claim,) = judge_minatar(series, SCOPE)
    assert (claim.verdict, claim.p) == ("holds", 2 / 2**6)
    figures = draw_games("minatar", series)
    assert list(figures) == ["minatar-games", "minatar-median"]
    assert {tick.get_text() for tick in figures["minatar-games"].axes[0].get_xticklabels()} == {"Breakout", "Freeway"}
    assert "auto" in {tick.get_text() for tick in figures["minatar-median"].axes[1].get_xticklabels()}


@pytest.mark.parametrize(
    ("judge", "field", "values"),
    [
        (judge_target_ablation, "potential_network", ("online", "target")),
        (judge_rescaling, "control", ("none", "rescaled")),
    ],
)
def test_variants_are_compared_at_the_same_eta_and_seed(
    tmp_path: Path, judge: Callable[..., list[Claim]], field: str, values: tuple[str, str]
) -> None:
    for seed in range(7):
        for eta in (0.0, 1.0):
            curve = made_up_curve("CartPole-v1", eta, seed)
            better = curve + 5 + 0.1 * seed if eta else curve
            write_run(tmp_path, config("CartPole-v1", eta, seed, **{field: values[0]}), better.tolist())
            write_run(tmp_path, config("CartPole-v1", eta, seed, **{field: values[1]}), curve.tolist())
    claim = judge(_series(tmp_path), SCOPE)[0]
    assert claim.verdict == "holds"
    assert "100% of runs at eta 1" in claim.shown  # eta = 0 is the same either way
    figure = draw_variants("pair", _series(tmp_path))["pair"]
    titles = {f"DQN on CartPole-v1\n{VARIANTS[f'{field}={value}']}" for value in values}
    assert {ax.get_title("left") for ax in figure.axes} == titles
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0", "1"]


def test_variants_that_noise_hides_say_how_many_seeds_would_tell(tmp_path: Path) -> None:
    for seed, lead in enumerate((-2.0, 2.0, -2.0, 2.0, 0.0, 2.0, 0.0, 2.0)):
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [lead] * 10)
        write_run(tmp_path, config("CartPole-v1", 1.0, seed, control="rescaled"), [0.0] * 10)
    (claim,) = judge_rescaling(_series(tmp_path), SCOPE)
    assert (claim.verdict, claim.settle) == ("inconclusive", "about 101 seeds")  # ((1.96 + 0.84) * 1.77 / 0.5)^2
    (short,) = judge_rescaling(_series(tmp_path), Scope({"CartPole-v1": 20_000}, "python -m experiments it"))
    assert short.settle == "python -m experiments it"


def test_the_two_potentials_of_pendulum_are_compared_at_the_same_eta_and_seed(tmp_path: Path) -> None:
    for seed in range(7):
        curve = made_up_curve("Pendulum-v1", 1.0, seed)
        for lead, potential in ((0.0, "replay"), (5 + 0.1 * seed, "policy")):
            run = config("Pendulum-v1", 1.0, seed, "td3", potential=potential)
            write_run(tmp_path / potential, run, (curve + lead).tolist())
    overlaid = series_of(read_runs(tmp_path)[0], ["potential"])
    (claim,) = judge_potentials(overlaid, SCOPE)
    assert claim.verdict == "holds"
    assert ("policy beats replay in 100% of runs at eta 1") in claim.shown


def test_tuned_agents_are_judged_together_on_scales_that_no_run_can_change(tmp_path: Path) -> None:
    """CartPole's reference range is 476.3, Pendulum's 1055.7: one gains a tenth of it, the other loses a twentieth."""
    for seed in range(8):
        for (env, algorithm), lead in {("CartPole-v1", "dqn"): 47.63, ("Pendulum-v1", "sac"): -52.785}.items():
            for eta in (0.0, 1.0):  # what all tasks have
                scores = [100 + lead * eta + (seed + eta) % 3] * 10
                write_run(tmp_path / algorithm, config(env, eta, seed, algorithm), scores)
        for eta, score in {0.0: 0.0, 1.0: 0.0, 2.0: 50.0, "auto": 300.0 + seed}.items():
            write_run(tmp_path / "td3", config("Pendulum-v1", eta, seed, "td3"), [score] * 10)
    series = _series(tmp_path)
    these, like_these = gains(("on these", "on others"), series, SCOPE)
    assert (these.verdict, like_these.verdict) == ("holds", "inconclusive")  # three tasks are too few
    assert these.shown.startswith("+0.0169 of the reference range over 8 seeds, eta 1: ")
    assert "CartPole-v1 +0.10, Pendulum-v1 (SAC) -0.05, Pendulum-v1 (TD3) +0.00" in these.shown
    assert these.end.startswith("+0.0169 [")
    assert these.failures.startswith("0 of 24 failed (at most 12%); baseline 0 of 24")
    (auto,) = gains(("it adds", ""), series, SCOPE, schedule="auto")
    assert (auto.verdict, auto.shown.rpartition(": ")[2]) == ("holds", "Pendulum-v1 (TD3) +0.29")
    few = judge_zoo(series, SCOPE)
    assert set(_verdicts(few)) == {"inconclusive"}
    assert few[0].shown.endswith("too small to tell: 3 of 6 tasks")
    panels = draw_variants("zoo", series)["zoo"].axes
    titles = [ax.get_title("left") for ax in panels if ax.get_visible()]
    assert titles == ["DQN on CartPole-v1", "SAC on Pendulum-v1", "TD3 on Pendulum-v1"]


def test_a_failed_run_does_not_discount_its_own_loss(tmp_path: Path) -> None:
    """The gain of nine seeds is what the tenth loses: no gain on the fixed scale, whatever the spread."""
    for seed in range(10):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), [400.0 + seed] * 10)
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [400.0 + seed + (40 if seed else -360)] * 10)
    claim, *_ = gains(("it gains", ""), _series(tmp_path), SCOPE)
    assert claim.verdict == "inconclusive"
    assert (
        claim.shown.startswith("+0 of the reference range") or claim.shown.startswith("-0 of") or "e-1" in claim.shown
    )
    assert claim.failures == "1 of 10 failed (at most 39%); baseline 0 of 10 failed (at most 26%)"


def test_shaping_is_compared_with_a_faster_target_network(tmp_path: Path) -> None:
    """Each agent meets the control of its own algorithm and env."""
    configs = [each for each in zoo_plan("paper") if each.eta in (0.0, 1.0) and each.seed < 6]
    for each in configs:
        shaped, curve = each.eta == 1.0, 10.0 + each.seed
        scores = [curve + 30 * shaped] * (each.steps // each.eval_every)
        folder = tmp_path / each.algorithm / each.env
        write_run(folder, each, scores)
        if not shaped:
            write_run(folder, faster_target(each), [score + 10 for score in scores])
    claims = judge_zoo(series_of([with_options(run) for run in read_runs(tmp_path)[0]]), EXPERIMENTS["zoo"].scope())
    these, _ = claims[-2:]
    assert these.claim == "(Ours) Shaping with eta = 1 beats a target network twice as fast"
    assert (these.verdict, these.p) == ("inconclusive", pytest.approx(6 * 2 / 2**6, abs=0.1))
    assert "Pendulum-v1 (SAC) +0.02" in these.shown  # 20 of 1055.7


def test_the_split_potential_is_judged_where_there_are_runs_of_it(tmp_path: Path) -> None:
    for seed in range(7):
        write_run(tmp_path, config("CartPole-v1", 0.0, seed), made_up_curve("CartPole-v1", 0.0, seed).tolist())
        for lead, network in enumerate(("split", "target", "online")):
            curve = made_up_curve("CartPole-v1", 1.0, seed) + lead * (5 + 0.1 * seed)
            write_run(tmp_path, config("CartPole-v1", 1.0, seed, potential_network=network), curve.tolist())
    series = _series(tmp_path)
    *_, split = judge_target_ablation(series, SCOPE)
    assert "online beats split in 100% of runs" in split.shown
    assert split.verdict == "holds"
    panels = draw_variants("three", series)["three"].axes
    names = [ax.get_title("left").rpartition("\n")[2] for ax in panels]
    online, split, target = (VARIANTS[f"potential_network={network}"] for network in ("online", "split", "target"))
    assert names == [online, split, target]
    means = [[line for line in ax.lines if not line.get_label().startswith("_")] for ax in panels]
    assert all(len(lines) == 2 for lines in means)  # eta = 0 is in each of them


def test_theory_verdicts() -> None:
    assert _verdicts(judge_theory()) == [
        "holds",  # contraction
        "holds",  # fixed points
        "does not hold",  # the statement's potential
        "holds",  # no static equivalent
        "holds",  # TD(0)
        "holds",  # SARSA(0)
        "does not hold",  # the sign
        "holds",  # 20 % fewer steps
        "does not hold",  # 3 times the bound
    ]


@pytest.mark.parametrize(
    ("auto", "verdicts"),
    [
        (2.0, ["holds"] * 6),  # better than every constant
        (0.5, ["holds", "holds", "does not hold", "does not hold", "holds", "does not hold"]),  # between them
    ],
)
def test_auto_is_judged_by_its_criterion(auto: float, verdicts: list[str], tmp_path: Path) -> None:
    """In reference ranges the baseline scores 0 and eta = 1 scores 1, give or take a little from task to task."""
    for task, configs in enumerate(auto_eta.sweeps("paper").values()):
        reference = reference_of(configs[0].env)
        assert reference is not None
        for each in (each for each in configs if each.eta in (0.0, 1.0, "auto") and each.seed < 106):
            level = {0.0: 0.0, 1.0: 1.0}.get(each.eta, auto * (1 + 0.01 * task + 0.001 * each.seed))
            scores = [reference.random + reference.span * level] * (each.steps // each.eval_every)
            write_run(tmp_path, each, scores)
    series = _series(tmp_path)
    claims = judge_auto(series, EXPERIMENTS["auto-eta"].scope())
    assert [claim.verdict for claim in claims] == verdicts
    assert set(draw_auto(series)) == {"auto"}
    assert len(auto_eta.auto_table(series)) == 2 + 11 * 3


def test_a_part_of_the_tasks_settles_nothing_about_auto(tmp_path: Path) -> None:
    configs = auto_eta.sweeps("paper")["lunarlander, our settings"]
    for each in (each for each in configs if each.eta in (0.0, "auto")):
        write_run(tmp_path, each, [float(each.seed) + (each.eta == "auto")] * 20)
    claims = judge_auto(_series(tmp_path), EXPERIMENTS["auto-eta"].scope())
    assert {claim.verdict for claim in claims} == {"inconclusive"}
    assert "1 of 11 tasks" in claims[0].shown
