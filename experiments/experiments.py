"""The paper's experiments by name: the runs that each needs, its figures and its claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bsrs.config.algorithms import use_plugin
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, printable, unknown
from bsrs.figures.style import project_style, save
from bsrs.stats.records import Series, read_run, read_runs, series_of
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.plan import expand, read_sweep
from experiments import anatomy, auto_eta, zoo
from experiments.atari import draw_games, judge_atari, judge_minatar
from experiments.claims import Claim, Scope, corrected, print_claims, write_claims
from experiments.continuous import (
    judge_mujoco,
    judge_pendulum,
    judge_rescaling,
    judge_target_ablation,
    with_one_baseline,
    with_rescaled_controls,
)
from experiments.figures import draw_pendulum, draw_variants
from experiments.variants import PLUGIN, with_options


def planned(
    preset: str,
    scale: str,
    *,
    smoke: Mapping[str, Any] | None = None,
    runs: Callable[[Sequence[TrainingConfig]], list[TrainingConfig]] = list,
) -> list[TrainingConfig]:
    """List the runs that are needed, given those of a sweep preset. The smallest scale may have other settings, so that
    there is enough to draw."""
    sweep = read_sweep(preset, scale, {})
    return runs(expand(replace(sweep, **smoke) if smoke and scale == "smoke" else sweep))


@dataclass(frozen=True)
class Experiment:
    """One of the paper's, or our own."""

    plan: Callable[[str], Sequence[TrainingConfig]]
    """Its runs at a scale."""
    draw: Callable[[Sequence[Series]], dict[str, Figure]]
    judge: Callable[[Sequence[Series], Scope], list[Claim]]
    settle: str
    """The command that trains enough for a verdict."""
    corrects: bool = False
    """Whether its judge corrects for the number of claims, because there are several kinds."""

    def configs(self, scale: str, envs: Sequence[str] = (), seeds: int = 0) -> list[TrainingConfig]:
        """List the runs at a scale, on these envs or, if none is named, on all; `seeds` replaces the scale's number."""
        planned = self.plan(scale)
        known = list(dict.fromkeys(config.env for config in planned))
        for env in envs:
            if env not in known:
                raise unknown("env of this experiment", env, known)
        found = [config for config in planned if not envs or config.env in envs]
        if not seeds:
            return found
        first = min(config.seed for config in found)
        alike = dict.fromkeys(replace(config, seed=first) for config in found)
        return [replace(config, seed=first + i) for i in range(seeds) for config in alike]

    def scope(self) -> Scope:
        """State what a verdict needs."""
        steps: dict[str, int] = {}
        for scale in ("laptop", "paper"):  # the paper's, where it has the env
            lengths = sorted({(config.env, config.steps) for config in self.plan(scale)}, reverse=True)
            steps |= dict(lengths)  # of an env with two settings, the shorter
        return Scope(steps, self.settle)

    def claims(self, series: Sequence[Series]) -> list[Claim]:
        """Judge the claims, corrected for how many there are."""
        scope = self.scope()
        for each in series:
            if each.env not in scope.steps:
                raise unknown("env of this experiment", each.env, scope.steps)
        claims = self.judge(series, scope)
        return claims if self.corrects else corrected(claims)


COMMAND = "python -m experiments"
CLUSTER = "a GPU cluster: " + COMMAND
# Two whose episodes are short however badly they are played.
TWO_GAMES = {"env": ("PongNoFrameskip-v4", "RoadRunnerNoFrameskip-v4"), "eta": (0.0, 2.0), "seeds": 2}

EXPERIMENTS: dict[str, Experiment] = {
    "atari": Experiment(
        partial(planned, "paper-atari", smoke=TWO_GAMES),
        partial(draw_games, "atari"),
        judge_atari,
        f"{CLUSTER} atari --scale paper --seeds 10 --executor slurm",
    ),
    "pendulum": Experiment(
        partial(planned, "paper-pendulum"), draw_pendulum, judge_pendulum, f"{COMMAND} pendulum --scale paper"
    ),
    "mujoco": Experiment(
        partial(planned, "paper-mujoco"),
        partial(draw_variants, "mujoco"),
        judge_mujoco,
        f"{CLUSTER} mujoco --scale paper --seeds 10 --executor slurm",
    ),
    "target-ablation": Experiment(
        partial(planned, "paper-target-ablation", runs=with_one_baseline),
        partial(draw_variants, "target-ablation"),
        judge_target_ablation,
        f"{COMMAND} target-ablation --scale paper --seeds 10",
    ),
    "auto-eta": Experiment(
        auto_eta.plan, auto_eta.draw_auto, auto_eta.judge_auto, f"{COMMAND} auto-eta --scale laptop", corrects=True
    ),
    "anatomy": Experiment(
        anatomy.plan,
        anatomy.draw_anatomy,
        anatomy.judge_anatomy,
        f"{COMMAND} anatomy --scale laptop",
        corrects=True,
    ),
    "minatar": Experiment(
        partial(planned, "minatar"),
        partial(draw_games, "minatar"),
        judge_minatar,
        f"{COMMAND} minatar --scale paper",
    ),
    "zoo": Experiment(
        zoo.plan, partial(draw_variants, "zoo"), zoo.judge_zoo, f"{COMMAND} zoo --scale laptop", corrects=True
    ),
    "rescaling": Experiment(
        partial(planned, "rescaling", runs=with_rescaled_controls),
        partial(draw_variants, "rescaling"),
        judge_rescaling,
        f"{COMMAND} rescaling --scale paper",
    ),
}


def reproduce(
    name: str, scale: str, out: Path, options: SweepOptions, envs: Sequence[str] = (), *, seeds: int = 0,
    train: bool = True,
) -> None:  # fmt: skip
    """Run, or continue, the sweep in `out`; judge its claims; draw its figures.

    Without training, of all runs that are in `out`, whatever their scale.
    """
    experiment = EXPERIMENTS[name]
    use_plugin(PLUGIN)  # for the processes that train
    if train:
        configs = experiment.configs(scale, envs, seeds)
        problems = run_sweep(configs, out, options).problems
        folders = [out / folder_name(config) for config in configs]
        runs = [read_run(folder) for folder in folders if (folder / "config.json").exists()]
    else:
        found, unreadable = read_runs(out)
        runs = [run for run in found if not envs or run.config.env in envs]
        problems = {folder.name: reason for folder, reason in unreadable.items()}
    series = series_of([with_options(run) for run in runs])
    if not series:
        raise BadInput(f"{out}: no run has ended with a score, so there is nothing to draw")
    claims = experiment.claims(series)
    write_claims(out / "claims.json", claims)
    with project_style():
        figures = experiment.draw(series)
    files = [path for stem, figure in figures.items() for path in save(figure, out / "figures" / stem)]
    print_claims(claims)
    for path in files:
        print(f"wrote {path}")
    for run, why in problems.items():
        print(printable(f"no result: {run}: {why}"))
    print(f"for a report: bsrs report {out}")
    if problems:
        raise SystemExit(1)
