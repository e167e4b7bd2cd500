"""eta = auto against every constant, on tasks and seeds that played no part in the choice of its rule.

The tuned agents of rl-baselines3-zoo, four MinAtar games, and LunarLander with our own settings. Gains are in reference
ranges, (score - random) / (reference - random), so that tasks can be averaged.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller

import numpy as np
from matplotlib.figure import Figure

from bsrs.config.settings import RunSettings
from bsrs.config.sweep import SweepConfig
from bsrs.config.training import TrainingConfig
from bsrs.figures.style import BLACK, GREY, eta_colours, eta_label, new_figure
from bsrs.stats import bootstrap, mean
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import SEED, failures_of, gain, task_reference
from bsrs.sweep.plan import SCALES, expand, read_sweep
from experiments import zoo
from experiments.claims import Claim, Scope, Value, area, corrected, failures_text, final, judged
from experiments.pooling import UNIT, against_zero, lead_of, span_of, too_few
from experiments.records import is_of_version_0_1

CONSTANTS = (0.0, 0.5, 1.0, 2.0, 5.0)
FIRST_SEED = 100
OWN_SETTINGS = SweepConfig(
    algorithm="dqn", env=("LunarLander-v3",), seeds=10, first_seed=FIRST_SEED, fields={"steps": 50_000}
)
OLD_RULE = "auto (version 0.1)"
Settings = dict[float | str, Series]  # by eta


def sweeps(scale: str) -> dict[str, list[TrainingConfig]]:
    """Every run at a scale, by task. MinAtar has the seeds of its own study, whose constants need no second run."""
    zoo_sweeps = {name: dataclasses.replace(read_sweep(name, scale, {}), first_seed=FIRST_SEED) for name in zoo.PRESETS}
    found = {f"{name.removeprefix('zoo-')}, tuned": sweep for name, sweep in zoo_sweeps.items()}
    minatar = read_sweep("minatar", scale, {})
    found |= {env.split("/")[1]: dataclasses.replace(minatar, env=(env,)) for env in minatar.env}
    if scale != "smoke":
        found["lunarlander, our settings"] = OWN_SETTINGS
    etas = (0.0, 1.0, "auto") if scale == "smoke" else (*CONSTANTS, "auto")
    return {name: expand(dataclasses.replace(sweep, eta=etas)) for name, sweep in found.items()}


def plan(scale: str) -> list[TrainingConfig]:
    """List every run at a scale."""
    return [config for own in sweeps(scale).values() for config in own]


def by_task(series: Sequence[Series]) -> dict[str, Settings]:
    """Part the series into tasks. Only those with the baseline and auto count; version 0.1 had another auto."""
    names = {
        RunSettings.of(config).identity: name
        for scale in SCALES
        for name, configs in sweeps(scale).items()
        for config in configs
    }
    found: dict[str, Settings] = {}
    for each in series:
        if name := names.get(each.runs[0].config.identity):
            is_old = each.eta == "auto" and is_of_version_0_1(each.runs[0])
            found.setdefault(name, {})[OLD_RULE if is_old else each.eta] = each
    return {name: own for name, own in found.items() if {0.0, "auto"} <= own.keys()}


@dataclass(frozen=True)
class Lead:
    """How far auto is ahead of another setting on one task."""

    task: str
    auto: Series
    other: Series

    def mean(self, value: Value) -> float:
        """Return the mean lead over all seeds that both have, in reference ranges."""
        return float(lead_of(value, [(self.auto, self.other)]).mean())


def leads(tasks: dict[str, Settings], choose: Callable[[Settings], Series | None]) -> list[Lead]:
    """Compare auto with the setting that `choose` picks on each task, where there is one."""
    return [Lead(name, own["auto"], other) for name, own in tasks.items() if (other := choose(own))]


def judge_auto(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Ahead of every constant and the earlier rule; not below the baseline at the end; near each task's best constant.

    The tests are over tasks: MinAtar's six seeds are too few for so many questions.
    """
    tasks = by_task(series)
    if not tasks:
        return []
    scope = dataclasses.replace(scope, tasks=len(sweeps("paper")))
    claims = []
    for eta in (*CONSTANTS, OLD_RULE):
        found = leads(tasks, methodcaller("get", eta))
        other = eta if isinstance(eta, str) else f"eta = {eta:g}" if eta else "the baseline"
        for when, value in (("over training", area), ("at the end", final)) if found else ():
            claims.append(_judged(f"(Ours) eta = auto is ahead of {other}, {when}", found, value, scope))
    text = "(Ours) eta = auto does not lower the final score"
    claims.append(_judged(text, leads(tasks, methodcaller("get", 0.0)), final, scope, low=-MARGIN))
    text = "(Ours) eta = auto is as good as the best constant of each task, over training"
    claims.append(_judged(text, leads(tasks, _best), area, scope, low=-MARGIN))
    return corrected(claims)


