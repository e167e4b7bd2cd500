"""The search for eta: it goes on after an interruption, stops hopeless trials, and gives its runs' means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bsrs.cli import main
from bsrs.config.sweep import TuneConfig
from bsrs.errors import BadInput
from bsrs.store.listing import list_runs
from bsrs.sweep.executors.local import LocalExecutor
from bsrs.sweep.plan import expand, tasks_left
from bsrs.sweep.tasks import Ended
from bsrs.sweep.tune import Curve, StoppedEarly, Trial, best, tune
from sweeping import OPTIONS, HereExecutor, small_sweep

optuna = pytest.importorskip("optuna")

CONFIG = TuneConfig(
    algorithm="dqn",
    env="CartPole-v1",
    trials=4,
    seeds=2,
    startup=2,
    fields={**small_sweep().fields, "steps": 200, "eval_every": 100},
)


def search(config: TuneConfig, root: Path, executor: Any = None) -> list[Trial]:
    return tune(config, root, OPTIONS, lambda message: None, executor or HereExecutor())


class _PowerCut(BaseException):
    """The process ends here."""


class DiesAfter(HereExecutor):
    """Its process is killed when so many tasks have ended."""

    def __init__(self, tasks: int) -> None:
        super().__init__()
        self._left = tasks

    def wait(self, timeout: float) -> list[Ended]:
        if self._left == 0:
            raise _PowerCut
        self._left -= 1
        return super().wait(timeout)


def test_an_interrupted_search_goes_on_to_the_same_end(tmp_path: Path) -> None:
    undisturbed = search(CONFIG, tmp_path / "undisturbed")
    with pytest.raises(_PowerCut):
        search(CONFIG, tmp_path / "disturbed", DiesAfter(3))
    disturbed = search(CONFIG, tmp_path / "disturbed")
    assert [(trial.eta, trial.score) for trial in disturbed] == [(trial.eta, trial.score) for trial in undisturbed]
    assert len({trial.eta for trial in undisturbed}) == 4
    scores = {trial.eta: trial.score for trial in undisturbed if trial.score is not None}
    for eta, score in scores.items():
        runs = [status.score or 0.0 for status in list_runs(tmp_path / "disturbed") if status.eta == eta]
        assert score == pytest.approx(sum(runs) / 2)
    assert best(undisturbed).score == max(scores.values())


def record(folder: Path, scores: Sequence[float]) -> None:
    folder.mkdir()
    lines = [f'{{"kind": "eval", "step": {100 * i}, "score": {score}}}\n' for i, score in enumerate(scores, start=1)]
    (folder / "metrics.jsonl").write_text("".join(lines))


def test_a_trial_below_the_median_is_stopped_in_the_middle(tmp_path: Path) -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(2))
    for number, start in enumerate((10.0, 12.0)):
        record(tmp_path / str(number), [start, start + 10, start + 20])
        trial = study.ask()
        Curve(trial, [tmp_path / str(number)]).tick()
        study.tell(trial, start + 20)
    record(tmp_path / "good", [14.0, 5.0])
    record(tmp_path / "bad", [12.0])
    curve = Curve(study.ask(), [tmp_path / "good", tmp_path / "bad"])
    curve.tick()  # 13 on average, where the median is 11; only one of them has come to the second point
    with (tmp_path / "bad" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "eval", "step": 200, "score": 3.0}\n')
    with pytest.raises(StoppedEarly):
        curve.tick()


def test_a_cancelled_task_stops_and_its_run_can_go_on(tmp_path: Path) -> None:
    sweep = small_sweep(fields={"steps": 200_000}, eta=(0.0,))
    (task,) = tasks_left(expand(sweep), tmp_path, OPTIONS)
    executor = LocalExecutor(1)
    try:
        executor.submit([task])
        while not list(tmp_path.glob("*/checkpoint")):
            assert executor.wait(0.1) == []
        executor.cancel(task)
        assert [status.state for status in list_runs(tmp_path)] == ["stopped"]
        assert executor.wait(0.1) == []
    finally:
        executor.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--steps 200 --learning-starts 50 --hidden 8 --trials 1 --seeds 1 --workers 1 --no-tensorboard"
    main(f"tune dqn --env CartPole-v1 {words} --out {tmp_path}".split())
    said = capsys.readouterr()
    assert said.out.startswith("best eta ")
    assert said.out.endswith("(1 trials, 0 not finished)\n")
    assert said.err.startswith("[1/1] eta ")


def test_another_search_in_the_folder_is_refused(tmp_path: Path) -> None:
    small = TuneConfig(**{**vars(CONFIG), "trials": 1, "seeds": 1})
    search(small, tmp_path)
    with pytest.raises(BadInput, match=r"holds another search \(different high\); choose another folder"):
        search(TuneConfig(**{**vars(small), "high": 9.0}), tmp_path)
    assert len(search(TuneConfig(**{**vars(small), "trials": 2}), tmp_path)) == 2  # more of the same is fine
