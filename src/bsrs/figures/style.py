"""How every figure of the project looks: sizes, and colours that colour-blind readers can tell apart."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import matplotlib
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
    """Return the colour of each eta, the same in every figure: black for the baseline, orange for `auto`.

    Numbers above 0 go from purple to green on a logarithmic scale, negative ones are red. White for the baseline and
    lighter shades on a `dark` ground.
    """
    schedules = [eta for eta in etas if isinstance(eta, str) and eta != "auto"]
    colours: dict[float | str, str] = {0.0: WHITE if dark else BLACK, "auto": ORANGE}
    colours |= {eta: (SKY, PURPLE, GREEN)[i % 3] for i, eta in enumerate(schedules)}
    colours |= {eta: _shade(float(eta), dark) for eta in etas if eta not in colours}
    return {eta: colours[eta] for eta in etas}


def _shade(eta: float, dark: bool) -> str:
    if eta < 0:
        return str(to_hex(matplotlib.colormaps["autumn"](0.25 + 0.3 * min(-eta, 10.0) / 10)))
    first, last = (0.35, 0.95) if dark else (0.05, 0.85)
    place = math.log(min(max(eta, 0.25), 10.0) / 0.25) / math.log(10.0 / 0.25)
    return str(to_hex(matplotlib.colormaps["viridis"](first + (last - first) * place)))


def eta_label(eta: float | str) -> str:
    """As it stands in legends."""
    return eta if isinstance(eta, str) else f"{eta:g}".replace("-", "\N{MINUS SIGN}")
