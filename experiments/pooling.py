"""Several tasks judged together: each in units of its reference range, over seeds and over tasks.

A task's unit is (reference - random) from `bsrs/data/references.toml`, fixed before any run is looked at. Units made of
the runs' own spread would let a failed run discount its own loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bsrs.errors import BadInput
from bsrs.figures.style import eta_label
from bsrs.stats import Comparison, Pooled, paired_difference, pooled, probability_of_improvement
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import SEED, on_shared_seeds, task_reference
from experiments.claims import Claim, Scope, Value, area, constant_etas, failures_text, final, judged, too_small

UNIT = "of the reference range"
Pairs = Mapping[str, Sequence[tuple[Series, Series]]]  # by task


@dataclass(frozen=True)
class Tasks:
    """Differences of several settings from eta = 0 on several tasks: (settings, seeds, tasks), in reference ranges."""

    names: tuple[str, ...]
    training: Array
    end: Array
    shaped: tuple[tuple[Series, ...], ...]
    """Of each setting."""
    baseline: tuple[Series, ...]

    @property
    def series(self) -> list[Series]:
        return [each for own in (*self.shaped, self.baseline) for each in own]


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


def against_zero(values: Array) -> Comparison:
    """Compare the mean of the values with zero."""
    return paired_difference(values, np.zeros(len(values)), seed=SEED)


def span_of(series: Series, everything: Sequence[Series]) -> float:
    """Return the reference range of the series' task."""
    reference = task_reference(series.task, everything)
    if reference is None:
        raise BadInput(f"{series.env} has no reference score; add one to references.toml")
    return reference.span


def gains_of(tasks: Mapping[str, Sequence[Series]]) -> Tasks:
    """Take the differences of each task's shaped series from its first, the baseline; the same settings everywhere."""

    def differences(value: Value) -> Array:
        found = []
        for zero, *own in tasks.values():
            *each, base = on_shared_seeds(value, *own, zero)
            found.append((np.stack(each) - base) / span_of(zero, [zero, *own]))
        return _side_by_side(found)

    shaped = tuple(zip(*(own[1:] for own in tasks.values()), strict=True))
    return Tasks(tuple(tasks), differences(area), differences(final), shaped, tuple(own[0] for own in tasks.values()))


def lead_of(value: Value, pairs: Sequence[tuple[Series, Series]]) -> Array:
    """Return the mean, over a task's pairs, of the first's lead over the second, in reference ranges: (seeds,)."""
    leads = _side_by_side([np.subtract(*on_shared_seeds(value, *pair)) for pair in pairs])  # (seeds, pairs)
    lead: Array = leads.mean(axis=1) / span_of(pairs[0][1], [each for pair in pairs for each in pair])
    return lead


def pair_gains(pairs: Pairs) -> Tasks:
    """Take each task's mean lead over its pairs, on as many seeds as all tasks have."""
    training, end = (_side_by_side([lead_of(value, own) for own in pairs.values()])[None] for value in (area, final))
    first, second = (tuple(pair[i] for own in pairs.values() for pair in own) for i in (0, 1))
    return Tasks(tuple(pairs), training, end, (first,), second)


def _side_by_side(each: Sequence[Array]) -> Array:
    """Stack (..., seeds) along a last axis, on as many seeds as all have."""
    seeds = min(one.shape[-1] for one in each)
    return np.stack([one[..., :seeds] for one in each], axis=-1)


def too_few(series: Sequence[Series], tasks: int, scope: Scope) -> str:
    """Say why nothing can be concluded from the series of so many tasks; empty if something can."""
    few = f"too small to tell: {tasks} of {scope.tasks} tasks" if tasks < scope.tasks else ""
    return too_small(series, scope) or few


# --------------------------------------------------------------------------------------------------------------
# Claims.


def gains(
    texts: tuple[str, str], series: Sequence[Series], scope: Scope, *, schedule: str = "", denies: bool = False
) -> list[Claim]:
    """Judge the best of the etas above 0 that all tasks have, or a schedule, against eta = 0: on these tasks, and on
    tasks like these."""
    chosen = shared_etas(series, schedule)
    if not chosen:
        return [judged(text, None, "", scope) for text in texts if text]
    found = gains_of(chosen)
    etas = [each.eta for each in next(iter(chosen.values()))[1:]]
    used = ", ".join(eta_label(etas[i]) for i in sorted(set(pooled(found.training, seed=SEED).over_seeds.choices)))
    shown = f", eta {used}" + (" chosen on other seeds" if len(etas) > 1 else "")
    return judge_pooled(texts, found, shown, scope, denies=denies)


