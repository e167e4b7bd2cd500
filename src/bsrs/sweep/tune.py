"""Eta searched instead of swept: Optuna proposes, the sweep's workers try, the runs' folders remember.

A trial is one eta with several seeds; its runs are those of a sweep. Started again, the search goes on: what Optuna
knows is in `optuna.jsonl`, and each proposal has a random stream of its own, so an interruption changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsrs.config.sweep import SweepConfig, SweepOptions, TuneConfig
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, MissingExtra
from bsrs.rng import stream_seed
from bsrs.store.listing import RunStatus, run_status
from bsrs.store.names import folder_name
from bsrs.store.read import read_metrics
from bsrs.sweep.executors import Executor, make_executor
from bsrs.sweep.plan import expand, tasks_left
from bsrs.sweep.schedule import carry_out, sweep_folder

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """What became of one eta."""

    number: int
    eta: float
    score: float | None
    """Mean over the seeds; None if it was stopped early or diverged."""
    state: str


def tune(
    config: TuneConfig,
    root: Path,
    options: SweepOptions,
    told: Callable[[str], None],
    executor: Executor | None = None,
) -> list[Trial]:
    """Search until there are `config.trials` trials, those of earlier calls among them."""
    optuna = _optuna()
    base = expand(
        SweepConfig(algorithm=config.algorithm, env=(config.env,), preset=config.preset, fields=config.fields)
    )[0]
    with sweep_folder(root, []):
        study = _study(optuna, config, root)
        executor = executor or make_executor(options, root)
        try:
            while len(_ended(study)) < config.trials:
                _try_one(optuna, study, config, base, _Workers(root, options, executor, told))
        finally:
            executor.close()
        return _ended(study)


def best(trials: Sequence[Trial]) -> Trial:
    """The trial with the highest score."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise BadInput("no trial was finished: there is no best eta")
    return max(scored, key=lambda trial: trial.score or 0.0)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("bsrs tune", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, config: TuneConfig, root: Path) -> optuna.Study:
    """The study in the folder. A trial that a killed process left in the middle is proposed again."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(root / "optuna.jsonl")))
    pruner = optuna.pruners.MedianPruner(config.startup) if config.prune else optuna.pruners.NopPruner()
    study = optuna.create_study(
        storage=storage, study_name="eta", direction="maximize", pruner=pruner, load_if_exists=True
    )
    about = {**dataclasses.asdict(config), "trials": None}
    theirs = study.user_attrs.get("config", about)
    if theirs != about:
        different = ", ".join(name for name in about if theirs.get(name) != about[name])
        raise BadInput(f"{root} holds another search (different {different}); choose another folder")
    study.set_user_attr("config", about)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    return study


def _ended(study: optuna.Study) -> list[Trial]:
    states = {"COMPLETE": "finished", "PRUNED": "stopped early"}
    return [
        Trial(trial.number, trial.params["eta"], trial.value if trial.state.name == "COMPLETE" else None, states[name])
        for trial in study.get_trials()
        if (name := trial.state.name) in states
    ]


@dataclass(frozen=True)
class _Workers:
    """All that it takes to carry out the runs of a trial."""

    root: Path
    options: SweepOptions
    executor: Executor
    told: Callable[[str], None]


def _try_one(optuna: Any, study: optuna.Study, config: TuneConfig, base: TrainingConfig, workers: _Workers) -> None:
    """One trial from its proposal to its end."""
    number = len(_ended(study))
    study.sampler = optuna.samplers.TPESampler(
        n_startup_trials=config.startup, seed=stream_seed(config.seed, "tune", number)
    )
    trial = study.ask()
    eta = trial.suggest_float("eta", config.low, config.high)
    configs = [dataclasses.replace(base, eta=eta, seed=seed) for seed in range(config.seeds)]
    folders = [workers.root / folder_name(one) for one in configs]
    try:
        _run_trial(configs, workers, Curve(trial, folders))
        statuses = [run_status(folder) for folder in folders]
    except StoppedEarly:
        statuses = []
    scores = [status.score for status in statuses if status.state == "finished" and status.score is not None]
    if statuses and len(scores) == len(statuses):
        study.tell(trial, sum(scores) / len(scores))
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    workers.told(f"[{number + 1}/{config.trials}] {_words(eta, statuses, scores)}")


def _words(eta: float, statuses: Sequence[RunStatus], scores: Sequence[float]) -> str:
    if not statuses:
        return f"eta {eta:.4g}: stopped early"
    if len(scores) < len(statuses):
        return f"eta {eta:.4g}: diverged"
    return f"eta {eta:.4g}: score {sum(scores) / len(scores):.2f}"


def _run_trial(configs: Sequence[TrainingConfig], workers: _Workers, curve: Curve) -> None:
    tasks = tasks_left(configs, workers.root, workers.options)
    try:
        summary = carry_out(tasks, workers.executor, curve, retries=workers.options.retries)
        curve.tick()  # the last points
    except StoppedEarly:
        for task in tasks:
            workers.executor.cancel(task)
        raise
    for name, why in summary.problems.items():
        raise BadInput(f"{name}: {why}")


class StoppedEarly(Exception):
    """The trial is not worth going on with."""


class Curve:
    """Watches the runs of a trial, and tells Optuna the mean of their scores wherever all have come so far."""

    def __init__(self, trial: optuna.Trial, folders: Sequence[Path]) -> None:
        self._trial, self._folders = trial, folders
        self._reported = 0

    def run_ended(self, status: RunStatus) -> None: ...

    def said(self, message: str) -> None: ...

    def tick(self) -> None:
        curves = [
            {line["step"]: line["score"] for line in read_metrics(folder) if line["kind"] == "eval"}
            for folder in self._folders
        ]
        common = sorted(set.intersection(*(set(curve) for curve in curves)))
        for step in common[self._reported :]:
            self._trial.report(sum(curve[step] for curve in curves) / len(curves), step)
            self._reported += 1
            if self._trial.should_prune():
                raise StoppedEarly
