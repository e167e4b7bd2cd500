"""From runs to verdicts, and every experiment at its smallest scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from bsrs.cli import main
from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput
from bsrs.reproduce.atari import draw_games, judge_atari, judge_minatar
from bsrs.reproduce.auto_eta import draw_auto, judge_auto
from bsrs.reproduce.claims import Claim, Scope, area, between, corrected, denied, final, gain, judged, too_small, tuned
from bsrs.reproduce.continuous import (
    draw_pendulum,
    draw_variants,
    gains,
    judge_mujoco,
    judge_pendulum,
    judge_potentials,
    judge_rescaling,
    judge_target_ablation,
)
from bsrs.reproduce.experiments import EXPERIMENTS, reproduce
from bsrs.reproduce.theory import judge_theory
from bsrs.reproduce.zoo import judge_zoo
from bsrs.stats import Comparison, Interval, Verdict
from bsrs.stats.records import Series, read_runs, series_of
from bsrs.sweep.plan import expand, read_sweep
from run_folders import config, made_up_curve, write_run, write_sweep

GAMES = ["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4"]
SMALL_GAMES = ["MinAtar/Breakout-v0", "MinAtar/Freeway-v0"]
ENVS = ["CartPole-v1", "Pendulum-v1", "Hopper-v4", *GAMES, *SMALL_GAMES]
SCOPE = Scope(dict.fromkeys(ENVS, 10_000), "bsrs reproduce it")


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


def test_noise_does_not_prove_that_there_is_no_effect() -> None:
    verdicts = [denied(replace(CLEAR, verdict=verdict)).verdict for verdict in get_args(Verdict)]
    assert verdicts == ["does not hold", "holds", "inconclusive"]


def test_too_small_is_never_a_guess_and_names_what_would_settle_it() -> None:
    told = judged("it helps", CLEAR, "+1.5", too_small="too small to tell: 2 seeds", command="run more")
    assert (told.verdict, told.settle, told.interval) == ("inconclusive", "run more", "[1, 2]")
    assert "2 seeds" in told.shown
    assert judged("it helps", CLEAR, "+1.5", too_small="", command="run more").verdict == "holds"
    absent = judged("it helps", None, "", too_small="", command="run more")
    assert (absent.verdict, absent.shown) == ("inconclusive", "not among these runs")


def test_of_several_claims_one_that_barely_passed_no_longer_does() -> None:
    barely = judged("it helps", replace(CLEAR, p=0.03), "", too_small="", command="")
    clearly = judged("it helps", CLEAR, "", too_small="", command="")
    exact = Claim("it is so", "", "exact", "holds")
    assert _verdicts(corrected([barely])) == ["holds"]
    several = corrected([barely, exact, clearly, barely])
    assert _verdicts(several) == ["inconclusive", "holds", "holds", "inconclusive"]
    assert [claim.p for claim in several] == pytest.approx([0.06, None, 0.03, 0.06])


def test_calibration_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "calibration", "--json", "--draws", "2"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {tuple(row) for row in rows} == {("statistic", "distribution", "n", "coverage", "false_holds")}
    assert {row["n"] for row in rows} == {5, 6, 10, 20}
    assert {row["distribution"] for row in rows} == {"normal", "lognormal", "bimodal"}
    assert len({row["statistic"] for row in rows}) == 4


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
    assert best.held_out.tolist() == pytest.approx([5, 5, 5])
    assert best.same_seeds.tolist() == pytest.approx([9, 6, 3])
    assert best.words == "+4 with eta 1, chosen on other seeds (as in the paper, on the same seeds: +5)"


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
    assert (at_ten.verdict, at_ten.settle) == ("inconclusive", "about 141 seeds")  # ((2.50 + 0.84) * 1.77 / 0.5)^2
    assert (negative.verdict, negative.settle) == ("inconclusive", SCOPE.command)  # no such runs


def test_the_pendulum_figure_has_the_negative_eta_in_its_inset_only(tmp_path: Path) -> None:
    write_sweep(tmp_path, ["Pendulum-v1"], [-0.5, 0.0, 2.0], seeds=2, algorithm="td3")
    ax = draw_pendulum(_series(tmp_path))["pendulum"].axes[0]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "2"]
    inset = ax.child_axes[0]
    assert [tick.get_text() for tick in inset.get_xticklabels()] == ["−0.5", "0", "2"]


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
    panels = draw_variants("pair", _series(tmp_path))["pair"].axes
    assert {ax.get_title("left") for ax in panels} == {f"CartPole-v1, {field}={value}" for value in values}
    assert all([text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1"] for ax in panels)


def test_variants_that_noise_hides_say_how_many_seeds_would_tell(tmp_path: Path) -> None:
    for seed, lead in enumerate((-2.0, 2.0, -2.0, 2.0, 0.0, 2.0, 0.0, 2.0)):
        write_run(tmp_path, config("CartPole-v1", 1.0, seed), [lead] * 10)
        write_run(tmp_path, config("CartPole-v1", 1.0, seed, control="rescaled"), [0.0] * 10)
    (claim,) = judge_rescaling(_series(tmp_path), SCOPE)
    assert (claim.verdict, claim.settle) == ("inconclusive", "about 99 seeds")  # ((1.96 + 0.84) * 1.77 / 0.5)^2
    (short,) = judge_rescaling(_series(tmp_path), Scope({"CartPole-v1": 20_000}, "bsrs reproduce it"))
    assert short.settle == "bsrs reproduce it"


def test_the_two_potentials_of_pendulum_are_compared_at_the_same_eta_and_seed(tmp_path: Path) -> None:
    for seed in range(7):
        curve = made_up_curve("Pendulum-v1", 1.0, seed)
        for lead, potential in ((0.0, "replay"), (5 + 0.1 * seed, "policy")):
            run = config("Pendulum-v1", 1.0, seed, "td3", potential=potential)
            write_run(tmp_path / potential, run, (curve + lead).tolist())
    overlaid = series_of(read_runs(tmp_path)[0], ["potential"])
    (claim,) = judge_potentials(overlaid, SCOPE)
    assert claim.verdict == "holds"
    assert claim.shown.startswith("policy beats replay in 100% of runs at eta 1")


def test_tuned_agents_are_judged_together_each_algorithm_for_itself(tmp_path: Path) -> None:
    """A gain on CartPole and a loss in SAC, both of the same size in their own units, leave a trace of TD3's gain."""
    for seed in range(8):
        noise = (seed % 4 - 1.5, (seed + 1) % 4 - 1.5)  # without and with shaping
        for (env, algorithm), lead in {("CartPole-v1", "dqn"): 10.0, ("Pendulum-v1", "sac"): -10.0}.items():
            for eta in (0.0, 1.0):  # what all tasks have
                scores = [lead * eta + noise[int(eta)]] * 10
                write_run(tmp_path / algorithm, config(env, eta, seed, algorithm), scores)
        for eta, score in {0.0: noise[0], 1.0: 0.5 + noise[1], 2.0: 50.0, "auto": 30.0 + noise[1]}.items():
            write_run(tmp_path / "td3", config("Pendulum-v1", eta, seed, "td3"), [score] * 10)
    series = _series(tmp_path)
    constant, auto = (
        gains("it adds", series, replace(SCOPE, questions=2)),
        gains("it adds", [each for each in series if each.eta in (0.0, "auto")], SCOPE, schedule="auto"),
    )
    assert constant.verdict == "inconclusive"
    assert "with eta 1: CartPole-v1 +8.94, Pendulum-v1 (SAC) -8.94, Pendulum-v1 (TD3) +0.45" in constant.shown
    assert constant.settle == "more than 1,000 seeds"
    assert auto.verdict == "holds"
    assert auto.shown.endswith("with eta auto: Pendulum-v1 (TD3)")
    few = judge_zoo(series, SCOPE)
    assert _verdicts(few) == ["inconclusive"] * 2
    assert [claim.shown.partition("; ")[2] for claim in few] == [f"too small to tell: {n} of 6 tasks" for n in (3, 1)]
    panels = draw_variants("zoo", series)["zoo"].axes
    titles = [ax.get_title("left") for ax in panels if ax.get_visible()]
    assert titles == ["CartPole-v1", "Pendulum-v1 (SAC)", "Pendulum-v1 (TD3)"]


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
    names = [ax.get_title("left").rpartition("=")[2] for ax in panels]
    assert names == ["online", "split", "target"]
    assert all(len(ax.lines) == 2 for ax in panels)  # eta = 0 is in each of them


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


