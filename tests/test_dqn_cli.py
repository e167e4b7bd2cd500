"""`bsrs train dqn` and `bsrs play` from the outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsrs.cli import main
from bsrs.store import read_config, read_metrics, read_result

SHORT = "--steps 200 --learning-starts 50 --buffer-size 200 --eval-every 0 --eval-episodes 1 --log-every 100"
SHORT += " --threads 1"


def train(words: str, out: Path) -> None:
    main([*f"train dqn {SHORT} {words}".split(), "--out", str(out)])


def fails(capsys: pytest.CaptureFixture[str], words: str, out: Path) -> str:
    with pytest.raises(SystemExit) as stop:
        train(words, out)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_a_run_and_its_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    train("--env CartPole-v1 --eta 2 --double", out)
    assert "finished at step 200" in capsys.readouterr().out
    config = read_config(out)
    assert (config.eta, config.double, config.hidden) == (2.0, True, (64, 64))  # type: ignore[attr-defined]
    assert read_result(out)["outcome"] == "finished"  # type: ignore[index]
    main(["play", str(out), "--out", str(tmp_path / "video.gif"), "--most-steps", "5"])
    assert (tmp_path / "video.gif").read_bytes()[:6] == b"GIF89a"
    with pytest.raises(SystemExit):
        main(["play", str(out), "--out", str(tmp_path / "video.avi")])
    assert "expected .gif or .mp4" in capsys.readouterr().err


def test_several_etas_and_seeds_are_a_population(tmp_path: Path) -> None:
    train("--env CartPole-v1 --eta 0 0.5 --seed 0 1", tmp_path)
    runs = sorted(path.parent for path in tmp_path.glob("*/result.json"))
    members = {(config.eta, config.seed) for config in map(read_config, runs)}
    assert members == {(0.0, 0), (0.0, 1), (0.5, 0), (0.5, 1)}
    assert all(read_metrics(run)[-1]["kind"] == "eval" for run in runs)


def test_an_eta_schedule(tmp_path: Path) -> None:
    train("--env CartPole-v1 --eta linear:2:0:150", tmp_path / "run")
    assert read_config(tmp_path / "run").eta == "linear:2:0:150"


def test_the_preset_suits_the_env_unless_one_is_named(tmp_path: Path) -> None:
    train("--env MinAtar/Breakout-v0", tmp_path / "a")
    train("--env CartPole-v1 --preset minatar", tmp_path / "b")
    assert [read_config(tmp_path / name).learning_rate for name in "ab"] == [2.5e-4, 2.5e-4]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--env CartPol-v1", "unknown env 'CartPol-v1': did you mean CartPole"),
        ("--env Pendulum-v1", "continuous actions"),
        ("--env CartPole-v1 --eta nan", "eta is nan"),
        ("--env CartPole-v1 --eta linear:1", "cannot be read"),
        ("--env CartPole-v1 --gamma 1.5", "gamma is 1.5; expected between 0 and 1"),
        ("--env CartPole-v1 --batch-size 0", "batch_size is 0; expected at least 1"),
        ("--env CartPole-v1 --learning-rate -1", "learning_rate is -1.0"),
        ("--env CartPole-v1 --preset atri", "unknown dqn preset 'atri': did you mean atari"),
        ("--env CartPole-v1 --double --temperature 0.1", "double and temperature"),
        ("--env CartPole-v1 --device moon", "bsrs: device is 'moon'; expected cpu"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, says: str
) -> None:
    assert says in fails(capsys, words, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    train("--env CartPole-v1 --eta 1", out)
    before = (out / "metrics.jsonl").read_bytes()
    assert "eta 1.0, not 2.0" in fails(capsys, "--env CartPole-v1 --eta 2", out)
    assert "ended already: finished" in fails(capsys, "--env CartPole-v1 --eta 1 --resume", out)
    assert (out / "metrics.jsonl").read_bytes() == before