def _judged(text: str, found: Sequence[Lead], value: Value, scope: Scope, low: float | None = None) -> Claim:
    """Judge the mean over tasks: above 0 or, given `low`, above that margin."""
    each = np.array([lead.mean(value) for lead in found])
    effect = against_zero(each) if low is None else within(each, 0 * each, low=low, seed=SEED)
    by_task = ", ".join(f"{lead.task} {mean:+.2f}" for lead, mean in zip(found, each, strict=True))
    shown = f"{effect.mean:+.3g} {UNIT}{'' if low is None else f' (margin {-low})'}: {by_task}"
    autos, others = [lead.auto for lead in found], [lead.other for lead in found]
    failures = failures_text(autos, others).replace("baseline", "the other")
    small = too_few([*autos, *others], len(found), scope)
    return judged(text, effect, shown, scope, small=small, failures=failures)


def _best(own: Settings) -> Series:
    return max(
        (each for eta, each in own.items() if not isinstance(eta, str)), key=lambda each: float(each.area.mean())
    )


def auto_table(series: Sequence[Series]) -> list[str]:
    """Every setting on every task: its gains over the baseline in the score's own units, and its failed runs."""
    lines = [
        "| task | eta | seeds | gain over training | change at the end | failed runs |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in by_task(series).items():
        for eta in sorted(own, key=_order):
            each, fails = own[eta], failures_of(own[eta], task_reference(own[eta].task, list(own.values())))
            gains = ["", ""] if eta == 0.0 else [gain(each, own[0.0], value) for value in (area, final)]
            lines.append(f"| {name} | {eta_label(eta)} | {len(each.seeds)} | {gains[0]} | {gains[1]} | {fails} |")
    return lines


def _order(eta: float | str) -> tuple[bool, float]:
    return isinstance(eta, str), 0.0 if isinstance(eta, str) else eta


def draw_auto(series: Sequence[Series]) -> dict[str, Figure]:
    """The gain of every setting over the baseline: a small dot for each task, a large one for their mean."""
    tasks = by_task(series)
    etas = sorted({eta for own in tasks.values() for eta in own} - {0.0}, key=_order)
    colours = eta_colours([0.0, *etas])
    figure, axes = new_figure(7, 0.6 + 0.35 * max(len(etas), 3), 1, 2, sharey=True)
    for ax, title, value in zip(axes, ("over training", "at the end"), (area, final), strict=True):
        for row, eta in enumerate(etas):
            pairs = [(own[eta], own[0.0]) for own in tasks.values() if eta in own]
            gains = [(value(a).mean() - value(b).mean()) / span_of(b, [a, b]) for a, b in pairs]
            over_tasks = bootstrap(mean, np.array(gains)[:, None], seed=SEED)
            ax.plot(gains, [row] * len(gains), "o", color=colours[eta], markersize=3, alpha=0.5)
            ax.plot(over_tasks.estimate, row, "o", color=colours[eta], markersize=7, markeredgecolor=BLACK)
        ax.axvline(0, color=GREY, linewidth=0.8)
        ax.set_yticks(range(len(etas)), [eta_label(eta) for eta in etas])
        ax.set_title(title, loc="left")
        ax.set_xlabel("gain over the baseline, in reference ranges")
    return {"auto": figure}
