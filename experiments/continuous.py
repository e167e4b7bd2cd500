"""TD3 on Pendulum, Hopper and Humanoid; and two ways to do the same: online or target network, shaping or rescaling."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from bsrs.config.base import to_dict
from bsrs.config.training import TrainingConfig
from bsrs.figures.curves import learning_curves, sensitivity
from bsrs.figures.style import eta_colours, eta_label, new_figure
from bsrs.stats import probability_of_improvement
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import baseline_of, on_shared_seeds
from experiments.claims import (
    SEED,
    Claim,
    Scope,
    ahead,
    area,
    constant_etas,
    curves,
    final,
    judged,
    means,
    settles,
    too_small,
    tuned,
)
from experiments.pooling import gains_of, judge_pooled, pair_gains, span_of, too_few
from experiments.variant_configs import DQNVariantConfig

LARGE_ETAS = (5.0, 10.0)
VARIANTS = {
    "potential_network=online": "V from the online network",
    "potential_network=target": "V from the target network",
    "potential_network=split": "V(s) from the online, V(s′) from the target network",
    "potential=policy": "V(s) (the paper's text)",
    "potential=replay": "Q at the replayed action (the authors' code)",
    "control=none": "shaping",
    "control=rescaled": "rescaling only",
}  # what titles call the settings


def draw_pendulum(series: Sequence[Series]) -> dict[str, Figure]:
    """Draw learning curves for eta >= 0, with the paper's band (the standard error) inside the interval; the inset is
    the mean score over training for all etas."""
    etas = constant_etas(series)
    figure, (left, right) = new_figure(8.2, 3.2, 1, 2, width_ratios=(5, 4))
    learning_curves(left, curves([each for each in etas if float(each.eta) >= 0], standard_error=True), score="score")
    colours = eta_colours([each.eta for each in etas])
    sensitivity(
        right,
        [eta_label(each.eta) for each in etas],
        [colours[each.eta] for each in etas],
        means(etas, area),
        name="mean score over training",
        baseline=next((i for i, each in enumerate(etas) if each.eta == 0.0), None),
    )
    return {"pendulum": figure}


def judge_pendulum(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge: better for some eta above 0, robust at large ones, worse below 0. Each claim needs only its own runs."""
    etas = {float(each.eta): each for each in constant_etas(series)}
    comparisons = {f"Robust: eta = {eta:g} is still better than eta = 0": (eta, 0.0) for eta in LARGE_ETAS}
    lowest = min(etas, default=0.0)
    comparisons["A negative eta is worse than eta = 0"] = 0.0, lowest if lowest < 0 else math.nan
    scope = dataclasses.replace(scope, questions=1 + len(comparisons))
    claims = [_improves([each for eta, each in etas.items() if eta >= 0], scope)]
    claims += [ahead(text, etas.get(first), etas.get(second), scope) for text, (first, second) in comparisons.items()]
    return claims


def _improves(series: Sequence[Series], scope: Scope) -> Claim:
    """Judge whether some eta above 0 is better."""
    text, best, small = "BSRS improves TD3 on Pendulum over eta = 0", tuned(series, area), too_small(series, scope)
    if best is None:
        return judged(text, None, "", too_small=small, command=scope.command)
    settle = settles(small, best.held_out - best.baseline, scope)
    return judged(
        text, best.best.gain, best.words, too_small=small, command=settle, end=best.end, failures=best.failures
    )


