"""The paper's experiments by name: the sweep that each needs, its figures and its claims."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bsrs.config.algorithms import use_plugin
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, unknown
from bsrs.figures.style import project_style, save
from bsrs.report import Study, write_report
from bsrs.stats.comparison import FEWEST_SEEDS
from bsrs.stats.records import Series, read_run, read_runs, series_of
from bsrs.stats.summary import summary
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.plan import expand, read_sweep
from experiments import auto_eta, zoo
from experiments.anatomy import anatomy_table, draw_anatomy, judge_anatomy, lengths, plan
from experiments.atari import draw_games, judge_atari, judge_minatar
from experiments.claims import Claim, Scope, corrected, write_claims
from experiments.continuous import (
    draw_pendulum,
    draw_variants,
    judge_mujoco,
    judge_pendulum,
    judge_rescaling,
    judge_target_ablation,
    with_one_baseline,
    with_rescaled_controls,
)
from experiments.variants import PLUGIN, with_options


@dataclass(frozen=True)
class Experiment:
    """One of the paper's, or our own."""

    preset: str
    draw: Callable[[Sequence[Series]], dict[str, Figure]]
    judge: Callable[[Sequence[Series], Scope], list[Claim]]
    cluster: bool = False
    """Whether the paper's scale is out of reach of one machine."""
    smoke: Mapping[str, Any] = field(default_factory=dict)
    """What the smallest scale changes in the sweep's, so that there is enough to draw."""
    runs: Callable[[Sequence[TrainingConfig]], list[TrainingConfig]] = list
    """The runs that are needed, given the sweep's."""
    plan: Callable[[str, Sequence[str]], list[TrainingConfig]] | None = None
    """Its runs at a scale and on some envs, where they are more than a sweep."""
    lengths: Callable[[Sequence[str]], dict[str, int]] | None = None
    """With a plan: how long a run must be for a verdict, by env."""
    table: Callable[[Sequence[Series]], list[str]] | None = None
    """A table of its own, in Markdown."""

    def configs(self, scale: str, envs: Sequence[str], seeds: int = 0) -> list[TrainingConfig]:
        """List the runs at a scale, on these envs or, if none is named, on all; `seeds` replaces the scale's number."""
        if self.plan is not None:
            if seeds:
                raise BadInput("--seeds: this experiment plans its own seeds")
            return self.plan(scale, envs)
        sweep = read_sweep(self.preset, scale, {})
        for env in envs:
            if env not in sweep.env:
                raise unknown("env of this experiment", env, sweep.env)
        changes = dict(self.smoke) if scale == "smoke" else {}
        changes |= {"env": tuple(envs)} if envs else {}
        changes |= {"seeds": seeds} if seeds else {}
        return self.runs(expand(dataclasses.replace(sweep, **changes)))

    def scope(self, envs: Sequence[str]) -> Scope:
        """State what a verdict about these envs needs, or about all of the experiment's, if none is named."""
        name, as_run, _ = self.preset.removeprefix("paper-").partition("-as-run")
        command = f"python -m experiments {name}{' --as-run' if as_run else ''} --scale"
        if self.lengths is not None:
            return Scope(self.lengths(envs), f"{command} laptop")
        full = read_sweep(self.preset, "paper", {})
        one_of_each = expand(dataclasses.replace(full, env=tuple(envs) or full.env, eta=full.eta[:1], seeds=1))
        command += " paper --seeds 10" if full.seeds < FEWEST_SEEDS else " paper"
        where = f"a GPU cluster: {command} --executor slurm" if self.cluster else command
        return Scope({config.env: config.steps for config in one_of_each}, where)

    def claims(self, series: Sequence[Series]) -> list[Claim]:
        """Judge the claims, corrected for how many there are."""
        found = self.judge(series, self.scope(sorted({each.env for each in series})))
        return found if self.plan is not None else corrected(found)  # a plan's questions come in several kinds


