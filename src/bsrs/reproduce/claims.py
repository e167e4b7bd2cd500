"""What the paper says, what was seen, and whether that settles it."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


def judge(effect: Interval, claimed: float = 0.0, nothing: float = 0.0, too_small: str = "") -> Verdict:
    """Does the claimed size of an effect hold?

    No, if the interval lies below it; yes, if it does not and excludes `nothing` as well. Otherwise, and whenever
    there is a reason why these runs are too few or too short, it is not known: never a guess.
    """
    if too_small:
        return "inconclusive"
    if effect.high < claimed:
        return "does not hold"
    return "holds" if effect.low > nothing else "inconclusive"


def between(effect: Interval, low: float, high: float, too_small: str = "") -> Verdict:
    """Does the quantity lie in [low, high]? Yes, if all of its interval does; no, if none of it does."""
    if too_small:
        return "inconclusive"
    if low <= effect.low and effect.high <= high:
        return "holds"
    return "does not hold" if effect.high < low or effect.low > high else "inconclusive"


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
