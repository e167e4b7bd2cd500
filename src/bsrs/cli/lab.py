"""`bsrs lab`: the page on which mazes are drawn and etas race. It is one static folder of the package."""

import webbrowser
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

from bsrs.tabular.grids import GridMap

PAGE = Path(str(files("bsrs"))) / "data" / "lab" / "lab.html"


@dataclass(frozen=True)
class LabArguments:
    """Draw a maze, move eta and watch three learners race, in the browser."""

    map: str = ""
    """The map to begin with: a name, a size, a text file or rows of letters; by default the paper's."""
    path: bool = False
    """Print the path of the page and open nothing."""


def lab(arguments: LabArguments) -> None:
    """Open the page."""
    address = PAGE.as_uri()
    if arguments.map:
        rows = (("".join(row)) for row in GridMap.named(arguments.map).cells)
        address += "#" + urlencode({"map": ".".join(rows)})
    if arguments.path:
        print(PAGE)
    elif webbrowser.open(address):
        print(f"opened {address}")
    else:
        print(f"no browser found; open {address}")