# ---- for real, at the smallest scale


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("all")
    main(["reproduce", "all", "--scale", "smoke", "--out", str(out), "--no-tensorboard"])
    return out


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_runs_draws_and_judges(name: str, everything: Path) -> None:
    claims = json.loads((everything / name / "claims.json").read_text())["claims"]
    assert {claim["verdict"] for claim in claims} == {"inconclusive"}  # a few hundred steps show nothing
    figures = list((everything / name / "figures").iterdir())
    assert {path.suffix for path in figures} == {".pdf", ".png"}
    assert f"{name}-diagnostics.png" in {path.name for path in figures}
    assert (everything / name / "report.html").stat().st_size > 1e6


@pytest.mark.timeout(900)
def test_everything_ends_in_one_report(everything: Path) -> None:
    html = (everything / "report.html").read_text()
    for text in ("Hopper-v4 · td3", "RoadRunnerNoFrameskip-v4 · dqn", "tabular-eta", "The shaped operator contracts"):
        assert text in html


def test_an_env_that_is_none_of_the_experiment_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "pendulum", "--env", "Pendulum-v0", "--out", str(tmp_path)])


def test_runs_that_are_there_are_judged_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of no preset's, in folders of any name; one that cannot be read is named."""
    assert 1.5 not in read_sweep("paper-pendulum", "paper", {}).eta
    fields = {"steps": 20_000, "eval_every": 2_000}
    write_sweep(tmp_path / "anywhere", ["Pendulum-v1"], [0.0, 1.5], 6, algorithm="td3", **fields)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(SystemExit, match="1"):
        main(["reproduce", "pendulum", "--no-train", "--out", str(tmp_path)])
    assert "no result: broken" in capsys.readouterr().out
    first, *others = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert first["verdict"] == "holds"
    assert {claim["verdict"] for claim in others} == {"inconclusive"}
    assert (tmp_path / "figures" / "pendulum.png").exists()


