"""Refusing what cannot fit: a table's size is known before any of it is allocated."""

import os
from pathlib import Path

from bsrs.errors import BadInput

# What the table itself may take of the free memory; the rest is for what the system and other programs need.
USABLE = 0.9


def free_bytes() -> int:
    """Memory that can be had without swapping."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(nbytes: int, what: str) -> None:
    """BadInput with the size if `what` would not fit into the free memory."""
    free = free_bytes()
    if nbytes > USABLE * free:
        raise BadInput(
            f"{what} would take {_readable(nbytes)}; expected no more than the {_readable(free)} free memory"
        )


def require_table(n_states: int, n_actions: int, width: int) -> None:
    """BadInput if a table with `width` next states per state and action cannot be built here."""
    entries = n_states * n_actions * width
    # While it is built, a transition is held about four times over (12 bytes each), a state and action twice.
    require(52 * entries + 24 * n_states * n_actions + 64 * n_states, f"a table of {n_states:,} states")
    if entries >= 2**31:
        raise BadInput(f"a table of {n_states:,} states has {entries:,} transitions; expected fewer than 2^31")


def _readable(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if nbytes < 1000 or unit == "TB":
            break
        nbytes /= 1000
    return f"{nbytes:.3g} {unit}" if nbytes < 1000 else f"{nbytes:,.0f} {unit}"
