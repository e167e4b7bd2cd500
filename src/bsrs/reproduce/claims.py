"""What the paper says, what was seen, and whether that settles it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bsrs.stats import Interval

Verdict = Literal["holds", "does not hold", "inconclusive"]


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


def at_least(effect: Interval, claimed: float = 0.0, nothing: float = 0.0) -> Verdict:
    """Is the effect as large as claimed? No, if its interval lies below that; yes, if it excludes `nothing` as well."""
    if effect.high < claimed:
        return "does not hold"
    return "holds" if effect.low > nothing else "inconclusive"


def between(effect: Interval, low: float, high: float) -> Verdict:
    """Does the quantity lie in [low, high]? Yes, if all of its interval does; no, if none of it does."""
    if low <= effect.low and effect.high <= high:
        return "holds"
    return "does not hold" if effect.high < low or effect.low > high else "inconclusive"


def insignificant(effect: Interval) -> Verdict:
    """Can the effect not be told from zero?"""
    return "holds" if effect.low <= 0 <= effect.high else "does not hold"


def judged(
    text: str,
    effect: Interval | None,
    shown: str,
    verdict: Callable[[Interval], Verdict],
    *,
    too_small: str,
    command: str,
    percent: bool = False,
) -> Claim:
    """A claim about an effect. Without it, or with a reason why these runs are too few or too short, the verdict is
    inconclusive, never a guess, and `command` could settle it."""
    if effect is None:
        return Claim(text, too_small or "not among these runs", "–", "inconclusive", command)
    found = "inconclusive" if too_small else verdict(effect)
    form = ".0%" if percent else ".4g"
    return Claim(
        text,
        f"{shown}; {too_small}" if too_small else shown,
        f"[{effect.low:{form}}, {effect.high:{form}}]" if effect.known else "–",
        found,
        command if found == "inconclusive" else "",
    )


def write_claims(path: Path, claims: Sequence[Claim]) -> None:
    """As JSON, for the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"claims": [asdict(claim) for claim in claims]}, indent=2, ensure_ascii=False) + "\n")


def print_claims(title: str, claims: Sequence[Claim]) -> None:
    """As a table in the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_lines=True)
    for column in ("the paper's claim", "what was seen here", "interval", "verdict"):
        table.add_column(column)
    colours = {"holds": "green", "does not hold": "red", "inconclusive": "yellow"}
    for claim in claims:
        verdict = f"[{colours[claim.verdict]}]{claim.verdict}[/]" + (f"\nneeds: {claim.settle}" if claim.settle else "")
        table.add_row(claim.claim, claim.shown, claim.interval.replace("[", "\\["), verdict)
    Console().print(table)
