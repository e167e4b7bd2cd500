"""What the paper says, what was seen, whether that settles it, and from series to effects."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from bsrs.figures.curves import Curve
from bsrs.figures.style import eta_colours, eta_label
from bsrs.report.plots import short_label
from bsrs.stats import (
    BestOf,
    Comparison,
    Interval,
    Verdict,
    best_of,
    bootstrap,
    holm,
    mean,
    paired_difference,
    seeds_needed,
)
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import FEWEST_SEEDS, LEVEL
from bsrs.stats.records import Series
from bsrs.stats.summary import SEED as SEED
from bsrs.stats.summary import Failures, failures_of, on_shared_seeds, task_reference
from bsrs.stats.summary import gain as gain

BAND_DRAWS = 400
MANY_SEEDS = 1_000

COLUMNS = ("claim", "what was seen", "95% interval", "at the end", "failed runs", "p (Holm)", "verdict")
Value = Callable[[Series], Array]  # a number for each run: (runs,)
area: Value = attrgetter("area")
final: Value = attrgetter("final")


@dataclass(frozen=True)
class Claim:
    """One row of the table."""

    claim: str
    """What the paper says."""
    shown: str
    """What was seen here."""
    interval: str
    """How sure that is."""
    verdict: Verdict
    settle: str = ""
    """The command that could settle it, where this could not."""
    p: float | None = None
    """Of the test behind the verdict, corrected for the claims that were judged together; None without a test."""
    end: str = ""
    """The same comparison in the final score."""
    failures: str = ""
    """Failed runs on both sides, with upper bounds: a test of means on few seeds does not see rare ones."""

    @property
    def cells(self) -> tuple[str, ...]:
        """A cell for each of `COLUMNS`, and what an inconclusive claim needs."""
        p = "" if self.p is None else f"{self.p:.2g}"
        needs = self.settle if self.verdict == "inconclusive" else ""
        return self.claim, self.shown, self.interval, self.end, self.failures, p, self.verdict, needs


def between(effect: Interval, low: float, high: float) -> Verdict:
    """Judge whether the quantity is in [low, high]: yes, if all of its interval is; no, if none of it is."""
    if low <= effect.low and effect.high <= high:
        return "holds"
    return "does not hold" if effect.high < low or effect.low > high else "inconclusive"


def judged(
    text: str, effect: Comparison | None, shown: str, *, too_small: str, command: str, percent: bool = False,
    end: Comparison | str | None = None, failures: str = "",
) -> Claim:  # fmt: skip
    """Make the claim about an effect. Without it, or with a reason why these runs are too few or too short, the verdict
    is inconclusive, never a guess, and `command` could settle it."""
    if effect is None:
        return Claim(text, too_small or "not among these runs", "–", "inconclusive", command)
    form = ".0%" if percent else ".3g"
    worse = isinstance(end, Comparison) and effect.verdict == "holds" and end.verdict == "does not hold"
    shown += ", but worse at the end" if worse else ""
    return Claim(
        text,
        f"{shown}; {too_small}" if too_small else shown,
        f"[{effect.low:{form}}, {effect.high:{form}}]" if np.isfinite([effect.low, effect.high]).all() else "–",
        "inconclusive" if too_small else effect.verdict,
        command,
        effect.p,
        str(end or ""),
        failures,
    )


def corrected(claims: Sequence[Claim]) -> list[Claim]:
    """Apply Holm's correction: of many claims some pass a test by luck."""
    found = list(claims)
    tested = [i for i, claim in enumerate(claims) if claim.p is not None]
    for i, p in zip(tested, holm([claims[i].p or 0.0 for i in tested]), strict=True):
        found[i] = replace(found[i], p=p, verdict=found[i].verdict if p <= LEVEL else "inconclusive")
    return found


