"""What README and docs say about the project: links, pictures, names and extras are there, and the site builds."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
PAGES += [*(ROOT / "results").glob("*.md"), *(ROOT / "examples").glob("*.md")]
GENERATED = {"changelog.md", "commands.md", "presets.md"}  # pages of the site that docs/hooks.py makes


def target_of(page: Path, name: str) -> Path | None:
    """The file that a link leads to; None for a page that the site generates."""
    if page.parent.name == "docs" and name in GENERATED:
        return None
    if page.parent.name == "docs" and name.startswith("results/"):
        return ROOT / name.replace("index.md", "README.md")
    return (page.parent / name).resolve() if name else page


def outside_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def headings(page: Path) -> set[str]:
    """As a site makes anchors of them."""
    titles = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", outside_code(page.read_text()))
    for link in [link for link in links if not link.startswith(("http", "mailto:"))]:
        name, _, anchor = link.partition("#")
        target = target_of(page, name)
        if target is None:
            continue
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in headings(target), f"{page.name} links to {link}"


def test_the_pages_have_their_pictures() -> None:
    for name in ("index", "idea", "choosing-eta", "adaptive-eta", "how-auto-works", "report"):
        assert "](images/" in (ROOT / "docs" / f"{name}.md").read_text(), name
    assert "](docs/images/readme.png)" in (ROOT / "README.md").read_text()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert len((ROOT / "docs" / "choosing-eta.md").read_text().split()) <= 400


def test_no_phrase_reads_as_translated() -> None:
    """STYLE: the phrases to avoid, in pages, help texts and messages."""
    done = subprocess.run([sys.executable, ROOT / "docs" / "check_words.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_of_the_package_exists(page: Path) -> None:
    """`bsrs.some.name` in a page, as code, can be imported."""
    for name in sorted(set(re.findall(r"`(bsrs(?:\.[A-Za-z_]\w*)+)", page.read_text()))):
        if name != "bsrs.algorithms":  # the group of entry points
            assert exists(name), f"{page.name} names {name}"


def exists(name: str) -> bool:
    """Whether it is a module, or an attribute of one, or of a class in it."""
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:length]))
        except ImportError:
            continue
        try:
            for word in words[length:]:
                found = getattr(found, word)
        except AttributeError:
            return False
        return True
    return False


def test_a_name_that_is_gone_is_noticed() -> None:
    assert exists("bsrs.DQN.load")
    assert not exists("bsrs.DQN.lood")
    assert not exists("bsrs.no_such_room.name")


def test_the_install_page_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(extras)


def test_the_extra_all_is_what_users_need_and_not_the_developers_tools() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    members = set(re.fullmatch(r"bsrs\[(.*)\]", everything).group(1).split(","))  # type: ignore[union-attr]
    libraries = {"rllib", "skrl", "tianshou", "torchrl"}  # their users have them
    assert members | libraries | {"all", "dev", "docs", "examples", "sb3"} == set(extras)  # sbx has sb3
    assert not members & {"dev", "docs", "examples"}


INTERVAL = re.compile(r"\[([-+−]?[\d,.]+), ([-+−]?[\d,.]+)\]")


def intervals(text: str) -> list[tuple[float, float]]:
    pairs = INTERVAL.findall(outside_code(text))
    return [
        (float(low.replace("−", "-").replace(",", "")), float(high.replace("−", "-").replace(",", "")))
        for low, high in pairs
    ]


def test_every_interval_that_a_page_quotes_is_in_the_results() -> None:
    """The pages of results/ are made from the records, so a quoted interval must be there, as it is or negated."""
    results = "\n".join(page.read_text() for page in (ROOT / "results").rglob("*.md"))
    known = {(round(sign * low), round(sign * high)) for low, high in intervals(results) for sign in (1, -1)}
    known |= {(high, low) for low, high in known}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if page.stem == "reliability":  # its table has a test of its own in test_versions.py
            continue
        for low, high in intervals(page.read_text()):
            if abs(low) >= 5 or abs(high) >= 5:  # smaller ones are no scores
                assert (round(low), round(high)) in known, f"{page.name}: [{low:g}, {high:g}]"


def test_no_page_promises_what_the_results_do_not_show() -> None:
    wrong = ("learns faster", "a faster value-based agent", "fifth of the memory", "never costs", "pip install 'bsrs[")
    for page in [*PAGES, ROOT / "pyproject.toml", ROOT / "mkdocs.yml"]:
        text = " ".join(page.read_text().split())
        assert [words for words in wrong if words in text] == [], page.name


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    for page in ("index", "results/index", "changelog/index", "commands/index", "presets/index", "lab/lab"):
        assert (tmp_path / f"{page}.html").exists(), page
    assert_no_link_is_broken(tmp_path)
    api = (tmp_path / "api" / "index.html").read_text()
    missing = [name for name in public_names() if not re.search(rf'id="[\w.]*\b{name}"', api)]
    assert missing == []


def public_names() -> list[str]:
    """What users can import: the package's own names, and those of its public modules."""
    import bsrs
    import bsrs.stats
    import bsrs.tabular

    modules = (bsrs, bsrs.tabular, bsrs.stats)
    names = [(module, name) for module in modules for name in getattr(module, "__all__", dir(module))]
    known = ("BadInput", "Any", "Verdict")  # an exception, and two types
    return [n for module, n in names if callable(getattr(module, n)) and not n.startswith("_") and n not in known]


def assert_no_link_is_broken(site: Path) -> None:
    """Every link inside the site leads to a file and, with an anchor, to an element of it."""
    pages = {page: page.read_text(errors="replace") for page in site.rglob("*.html") if page.name != "404.html"}
    for page, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"#:]*)(?:#[^"]*)?"', text):
            if link and not link.startswith(("/", "data")):
                target = (page.parent / link.split("?")[0]).resolve()
                assert target.exists() or not target.is_relative_to(site), f"{page.relative_to(site)}: {link}"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize(("file", "name"), sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", ARCHITECTURE))))
def test_a_test_that_the_architecture_names_exists(file: str, name: str) -> None:
    assert re.search(rf"(def|class) {name}\b", (ROOT / "tests" / file).read_text())


def test_the_api_page_has_every_public_name() -> None:
    import bsrs
    from bsrs import tabular

    entries = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    listed = {entry.rpartition(".")[2] for entry in entries}
    public = [name for name in dir(bsrs) if getattr(getattr(bsrs, name), "__module__", "").startswith("bsrs.")]
    assert len(public) > 15
    assert sorted({*public, *tabular.__all__} - listed) == []
    adapters = {f"bsrs.{library}.shape" for library in ("rllib", "torchrl", "tianshou", "skrl")}
    assert adapters | {"bsrs.sb3"} <= set(entries)