# Two whose episodes are short however badly they are played.
TWO_GAMES = {"env": ("PongNoFrameskip-v4", "RoadRunnerNoFrameskip-v4"), "eta": (0.0, 2.0), "seeds": 2}

EXPERIMENTS: dict[str, Experiment] = {
    "atari": Experiment("paper-atari", partial(draw_games, "atari"), judge_atari, cluster=True, smoke=TWO_GAMES),
    "pendulum": Experiment("paper-pendulum", draw_pendulum, judge_pendulum),
    "mujoco": Experiment("paper-mujoco", partial(draw_variants, "mujoco"), judge_mujoco, cluster=True),
    "target-ablation": Experiment(
        "paper-target-ablation",
        partial(draw_variants, "target-ablation"),
        judge_target_ablation,
        runs=with_one_baseline,
    ),
    "auto-eta": Experiment(
        "auto-eta",
        auto_eta.draw_auto,
        auto_eta.judge_auto,
        plan=auto_eta.plan,
        lengths=auto_eta.lengths,
        table=auto_eta.auto_table,
    ),
    "anatomy": Experiment("anatomy", draw_anatomy, judge_anatomy, plan=plan, lengths=lengths, table=anatomy_table),
    "minatar": Experiment("minatar", partial(draw_games, "minatar"), judge_minatar),
    "zoo": Experiment("zoo", partial(draw_variants, "zoo"), zoo.judge_zoo, plan=zoo.plan, lengths=zoo.lengths),
    "rescaling": Experiment(
        "rescaling", partial(draw_variants, "rescaling"), judge_rescaling, runs=with_rescaled_controls
    ),
}


@dataclass(frozen=True)
class Reproduced:
    """The outcome of an experiment."""

    title: str
    claims: list[Claim]
    files: list[Path]
    problems: dict[str, str]
    """Run -> why it has no result."""


def reproduce(
    name: str, scale: str, out: Path, options: SweepOptions, envs: Sequence[str] = (), *, seeds: int = 0,
    as_run: bool = False, train: bool = True,
) -> Reproduced:  # fmt: skip
    """Run, or continue, the sweep in `out`; draw its figures; judge its claims; write the report.

    Without training, of all runs that are in `out`, whatever their scale.
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    if as_run:
        experiment = dataclasses.replace(experiment, preset=f"{experiment.preset}-as-run")
    use_plugin(PLUGIN)  # for the processes that train
    problems: dict[str, str] = {}
    unreadable: dict[Path, str] = {}
    if train:
        configs = experiment.configs(scale, envs, seeds)
        problems = run_sweep(configs, out, options).problems
        folders = [out / folder_name(config) for config in configs]
        runs = [read_run(folder) for folder in folders if (folder / "config.json").exists()]
    else:
        found, unreadable = read_runs(out)
        runs = [run for run in found if not envs or run.config.env in envs]
        problems = {folder.name: reason for folder, reason in unreadable.items()}
    runs = [with_options(run) for run in runs]
    series = series_of(runs)
    if not series:
        raise BadInput(f"{out}: no run has ended with a score, so there is nothing to draw")
    claims, rows = experiment.claims(series), summary(series)
    write_claims(out / "claims.json", claims)
    with project_style():
        figures = experiment.draw(series)
    title = f"{name}{'-as-run' if as_run else ''}" + (f", {scale}" if train else "")
    files = [path for stem, figure in figures.items() for path in save(figure, out / "figures" / stem)]
    if experiment.table is not None:
        files.append(out / f"{name}.md")
        files[-1].write_text("\n".join(experiment.table(series)) + "\n")
    study = Study(
        folders=[out],
        runs=runs,
        rows=rows,
        title=title,
        unreadable=unreadable,
        claims=[dataclasses.asdict(claim) for claim in claims],
        figures=[path for path in files if path.suffix == ".png"],
    )
    return Reproduced(title, claims, [*files, write_report(study, out / "report.html")], problems)
