"""Two ways to do the same, at the same eta: online or target network, shaping or mere rescaling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bsrs.figures.curves import learning_curves
from bsrs.figures.style import eta_label, new_figure
from bsrs.reproduce.claims import Claim, at_least, judged
from bsrs.reproduce.evidence import SEED, Scope, area, curves, shared, too_small
from bsrs.stats import Interval, bootstrap, probability_of_improvement
from bsrs.stats.records import Series


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
    """The online network is what makes the potential useful."""
    return [
        _better(
            "The potential from the online network beats that from the target network",
            series, "potential_network", ("online", "target"), scope,
        )
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
    """How often a run of the first beats its namesake of the second, over all envs and etas but 0."""
    pairs = list(_pairs(series, field, values))
    small = too_small([each for pair in pairs for each in pair], scope)
    verdict = partial(at_least, claimed=0.5, nothing=0.5)
    about = partial(judged, text, verdict=verdict, too_small=small, command=scope.command, percent=True)
    if not pairs:
        return about(effect=None, shown="")
    effect = _improvement(pairs)
    envs = ", ".join(sorted({first.env for first, _ in pairs}))
    etas = ", ".join(sorted({eta_label(first.eta) for first, _ in pairs}))
    shown = f"{values[0]} beats {values[1]} in {effect.estimate:.0%} of runs on {envs}, eta {etas}"
    return about(effect=effect, shown=shown)


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


def _improvement(pairs: Sequence[tuple[Series, Series]]) -> Interval:
    """Paired over seeds; every pair of series is a task of its own."""
    scores = [shared(area, *pair) for pair in pairs]
    seeds = min(len(first) for first, _ in scores)
    first, second = (np.concatenate([pair[i][:seeds] for pair in scores], axis=1) for i in (0, 1))  # (seeds, pairs)
    return bootstrap(partial(probability_of_improvement, paired=True), first, second, seed=SEED, paired=True)
