"""The page of results is what its records say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parent.parent / "results"
PAGES = ("README.md", "anatomy/README.md", "auto-eta/README.md")
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without pictures, after `python tables.py`."""
    copy = tmp_path_factory.mktemp("copy") / "results"
    shutil.copytree(RESULTS, copy, ignore=shutil.ignore_patterns("*.png", "__pycache__"))
    subprocess.run([sys.executable, str(copy / "tables.py")], check=True)
    return copy


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_made_from_the_records(rebuilt: Path, page: str) -> None:
    """Another processor may round another way: words and verdicts are the same, numbers to a percent."""
    ours, made = (folder.joinpath(page).read_text() for folder in (RESULTS, rebuilt))
    assert NUMBER.sub("#", made) == NUMBER.sub("#", ours)
    found, expected = ([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (made, ours))
    assert found == pytest.approx(expected, rel=0.01, abs=1e-3)


def test_the_figures_are_drawn_from_the_records(rebuilt: Path) -> None:
    ours, made = ({str(path.relative_to(folder)) for path in folder.rglob("*.png")} for folder in (RESULTS, rebuilt))
    assert made == ours


def test_every_figure_is_shown() -> None:
    shown = {
        RESULTS / Path(page).parent / name for page in PAGES for name in PICTURE.findall((RESULTS / page).read_text())
    }
    assert shown == set(RESULTS.rglob("*.png"))
