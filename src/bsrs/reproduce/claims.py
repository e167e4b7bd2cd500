"""What the paper says, what was seen, and whether that settles it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bsrs.stats import Comparison, Interval, Verdict, holm
from bsrs.stats.comparison import LEVEL


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


def between(effect: Interval, low: float, high: float) -> Verdict:
    """Does the quantity lie in [low, high]? Yes, if all of its interval does; no, if none of it does."""
    if low <= effect.low and effect.high <= high:
        return "holds"
    return "does not hold" if effect.high < low or effect.low > high else "inconclusive"


def judged(
    text: str, effect: Comparison | None, shown: str, *, too_small: str, command: str, percent: bool = False
) -> Claim:
    """A claim about an effect. Without it, or with a reason why these runs are too few or too short, the verdict is
    inconclusive, never a guess, and `command` could settle it."""
    if effect is None:
        return Claim(text, too_small or "not among these runs", "–", "inconclusive", command)
    return Claim(
        text,
        f"{shown}; {too_small}" if too_small else shown,
        interval_text(effect.low, effect.high, ".0%" if percent else ".4g"),
        "inconclusive" if too_small else effect.verdict,
        command,
        effect.p,
    )


def denied(effect: Comparison) -> Comparison:
    """The effect under the claim that there is none: an effect refutes it, noise does not prove it."""
    opposite: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    return replace(effect, verdict=opposite.get(effect.verdict, "inconclusive"))


def interval_text(low: float, high: float, form: str) -> str:
    """[low, high], or a dash where the runs give no bounds."""
    return f"[{low:{form}}, {high:{form}}]" if low > -float("inf") and high < float("inf") else "–"


def corrected(claims: Sequence[Claim]) -> list[Claim]:
    """The same with Holm's correction: of many claims some pass a test by luck."""
    found = list(claims)
    tested = [i for i, claim in enumerate(claims) if claim.p is not None]
    for i, p in zip(tested, holm([claims[i].p or 0.0 for i in tested]), strict=True):
        found[i] = replace(found[i], p=p, verdict=found[i].verdict if p <= LEVEL else "inconclusive")
    return found


def write_claims(path: Path, claims: Sequence[Claim]) -> None:
    """As JSON, for the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"claims": [asdict(claim) for claim in claims]}, indent=2, ensure_ascii=False) + "\n")


def print_claims(title: str, claims: Sequence[Claim]) -> None:
    """As a table in the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_lines=True)
    for column in ("the paper's claim", "what was seen here", "95 % interval", "p (Holm)", "verdict"):
        table.add_column(column)
    colours = {"holds": "green", "does not hold": "red", "inconclusive": "yellow"}
    for claim in claims:
        needs = f"\nneeds: {claim.settle}" if claim.settle and claim.verdict == "inconclusive" else ""
        verdict = f"[{colours[claim.verdict]}]{claim.verdict}[/]{needs}"
        p = "" if claim.p is None else f"{claim.p:.2g}"
        table.add_row(claim.claim, claim.shown, claim.interval.replace("[", "\\["), p, verdict)
    Console().print(table)
