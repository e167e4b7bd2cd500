"""What the paper says, what was seen, whether that settles it, and from series to effects."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from bsrs.figures.style import eta_label
from bsrs.stats import BestOf, Comparison, Verdict, best_of, holm, paired_difference, seeds_needed
from bsrs.stats.aggregates import Array
from bsrs.stats.comparison import FEWEST_SEEDS, LEVEL
from bsrs.stats.records import Series
from bsrs.stats.summary import SEED, Failures, failures_of, gain, on_shared_seeds, task_reference

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


def judged(
    text: str, effect: Comparison | None, shown: str, scope: Scope, *, small: str = "",
    differences: Array | None = None, unit: str = "seeds", percent: bool = False,
    end: Comparison | str | None = None, failures: str = "",
) -> Claim:  # fmt: skip
    """Make the claim about an effect. Without it, or with a reason why these runs are too few or too short, the verdict
    is inconclusive, never a guess. Then the scope's command could settle it or, if the runs are not too small and the
    (seeds,) differences are given, more seeds."""
    if effect is None:
        return Claim(text, small or "not among these runs", "–", "inconclusive", scope.command)
    form = ".0%" if percent else ".3g"
    worse = isinstance(end, Comparison) and effect.verdict == "holds" and end.verdict == "does not hold"
    shown += ", but worse at the end" if worse else ""
    enough = scope.command if small or differences is None else format_needed(differences, scope.questions, unit)
    return Claim(
        text,
        f"{shown}; {small}" if small else shown,
        f"[{effect.low:{form}}, {effect.high:{form}}]" if np.isfinite([effect.low, effect.high]).all() else "–",
        "inconclusive" if small else effect.verdict,
        enough,
        effect.p,
        str(end or ""),
        failures,
    )


def format_needed(differences: Array, questions: int, unit: str) -> str:
    """Say how many seeds (or tasks) would settle an open comparison, if the mean of its differences is true."""
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    needed = seeds_needed(spread, float(differences.mean()), questions) if spread else None
    if needed is None:
        return f"more {unit}"
    if needed > MANY_SEEDS:
        return f"more than {MANY_SEEDS:,} {unit}"
    return f"about {max(needed, len(differences) + 1):,} {unit}"


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


def print_claims(claims: Sequence[Claim]) -> None:
    """Print each claim with its verdict, and below it what that rests on."""
    for claim in claims:
        text, *cells, verdict, needs = claim.cells
        print(f"{text}: {verdict}")
        for name, cell in zip((*COLUMNS[1:-1], "needs"), (*cells, needs), strict=True):
            if cell:
                print(f"    {name}: {cell}")


# --------------------------------------------------------------------------------------------------------------
# Effects: what the claims of all experiments are judged by.


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
        return judged(text, None, "", scope)
    ours, theirs = on_shared_seeds(area, first, second)
    return judged(
        text,
        effect,
        shown.format(gain=effect.mean, first=ours.mean(), second=theirs.mean()),
        scope,
        small=too_small([first, second], scope),
        differences=ours - theirs,
        end=gain(first, second, final),
        failures=failures_text([first], [second]),
    )


@dataclass(frozen=True)
class Tuned:
    """The best of several etas above 0, next to eta = 0."""

    shaped: list[Series]
    """Of each eta above 0."""
    plain: Series
    """Of eta = 0."""
    scores: Array  # (etas, seeds)
    baseline: Array  # (seeds,)
    best: BestOf
    chosen: list[Series]
    """Of the etas that some seeds' others chose."""
    held_out: Array  # (seeds,): each seed's score at the eta that the other seeds chose

    @property
    def same_seeds(self) -> Array:
        """(seeds,): the scores of the eta with the highest mean, which they chose: the paper's quantity."""
        return np.asarray(self.scores[self.scores.mean(axis=1).argmax()])

    @property
    def words(self) -> str:
        """The gain on held-out seeds, and the paper's quantity."""
        etas = ", ".join(eta_label(each.eta) for each in self.chosen)
        return (
            f"{self.best.gain.mean:+.3g} with eta {etas}, chosen on other seeds"
            f" (as in the paper, on the same seeds: {self.best.flattered:+.3g})"
        )


def tuned(series: Sequence[Series], value: Value) -> Tuned | None:
    """Find the best constant of one task. None without eta = 0, without an eta above 0, or without two seeds that all
    share."""
    above = [each for each in constant_etas(series) if float(each.eta) > 0]
    plain = next((each for each in series if each.eta == 0.0), None)
    if plain is None or not above:
        return None
    *each, zero = on_shared_seeds(value, *above, plain)
    if len(zero) < 2:
        return None
    scores = np.stack(each)
    best = best_of(scores, zero, seed=SEED)
    chosen = [above[i] for i in sorted(set(best.choices))]
    return Tuned(above, plain, scores, zero, best, chosen, scores[best.choices, np.arange(len(zero))])


def end_of(best: Tuned) -> Comparison:
    """Compare the final scores at the etas that other seeds chose with those of eta = 0."""
    *scores, zero = on_shared_seeds(final, *best.shaped, best.plain)
    return paired_difference(np.stack(scores)[best.best.choices, np.arange(len(zero))], zero, seed=SEED)
