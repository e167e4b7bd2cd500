"""The pages of results/ are what its records say."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bsrs.stats.summary import gain
from experiments.claims import final
from experiments.records import by_eta, records

PROJECT = Path(__file__).parent.parent
RESULTS = PROJECT / "results"
PAGES = sorted(
    str(path.relative_to(PROJECT)) for path in RESULTS.glob("**/*.md") if "runs" not in path.relative_to(RESULTS).parts
)
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy without pictures, after `python -m experiments tables` there."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(RESULTS, copy / "results", ignore=shutil.ignore_patterns("*.png", "__pycache__"))
    shutil.copy(PROJECT / "README.md", copy)
    paths = {"PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "experiments", "tables"], cwd=copy, env=paths, check=True)
    return copy


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_the_pages_are_made_from_the_records(rebuilt: Path, page: str) -> None:
    """Another processor may round another way: words and verdicts are the same, numbers to a percent."""
    ours, made = (folder.joinpath(page).read_text() for folder in (PROJECT, rebuilt))
    assert NUMBER.sub("#", made) == NUMBER.sub("#", ours)
    found, expected = ([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (made, ours))
    assert found == pytest.approx(expected, rel=0.01, abs=1e-3)


@pytest.mark.timeout(900)
def test_the_figures_are_drawn_from_the_records(rebuilt: Path) -> None:
    ours, made = (
        {str(path.relative_to(folder)) for path in (folder / "results").rglob("*.png")} for folder in (PROJECT, rebuilt)
    )
    assert made == ours
    assert (rebuilt / "docs/images/readme.png").stat().st_size > 20_000


def test_the_docs_quote_the_simulated_error_rates() -> None:
    rows = json.loads((RESULTS / "calibration.json").read_text())["rows"]
    rates = {row["statistic"]: row["false_holds"] for row in rows if row["distribution"] == "10% failures, shaped only"}
    quoted = re.findall(r"(?:says|in) \S+ in (\d+)%", (PROJECT / "docs/statistics.md").read_text().replace("\n", " "))
    told = ("paired difference", "recommend", "6 tasks pooled, over seeds")
    assert quoted == [f"{100 * rates[name]:.0f}" for name in told]
    assert {row["n"] for row in rows} == {10}


def test_every_figure_is_shown() -> None:
    shown = {
        (PROJECT / page).parent.joinpath(name).resolve() for page in PAGES
        for name in PICTURE.findall((PROJECT / page).read_text())
    }  # fmt: skip
    assert shown == {*RESULTS.rglob("*.png"), PROJECT / "docs/images/readme.png"}


def test_the_first_screen_says_what_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of tuned CartPole at eta = 1 is in the first ten lines, with the records' numbers."""
    monkeypatch.chdir(PROJECT)
    own = by_eta(records("zoo/cartpole"))
    loss = gain(own[1.0], own[0.0], final)
    assert loss is not None
    first = "\n".join((RESULTS / "README.md").read_text().splitlines()[:10])
    assert (loss.ahead, loss.n) == (0, 10)
    assert f"({loss.mean:.0f} [{loss.low:.0f}, {loss.high:.0f}]): all ten seeds lose" in first
    assert len(re.findall(r"[A-Za-z]+", (RESULTS / "README.md").read_text())) <= 600


def test_all_results_has_a_row_for_every_series() -> None:
    rows = list(csv.DictReader((RESULTS / "all-results.csv").open()))
    assert len({tuple(row.items()) for row in rows}) == len(rows)
    tuned = [row for row in rows if row["env"] == "CartPole-v1" and row["study"] == "zoo" and row["eta"] == "1"]
    assert [(row["seeds"], row["failed"], row["final_gain"]) for row in tuned] == [("10", "1", "-177.53")]