def write_claims(path: Path, claims: Sequence[Claim]) -> None:
    """Write the claims as JSON, for the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"claims": [asdict(claim) for claim in claims]}, indent=2, ensure_ascii=False) + "\n")


def print_claims(title: str, claims: Sequence[Claim]) -> None:
    """Print the claims as a table."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_lines=True)
    for column in COLUMNS:
        table.add_column(column)
    colours = {"holds": "green", "does not hold": "red", "inconclusive": "yellow"}
    for claim in claims:
        *cells, verdict, needs = map(escape, claim.cells)
        shown = f"[{colours[claim.verdict]}]{verdict}[/]" + (f"\nneeds: {needs}" if needs else "")
        table.add_row(*cells, shown)
    Console().print(table)


# --------------------------------------------------------------------------------------------------------------
# Effects: what the claims of all experiments are judged by.


@dataclass(frozen=True)
class Scope:
    """What a verdict needs."""

    steps: Mapping[str, int]
    """How long a run must be, env -> env steps, as its preset has them: the paper's, for the paper's envs."""
    command: str
    """Trains as much as the paper."""
    questions: int = 1
    """How many claims are judged together."""
    tasks: int = 1
    """How many tasks a claim about several is about: fewer settle nothing."""


def too_small(series: Sequence[Series], scope: Scope) -> str:
    """Say why nothing can be concluded from these series; empty if something can."""
    if not series:
        return "not among these runs"
    seeds = min(len(each.seeds) for each in series)
    shortest = min(series, key=lambda each: each.config.steps / scope.steps[each.env])
    steps, needed = shortest.config.steps, scope.steps[shortest.env]
    reasons = [f"{seeds} of at least {FEWEST_SEEDS} seeds"] if seeds < FEWEST_SEEDS else []
    reasons += [f"{steps:,} of {needed:,} steps"] if steps < needed else []
    return "too small to tell: " + ", ".join(reasons) if reasons else ""


def constant_etas(series: Sequence[Series]) -> list[Series]:
    """Leave out the schedules, and sort by eta."""
    numbers = [(float(each.eta), i) for i, each in enumerate(series) if not isinstance(each.eta, str)]
    return [series[i] for _, i in sorted(numbers)]


def failures_text(shaped: Sequence[Series], baseline: Sequence[Series]) -> str:
    """Count the failed runs of both sides, each with its upper bound."""
    counts = []
    for side in (shaped, baseline):
        each = [failures_of(one, task_reference(one.task, [*baseline, *shaped])) for one in side]
        counts.append(str(Failures(sum(one.failed for one in each), sum(one.runs for one in each))))
    return f"{counts[0]}; baseline {counts[1]}"


def format_seeds_needed(differences: Array, questions: int) -> str:
    """Say how many seeds would settle an open comparison, if the mean of its (seeds,) differences is true."""
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    needed = seeds_needed(spread, float(differences.mean()), questions) if spread else None
    if needed is None:
        return "more seeds"
    return (
        f"about {max(needed, len(differences) + 1):,} seeds"
        if needed <= MANY_SEEDS
        else f"more than {MANY_SEEDS:,} seeds"
    )


def settles(small: str, differences: Array, scope: Scope) -> str:
    """Say what would settle an open claim: the whole experiment, or more seeds if these runs are not too small."""
    return scope.command if small else format_seeds_needed(differences, scope.questions)


def ahead(
    text: str,
    first: Series | None,
    second: Series | None,
    scope: Scope,
    shown: str = "{gain:+.3g} in the mean score over training",
) -> Claim:
    """Make the claim that one series is better than another over training, where there are both."""
    effect = gain(first, second, area) if first is not None and second is not None else None
    if first is None or second is None or effect is None:
        return judged(text, None, "", too_small="", command=scope.command)
    small, (ours, theirs) = too_small([first, second], scope), on_shared_seeds(area, first, second)
    return judged(
        text,
        effect,
        shown.format(gain=effect.mean, first=ours.mean(), second=theirs.mean()),
        too_small=small,
        command=settles(small, ours - theirs, scope),
        end=gain(first, second, final),
        failures=failures_text([first], [second]),
    )


