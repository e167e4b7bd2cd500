"""How every figure of the project looks: sizes, and colours that colour-blind readers can tell apart."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

# Okabe and Ito (2008)
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY, WHITE = "#8A8A8A", "#FFFFFF"


@contextmanager
def project_style() -> Iterator[None]:
    """Everything drawn inside looks like the rest of the project."""
    with as_file(files("bsrs.figures").joinpath("project.mplstyle")) as path, matplotlib.rc_context(fname=path):
        yield


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, Any]:
    """A figure of so many inches and its axes, with no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes: Axes | Any = figure.subplots(rows, columns, **settings)
    return figure, axes


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` with .pdf (vector) and .png; nothing in them depends on when they were made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pdf, png = path.with_name(f"{path.name}.pdf"), path.with_name(f"{path.name}.png")
    with project_style():
        figure.savefig(pdf, metadata={"CreationDate": None, "ModDate": None})
        figure.savefig(png, dpi=200, metadata={"Software": None})
    return [pdf, png]


def eta_colours(etas: Sequence[float | str], *, dark: bool = False) -> dict[float | str, str]:
    """A colour for each eta: black for 0, reds below, from purple to yellow-green above, the rest for schedules.

    On a `dark` ground: white for 0, and the lighter shades.
    """
    numbers = sorted(eta for eta in etas if not isinstance(eta, str))
    schedules = [eta for eta in etas if isinstance(eta, str)]
    above, below = [eta for eta in numbers if eta > 0], [eta for eta in numbers if eta < 0]
    first, last = (0.35, 0.95) if dark else (0.08, 0.82)
    colours: dict[float | str, str] = {0.0: WHITE if dark else BLACK}
    for name, group, ends in (("viridis", above, (first, last)), ("autumn", below[::-1], (0.25, 0.55))):
        shades = matplotlib.colormaps[name](np.linspace(*ends, len(group)))
        colours |= dict(zip(group, map(to_hex, shades), strict=True))
    colours |= {eta: (ORANGE, SKY, PURPLE, GREEN)[i % 4] for i, eta in enumerate(schedules)}
    return {eta: colours[eta] for eta in etas}


def eta_label(eta: float | str) -> str:
    """As it stands in legends."""
    return eta if isinstance(eta, str) else f"{eta:g}".replace("-", "\N{MINUS SIGN}")
