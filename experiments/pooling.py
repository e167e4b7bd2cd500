"""Several tasks judged together: each in units of its reference range, over seeds and over tasks.

A task's unit is (reference - random) from `bsrs/data/references.toml`, fixed before any run is looked at. Units made of
the runs' own spread would let a failed run discount its own loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats import Comparison, Pooled, paired_difference, pooled
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import within
from bsrs.stats.records import Series
from bsrs.stats.references import MARGIN
from bsrs.stats.summary import on_shared_seeds, task_reference
from experiments.claims import (
    SEED,
    Claim,
    Scope,
    Value,
    area,
    failures_text,
    final,
    format_seeds_needed,
    judged,
    too_small,
)

UNIT = "of the reference range"


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
    def over_training(self) -> Pooled:
        """Judge the mean scores over training."""
        return pooled(self.training, seed=SEED)

    def words(self, found: Pooled) -> str:
        """List the gain of each task."""
        return ", ".join(f"{name} {gain:+.2f}" for name, gain in zip(self.names, found.by_task, strict=True))


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
    columns: dict[Value, list[Array]] = {area: [], final: []}
    for zero, *own in tasks.values():
        span = span_of(zero, [zero, *own])
        for value, found in columns.items():
            *each, base = on_shared_seeds(value, *own, zero)
            found.append((np.stack(each) - base) / span)
    seeds = min(each.shape[1] for each in columns[area])
    training, end = (np.stack([each[:, :seeds] for each in found], axis=-1) for found in columns.values())
    shaped = tuple(tuple(own[i] for own in tasks.values()) for i in range(1, len(training) + 1))
    return Tasks(tuple(tasks), training, end, shaped, tuple(own[0] for own in tasks.values()))


def pair_gains(pairs: Mapping[str, Sequence[tuple[Series, Series]]]) -> Tasks:
    """Take the mean, over a task's pairs, of the first's lead over the second."""
    columns: dict[Value, list[Array]] = {area: [], final: []}
    for own in pairs.values():
        span = span_of(own[0][1], [each for pair in own for each in pair])
        for value, found in columns.items():
            leads = [np.subtract(*on_shared_seeds(value, *pair)) for pair in own]
            seeds = min(map(len, leads))
            found.append(np.mean([each[:seeds] for each in leads], axis=0) / span)
    seeds = min(map(len, columns[area]))
    training, end = (np.stack([each[:seeds] for each in found], axis=-1)[None] for found in columns.values())
    first, second = (tuple(pair[i] for own in pairs.values() for pair in own) for i in (0, 1))
    return Tasks(tuple(pairs), training, end, (first,), second)


def too_few(found: Tasks, scope: Scope) -> str:
    """Say why nothing can be concluded from these tasks; empty if something can."""
    tasks = len(found.names)
    few = f"too small to tell: {tasks} of {scope.tasks} tasks" if tasks < scope.tasks else ""
    return too_small([each for own in (*found.shaped, found.baseline) for each in own], scope) or few


def judge_pooled(
    texts: tuple[str, str], found: Tasks, shown: str, scope: Scope, *, small: str, denies: bool = False
) -> list[Claim]:
    """Make two claims about a gain: on these tasks (tested over seeds), and on tasks like these (tested over tasks).

    A claim that `denies` says that there is no gain: that it is below the margin of 5% of the reference range.
    """
    gain = found.over_training
    claims = []
    for text, best, axis, who in zip(
        texts, (gain.over_seeds, gain.over_tasks), (2, 1), ("seeds", "tasks"), strict=True
    ):
        if not text or best is None:
            continue
        held_out, end = (
            each.mean(axis=axis)[best.choices, np.arange(len(best.choices))] for each in (found.training, found.end)
        )
        effect = within(held_out, 0 * held_out, high=MARGIN, seed=SEED) if denies else best.gain
        needed = scope.command if small else format_seeds_needed(held_out, scope.questions).replace("seeds", who)
        words = f"{effect.mean:+.3g} {UNIT} over {effect.n} {who}{shown}: {found.words(gain)}"
        used = [each for i in sorted(set(best.choices)) for each in found.shaped[i]]
        failures = failures_text(used, found.baseline)
        at_end: Comparison | str = str(against_zero(end)) if denies else against_zero(end)
        claim = judged(text, effect, words, too_small=small, command=needed, end=at_end, failures=failures)
        claims.append(claim)
    return claims


def judge_end(text: str, found: Tasks, scope: Scope) -> Claim:
    """Make the claim that the final score of one setting is not worse on these tasks: by at most the margin."""
    ends = found.end[0].mean(axis=1)
    effect = within(ends, 0 * ends, low=-MARGIN, seed=SEED)
    each = ", ".join(f"{name} {end:+.2f}" for name, end in zip(found.names, found.end[0].mean(axis=0), strict=True))
    shown = f"{effect.mean:+.3g} {UNIT} (margin {MARGIN}): {each}"
    failures = failures_text(found.shaped[0], found.baseline)
    small = too_few(found, scope)
    return judged(text, effect, shown, too_small=small, command=scope.command, failures=failures)
