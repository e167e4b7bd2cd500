"""Every experiment at its smallest scale."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput
from bsrs.stats.records import read_runs, series_of
from bsrs.sweep.plan import read_sweep
from experiments.__main__ import main
from experiments.calibration import DRAWS
from experiments.claims import Scope
from experiments.continuous import judge_rescaling
from experiments.experiments import EXPERIMENTS, reproduce
from experiments.variants import with_options
from run_folders import write_run, write_sweep

# ---- for real, at the smallest scale


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("all")
    main(["all", "--scale", "smoke", "--out", str(out), "--no-tensorboard", "--kernels", "off"])
    return out


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_runs_draws_and_judges(name: str, everything: Path) -> None:
    claims = json.loads((everything / name / "claims.json").read_text())["claims"]
    assert {claim["verdict"] for claim in claims} == {"inconclusive"}  # a few hundred steps show nothing
    figures = list((everything / name / "figures").iterdir())
    assert {path.suffix for path in figures} == {".pdf", ".png"}
    html = (everything / "report.html").read_text()
    assert all(path.stem in html for path in figures)
    assert all(claim["claim"] in unescape(html) for claim in claims)


@pytest.mark.timeout(900)
def test_everything_ends_in_one_report(everything: Path) -> None:
    html = (everything / "report.html").read_text()
    for text in ("Hopper-v4 · td3", "RoadRunnerNoFrameskip-v4 · dqn", "tabular-eta", "The shaped operator contracts"):
        assert text in html
    assert "probability of beating" in html
    assert "TD loss" in html


def test_an_env_that_is_none_of_the_experiment_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pendulum", "--env", "Pendulum-v0", "--out", str(tmp_path)])


def test_runs_that_are_there_are_judged_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of no preset's, in folders of any name; one that cannot be read is named."""
    assert 1.5 not in read_sweep("paper-pendulum", "paper", {}).eta
    fields = {"steps": 20_000, "eval_every": 2_000}
    write_sweep(tmp_path / "anywhere", ["Pendulum-v1"], [0.0, 1.5], 6, algorithm="td3", **fields)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(SystemExit, match="1"):
        main(["pendulum", "--no-train", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "no result: broken" in printed
    assert printed.endswith(f"bsrs report {tmp_path}\n")
    first, *others = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert first["verdict"] == "holds"
    assert {claim["verdict"] for claim in others} == {"inconclusive"}
    assert (tmp_path / "figures" / "pendulum.png").exists()


def test_nothing_to_draw_is_told(tmp_path: Path) -> None:
    """Every run diverged before its first evaluation."""
    for each in EXPERIMENTS["rescaling"].configs("smoke"):
        write_run(tmp_path, each, [], "diverged", "mean value is nan")
    with pytest.raises(BadInput, match="nothing to draw"):
        reproduce("rescaling", "smoke", tmp_path, SweepOptions())


def test_auto_is_tested_on_seeds_of_its_own() -> None:
    """LunarLander is there twice: as the zoo tuned it, and with our own settings."""
    configs = EXPERIMENTS["auto-eta"].configs("laptop", ["LunarLander-v3"])
    assert len(configs) == 2 * 10 * 6
    assert {config.seed for config in configs} == set(range(100, 110))


def test_the_target_ablation_trains_one_baseline() -> None:
    configs = EXPERIMENTS["target-ablation"].configs("laptop", ["Acrobot-v1"])
    assert len([config for config in configs if config.eta == 0.0]) == len({config.seed for config in configs})


def test_variants_are_judged_as_options_of_their_algorithm(tmp_path: Path) -> None:
    """The control's runs are of the baseline's task, whichever version trained them."""
    configs = EXPERIMENTS["rescaling"].configs("smoke")
    assert {config.algorithm for config in configs} == {"dqn", "dqn-variant"}
    for each in configs:
        write_run(tmp_path, each, [float(each.seed + (each.algorithm == "dqn"))] * 3)
    series = series_of([with_options(run) for run in read_runs(tmp_path)[0]])
    assert {each.task.algorithm for each in series} == {"dqn"}
    assert {each.variant for each in series} == {"control=none", "control=rescaled"}
    (claim,) = judge_rescaling(series, Scope({"CartPole-v1": 600}, ""))
    assert "shaping beats rescaled in 100% of runs" in claim.shown


def test_calibration_leaves_and_prints_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["calibration", "--out", str(tmp_path), "--json"])
    document = json.loads((tmp_path / "calibration.json").read_text())
    assert json.loads(capsys.readouterr().out) == document
    assert document["draws"] == DRAWS["smoke"]
    assert {"statistic", "distribution", "n", "coverage", "false_holds"} <= document["rows"][0].keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pendulun", "unknown command 'pendulun': did you mean pendulum?"),
        ("pendulum --scael smoke", "unknown flag --scael: did you mean --scale?"),
        ("pendulum --scale big", "unknown --scale 'big': expected one of laptop, paper, smoke"),
        ("theory --env CartPole-v1", "--env: theory does not take it"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    told = capsys.readouterr()
    assert (stop.value.code, told.out) == (2, "")
    assert message in told.err
    assert told.err.count("\n") == 1