def shared_etas(series: Sequence[Series], schedule: str = "") -> dict[str, list[Series]]:
    """Find, by task, eta = 0 and the etas above it that all tasks have, in one order; or the schedule alone."""
    constants = [each for each in constant_etas(series) if float(each.eta) >= 0]
    wanted = [each for each in series if each.eta in (0.0, schedule)] if schedule else constants
    tasks = {task: {each.eta: each for each in reversed(own)} for task, own in by_task(wanted).items()}
    tasks = {task: own for task, own in tasks.items() if 0.0 in own and len(own) > 1}
    shared = set.intersection(*map(set, tasks.values())) - {0.0} if tasks else set()
    etas = [0.0, *sorted(shared)]
    found = {task: [own[eta] for eta in etas] for task, own in tasks.items() if shared}
    return {task: own for task, own in found.items() if len(set.intersection(*(set(s.seeds) for s in own))) > 1}


def better(text: str, series: Sequence[Series], field: str, values: tuple[str, str], scope: Scope) -> list[Claim]:
    """Judge whether series with the first value beat those with the second: mean over etas but 0, then over envs."""
    pairs = list(_pairs(series, field, values))
    if not pairs:
        return [judged(text, None, "", scope, small=too_small([], scope))]
    found = pair_gains(
        {env: [pair for pair in pairs if pair[0].env == env] for env in sorted({a.env for a, _ in pairs})}
    )
    scores = [on_shared_seeds(area, *pair) for pair in pairs]
    wins = probability_of_improvement(*(_side_by_side([pair[i] for pair in scores]) for i in (0, 1)))
    etas = ", ".join(sorted({eta_label(one.eta) for one, _ in pairs}))
    names = ["shaping" if value == "none" else value for value in values]
    shown = f", {names[0]} beats {names[1]} in {wins:.0%} of runs at eta {etas}"
    return judge_pooled((text, f"{text}, on tasks like these"), found, shown, scope)


def _pairs(series: Sequence[Series], field: str, values: tuple[str, str]) -> Iterator[tuple[Series, Series]]:
    """Find the pairs of series that differ in nothing but `field`."""
    for first in series:
        if first.eta == 0.0 or getattr(first.config, field) != values[0]:
            continue
        for second in series:
            namesake = first.config.replaced(**{"seed": second.config.seed, field: values[1]})
            if second.config == namesake and set(first.seeds) & set(second.seeds):
                yield first, second


def judge_pooled(
    texts: tuple[str, str], found: Tasks, shown: str, scope: Scope, *, denies: bool = False
) -> list[Claim]:
    """Make two claims about a gain: on these tasks (tested over seeds), and on tasks like these (tested over tasks).

    A claim that `denies` says that there is no gain: that it is below the margin of 5% of the reference range.
    """
    gain: Pooled = pooled(found.training, seed=SEED)
    by_task = ", ".join(f"{name} {each:+.2f}" for name, each in zip(found.names, gain.by_task, strict=True))
    claims = []
    for text, best, axis, who in zip(
        texts, (gain.over_seeds, gain.over_tasks), (2, 1), ("seeds", "tasks"), strict=True
    ):
        if not text or best is None:
            continue
        held_out, ends = (
            each.mean(axis=axis)[best.choices, np.arange(len(best.choices))] for each in (found.training, found.end)
        )
        effect = within(held_out, 0 * held_out, high=MARGIN, seed=SEED) if denies else best.gain
        claim = judged(
            text,
            effect,
            f"{effect.mean:+.3g} {UNIT} over {effect.n} {who}{shown}: {by_task}",
            scope,
            small=too_few(found.series, len(found.names), scope),
            differences=held_out,
            unit=who,
            end=str(against_zero(ends)) if denies else against_zero(ends),
            failures=failures_text(
                [each for i in sorted(set(best.choices)) for each in found.shaped[i]], found.baseline
            ),
        )
        claims.append(claim)
    return claims


def judge_end(text: str, found: Tasks, scope: Scope) -> Claim:
    """Make the claim that the final score of one setting is not worse on these tasks: by at most the margin."""
    ends = found.end[0].mean(axis=1)
    effect = within(ends, 0 * ends, low=-MARGIN, seed=SEED)
    each = ", ".join(f"{name} {end:+.2f}" for name, end in zip(found.names, found.end[0].mean(axis=0), strict=True))
    shown = f"{effect.mean:+.3g} {UNIT} (margin {MARGIN}): {each}"
    failures = failures_text(found.shaped[0], found.baseline)
    return judged(text, effect, shown, scope, small=too_few(found.series, len(found.names), scope), failures=failures)