@dataclass(frozen=True)
class Tuned:
    """The best of several etas above 0, next to eta = 0."""

    series: tuple[Series, ...]
    """Of each eta above 0."""
    plain: Series
    """Of eta = 0."""
    scores: Array  # (etas, seeds)
    baseline: Array  # (seeds,)
    best: BestOf
    chosen_series: list[Series]
    """Of the etas that some seeds' others chose."""
    held_out: Array  # (seeds,): each seed's score at the eta that the other seeds chose

    @property
    def words(self) -> str:
        """The gain on held-out seeds, and the paper's quantity."""
        return (
            f"{self.best.gain.mean:+.3g} with eta {self.chosen}, chosen on other seeds"
            f" (as in the paper, on the same seeds: {self.best.flattered:+.3g})"
        )

    @property
    def chosen(self) -> str:
        """The chosen etas."""
        return ", ".join(eta_label(each.eta) for each in self.chosen_series)

    @property
    def same_seeds(self) -> Array:
        """(seeds,): the scores of the eta with the highest mean, which they chose: the paper's quantity."""
        return np.asarray(self.scores[self.scores.mean(axis=1).argmax()])

    @property
    def end(self) -> Comparison:
        """The final scores at the same etas, against eta = 0."""
        *scores, zero = on_shared_seeds(final, *self.series, self.plain)
        return paired_difference(np.stack(scores)[self.best.choices, np.arange(len(zero))], zero, seed=SEED)

    @property
    def failures(self) -> str:
        """Failed runs of the chosen etas and of eta = 0."""
        return failures_text(self.chosen_series, [self.plain])


def tuned(series: Sequence[Series], value: Value, schedule: str = "") -> Tuned | None:
    """Find the best constant of one task, or take a schedule alone. None without eta = 0, without an eta above 0, or
    without two seeds that all share."""
    above = [each for each in constant_etas(series) if float(each.eta) > 0]
    if schedule:
        above = [each for each in series if each.eta == schedule]
    baseline = next((each for each in series if each.eta == 0.0), None)
    if baseline is None or not above:
        return None
    *each, zero = on_shared_seeds(value, *above, baseline)
    if len(zero) < 2:
        return None
    scores = np.stack(each)
    best = best_of(scores, zero, seed=SEED)
    chosen = [above[i] for i in sorted(set(best.choices))]
    return Tuned(tuple(above), baseline, scores, zero, best, chosen, scores[best.choices, np.arange(len(zero))])


def curves(series: Sequence[Series], *, standard_error: bool = False, runs: bool = False) -> list[Curve]:
    """Average each series of a panel over its runs: score against steps, with a band or with every run."""
    from scipy.stats import sem

    colours = eta_colours(list(dict.fromkeys(each.eta for each in series)))
    label = (lambda each: eta_label(each.eta)) if len(colours) == len(series) else short_label
    reached = [scores for each in series for scores in (each.curves.min(), each.curves.max())]
    return [
        Curve(
            label(each),
            colours[each.eta],
            each.steps,
            bootstrap(mean, each.curves.T[..., None], seed=SEED, draws=BAND_DRAWS).within(min(reached), max(reached)),
            standard_error=sem(each.curves, axis=0) if standard_error and len(each.seeds) > 1 else None,
            runs=each.curves if runs else None,
        )
        for each in series
    ]


def means(series: Sequence[Series], value: Value) -> Interval:
    """Compute the mean of each series with its interval: (series,)."""
    return stacked([bootstrap(mean, value(one)[:, None], seed=SEED) for one in series])


def stacked(intervals: Sequence[Interval]) -> Interval:
    """Stack several intervals into one."""
    return Interval(*(np.array([getattr(each, end) for each in intervals]) for end in ("estimate", "low", "high")))