def test_nothing_to_draw_is_told(tmp_path: Path) -> None:
    """Every run diverged before its first evaluation."""
    for each in expand(read_sweep("rescaling", "smoke", {})):
        write_run(tmp_path, each, [], "diverged", "mean value is nan")
    with pytest.raises(BadInput, match="nothing to draw"):
        reproduce("rescaling", "smoke", tmp_path, SweepOptions())


@pytest.mark.parametrize(
    ("above", "verdicts"),
    [
        ((20.0, 20.0), ["holds"] * 3),  # better than every constant
        ((10.0, 9.6), ["holds"] * 3),  # as the best constant, within the margin
        ((10.0, 8.0), ["holds", "holds", "inconclusive"]),  # below the margin, in the noise
        ((0.0, 1.0), ["holds", "holds", "does not hold"]),  # as plain
        ((-15.0, 20.0), ["does not hold", "holds", "does not hold"]),  # clearly worse on one env
    ],
)
def test_auto_is_judged_by_its_criterion(above: tuple[float, float], verdicts: list[str], tmp_path: Path) -> None:
    """Plain scores 0, eta 1 scores 10 on both envs, and split 5; auto is two points up or down, by the seed."""
    for env, auto in zip(("Acrobot-v1", "CartPole-v1"), above, strict=True):
        for seed in range(10):
            settings = [(0.0, "online", 0.0), (1.0, "online", 10.0), (1.0, "split", 5.0), ("auto", "online", auto)]
            for eta, network, score in settings:
                scores = [score + (seed % 2 * 4 - 2) * (eta == "auto")] * 10
                write_run(tmp_path, config(env, eta, seed, potential_network=network), scores)
    claims = judge_auto(_series(tmp_path), Scope({}, "more"))
    assert [claim.verdict for claim in claims] == verdicts * 2
    assert "against 1" in claims[2].shown
    assert set(draw_auto(_series(tmp_path))) == {"auto-eta"}


def test_the_runs_of_auto_eta_hold_nothing_twice() -> None:
    experiment = EXPERIMENTS["auto-eta"]
    assert len(experiment.configs("laptop", ["LunarLander-v3"])) == 10 * (1 + 2 * 4 + 1)