def judge_potentials(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge our own question: does it matter that the authors' code had another potential than the text?"""
    text = "(Ours) The potential at the policy's action (the text) beats that at the replayed action (the code)"
    return _better(text, series, "potential", ("policy", "replay"), scope)


def judge_mujoco(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge: Hopper slightly better with a tuned eta; Humanoid not significantly."""

    def about(env: str, text: str, *, improves: bool) -> Claim:
        own = [each for each in series if each.env.startswith(env)]
        best, small = tuned(own, final), too_small(own, scope)
        if best is None:
            return judged(text, None, "", too_small=small, command=scope.command)
        effect = best.best.gain
        if not improves:
            margin = MARGIN * span_of(best.plain, own)
            effect = within(best.held_out, best.baseline, high=margin, seed=SEED)
        shown = f"{best.words} in the final score"
        return judged(text, effect, shown, too_small=small, command=scope.command, failures=best.failures)

    return [
        about("Hopper", "Hopper: slightly better with a tuned eta, perhaps within the noise", improves=True),
        about("Humanoid", "Humanoid: no statistically significant improvement", improves=False),
    ]


# --------------------------------------------------------------------------------------------------------------
# Two ways to do the same, at the same eta.


def draw_variants(name: str, series: Sequence[Series]) -> dict[str, Figure]:
    """Draw a row for each task with a panel for each variant, eta = 0 in all; or a panel for each task."""
    rows = [_panels(own) for own in by_task(series).values()]
    columns = max(map(len, rows))
    share = "row" if columns > 1 else False
    if columns == 1:
        columns, all_panels = min(len(rows), 2), [panel for (panel,) in rows]
        rows = [all_panels[i : i + columns] for i in range(0, len(all_panels), columns)]
    figure, axes = new_figure(4.1 * columns, 2.9 * len(rows), len(rows), columns, squeeze=False, sharey=share)
    for row, own_axes in zip(rows, axes, strict=True):
        for ax in own_axes[len(row) :]:
            ax.set_visible(False)
        for ax, (title, shown) in zip(own_axes, row, strict=False):
            learning_curves(ax, curves(shown, runs=True), score="score", legend=None)
            ax.set_title(title, loc="left")
    lines = {str(line.get_label()): line for ax in figure.axes for line in ax.lines}
    named = {label: line for label, line in lines.items() if not label.startswith("_")}
    figure.legend(list(named.values()), list(named), title="η", loc="outside right upper", handlelength=1.4)
    return {name: figure}


def _panels(series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    """List the panels of one task: the title and what it shows."""
    task = f"{series[0].config.algorithm.upper()} on {series[0].env}"
    variants = list(dict.fromkeys(each.variant for each in series if each.eta != 0.0))
    if len(variants) < 2:
        return [(task, list(series))]
    found = []
    for variant in variants:
        shaped = [each for each in series if each.eta != 0.0 and each.variant == variant]
        baseline = baseline_of(shaped[0], series)
        found.append((f"{task}\n{VARIANTS.get(variant, variant)}", [*([baseline] if baseline else []), *shaped]))
    return found


def with_one_baseline(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Leave out the baselines of the other potentials: without shaping they are the same runs."""
    return [config for config in configs if getattr(config, "potential_network", "online") == "online" or config.eta]


def with_rescaled_controls(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Add the control to each shaped DQN run: no shaping, learning rate * (1 + eta), reward / (1 + eta)."""
    return [*configs, *(DQNVariantConfig(**to_dict(each), control="rescaled") for each in configs if each.eta)]


def judge_target_ablation(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge whether the online network is what makes the potential useful: it is better, and without it there is no
    gain. Runs with the target network at s' only are judged where there are any: the paper has none."""
    networks = {
        network: [
            each for each in series if each.eta == 0.0 or getattr(each.config, "potential_network", "") == network
        ]
        for network in ("online", "target")
    }
    has_split = any(getattr(each.config, "potential_network", "") == "split" for each in series)
    scope = dataclasses.replace(scope, questions=4 if has_split else 3)
    together = "The potential from the online network beats that from the target network"
    claims = _better(together, series, "potential_network", ("online", "target"), scope)
    text = "With the online network there is a positive difference from eta = 0"
    claims += gains((text, f"{text}, on tasks like these"), networks["online"], scope)
    text = "With the target network there is no positive difference from eta = 0 (DQN)"
    claims += gains((text, ""), networks["target"], scope, denies=True)
    if has_split:
        text = "(Ours) The online network at both ends beats the online one at s with the target network at s'"
        claims += _better(text, series, "potential_network", ("online", "split"), scope)
    return claims


def judge_rescaling(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Judge our own question: is shaping more than rescaling?"""
    text = "(Ours) Shaping beats the mere rescaling that the TD(0) proposition suggests"
    return _better(text, series, "control", ("none", "rescaled"), scope)


def _better(text: str, series: Sequence[Series], field: str, values: tuple[str, str], scope: Scope) -> list[Claim]:
    """Judge whether series with the first value beat those with the second: mean over etas but 0, then over envs."""
    pairs = list(_pairs(series, field, values))
    if not pairs:
        return [judged(text, None, "", too_small=too_small([], scope), command=scope.command)]
    small = too_small([each for pair in pairs for each in pair], scope)
    found = pair_gains(
        {env: [pair for pair in pairs if pair[0].env == env] for env in sorted({a.env for a, _ in pairs})}
    )
    wins = probability_of_improvement(*_scores(pairs))
    etas = ", ".join(sorted({eta_label(one.eta) for one, _ in pairs}))
    names = ["shaping" if value == "none" else value for value in values]
    shown = f", {names[0]} beats {names[1]} in {wins:.0%} of runs at eta {etas}"
    return judge_pooled((text, f"{text}, on tasks like these"), found, shown, scope, small=small)


def gains(
    texts: tuple[str, str], series: Sequence[Series], scope: Scope, *, schedule: str = "", denies: bool = False
) -> list[Claim]:
    """Judge the best of the etas above 0 that all tasks have, or a schedule, against eta = 0: on these tasks, and on
    tasks like these."""
    chosen = shared_etas(series, schedule)
    if not chosen:
        return [judged(text, None, "", too_small="", command=scope.command) for text in texts if text]
    found = gains_of(chosen)
    etas = [each.eta for each in next(iter(chosen.values()))[1:]]
    used = ", ".join(eta_label(etas[i]) for i in sorted(set(found.over_training.over_seeds.choices)))
    shown = f", eta {used}" + (" chosen on other seeds" if len(etas) > 1 else "")
    return judge_pooled(texts, found, shown, scope, small=too_few(found, scope), denies=denies)


def shared_etas(series: Sequence[Series], schedule: str) -> dict[str, list[Series]]:
    """Find, by task, eta = 0 and the etas above it that all tasks have, in one order; or the schedule alone."""
    series = [each for each in series if not schedule or each.eta in (0.0, schedule)]
    tasks = {task: own for task, own in by_task(series).items() if {0.0} < {each.eta for each in own}}
    shared = set.intersection(*({each.eta for each in own} for own in tasks.values())) if tasks else set()
    found: dict[str, list[Series]] = {}
    for task, own in tasks.items():
        best = tuned([each for each in own if each.eta in shared], area, schedule)
        if best is not None:
            found[task] = [best.plain, *best.series]
    return found


def by_task(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Group by env, and by algorithm where several were run on it."""
    kinds = sorted({(each.env, each.config.algorithm) for each in series})
    envs = [env for env, _ in kinds]
    return {
        f"{env} ({algorithm.upper()})" if envs.count(env) > 1 else env: [
            each for each in series if (each.env, each.config.algorithm) == (env, algorithm)
        ]
        for env, algorithm in kinds
    }


def _pairs(series: Sequence[Series], field: str, values: tuple[str, str]) -> Iterator[tuple[Series, Series]]:
    """Find the pairs of series that differ in nothing but `field`."""
    for first in series:
        if first.eta == 0.0 or getattr(first.config, field) != values[0]:
            continue
        for second in series:
            namesake = first.config.replaced(**{"seed": second.config.seed, field: values[1]})
            if second.config == namesake and set(first.seeds) & set(second.seeds):
                yield first, second


def _scores(pairs: Sequence[tuple[Series, Series]]) -> tuple[Array, Array]:
    """Return mean scores over training of both sides, on as many seeds as every pair shares: (seeds, pairs) each."""
    scores = [on_shared_seeds(area, *pair) for pair in pairs]
    seeds = min(len(first) for first, _ in scores)
    first, second = (np.stack([pair[i][:seeds] for pair in scores], axis=1) for i in (0, 1))
    return first, second
