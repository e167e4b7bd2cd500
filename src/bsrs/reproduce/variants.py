"""Two ways to do the same, at the same eta: online or target network, shaping or mere rescaling."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.curves import learning_curves
from bsrs.figures.style import eta_label, new_figure
from bsrs.reproduce.claims import Claim, denied, judged
from bsrs.reproduce.evidence import SEED, Scope, area, curves, too_small, tuned
from bsrs.stats import best_of, paired_difference, probability_of_improvement
from bsrs.stats.aggregates import Array
from bsrs.stats.records import Series
from bsrs.stats.summary import on_shared_seeds


def draw_variants(name: str, series: Sequence[Series]) -> dict[str, Figure]:
    """A panel for each env: full lines for the first variant, dashed for the second."""
    envs = sorted({each.env for each in series})
    columns = min(len(envs), 2)
    figure, axes = new_figure(
        4.9 * columns, 2.9 * -(-len(envs) // columns), -(-len(envs) // columns), columns, squeeze=False
    )
    for ax in axes.flat[len(envs) :]:
        ax.set_visible(False)
    for ax, env in zip(axes.flat, envs, strict=False):
        learning_curves(ax, curves([each for each in series if each.env == env]), score="score")
        ax.set_title(env, loc="left")
    return {name: figure}


def judge_target_ablation(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """The online network is what makes the potential useful: it is better, and without it there is no gain."""
    return [
        _better(
            "The potential from the online network beats that from the target network",
            series, "potential_network", ("online", "target"), scope,
        ),
        _gains("With the online network there is a positive difference from eta = 0", series, "online", scope),
        _gains("With the target network there is no positive difference from eta = 0", series, "target", scope),
    ]  # fmt: skip


def judge_rescaling(series: Sequence[Series], scope: Scope) -> list[Claim]:
    """Our own question."""
    return [
        _better(
            "(Ours) Shaping beats the mere rescaling that the TD(0) proposition suggests",
            series, "control", ("none", "rescaled"), scope,
        )
    ]  # fmt: skip


def _better(text: str, series: Sequence[Series], field: str, values: tuple[str, str], scope: Scope) -> Claim:
    """The first against its namesake of the second, over all envs and etas but 0."""
    pairs = list(_pairs(series, field, values))
    small = too_small([each for pair in pairs for each in pair], scope)
    about = partial(judged, text, too_small=small, command=scope.command)
    if not pairs:
        return about(None, "")
    first, second = _scores(pairs)
    effect = paired_difference(_standardised(first, second), np.zeros(len(first)), seed=SEED)
    envs = ", ".join(sorted({one.env for one, _ in pairs}))
    etas = ", ".join(sorted({eta_label(one.eta) for one, _ in pairs}))
    wins = probability_of_improvement(first, second)
    first_name, second_name = ("shaping" if value == "none" else value for value in values)
    shown = (
        f"{first_name} beats {second_name} in {wins:.0%} of runs on {envs}, eta {etas},"
        f" by {effect.mean:+.2f} standard deviations over training"
    )
    return about(effect, shown)


def _gains(text: str, series: Sequence[Series], network: str, scope: Scope) -> Claim:
    """The best eta above 0 against eta = 0, each env in units of its own spread."""
    own = [each for each in series if each.eta == 0.0 or getattr(each.config, "potential_network", "") == network]
    found = [tuned([each for each in own if each.env == env], area) for env in dict.fromkeys(s.env for s in own)]
    best = [each for each in found if each is not None]
    best = [each for each in best if each.etas == best[0].etas]
    if not best:
        return judged(text, None, "", too_small="", command=scope.command)
    etas, seeds = best[0].etas, min(len(each.baseline) for each in best)
    scores = np.stack([each.scores[:, :seeds] for each in best], axis=-1)  # (etas, seeds, envs)
    zero = np.stack([each.baseline[:seeds] for each in best], axis=-1)  # (seeds, envs)
    gains = [_standardised(one, zero) for one in scores]
    overall = best_of(np.stack(gains), np.zeros(seeds), seed=SEED)
    effect = denied(overall.gain) if network == "target" else overall.gain
    chosen = ", ".join(eta_label(etas[i]) for i in sorted(set(overall.choices)))
    shown = f"{overall.gain.mean:+.2f} standard deviations over training with eta {chosen}, chosen on other seeds"
    return judged(text, effect, shown, too_small=too_small(own, scope), command=scope.command)


def _pairs(series: Sequence[Series], field: str, values: tuple[str, str]) -> Iterator[tuple[Series, Series]]:
    """The series that differ in nothing but `field`."""
    for first in series:
        if first.eta == 0.0 or getattr(first.config, field) != values[0]:
            continue
        for second in series:
            changes: dict[str, Any] = {"seed": second.config.seed, field: values[1]}
            namesake = dataclasses.replace(first.config, **changes)
            if second.config == namesake and set(first.seeds) & set(second.seeds):
                yield first, second


def _scores(pairs: Sequence[tuple[Series, Series]]) -> tuple[Array, Array]:
    """Mean scores over training of both sides, on as many seeds as every pair shares: (seeds, pairs) each."""
    scores = [on_shared_seeds(area, *pair) for pair in pairs]
    seeds = min(len(first) for first, _ in scores)
    first, second = (np.stack([pair[i][:seeds] for pair in scores], axis=1) for i in (0, 1))
    return first, second


def _standardised(first: Array, second: Array) -> Array:
    """(seeds,): first - second in units of each column's spread, over the columns: etas and envs that share a seed are
    one piece of evidence, not several."""
    spread = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)]).std(axis=0)
    return np.asarray(((first - second) / np.where(spread > 0, spread, 1.0)).mean(axis=1))
