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
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *(ROOT / "docs").glob("*.md")]
PAGES += (ROOT / "examples").glob("*.md")
# pages of the site that live elsewhere: see docs/hooks.py
MOVED = {
    "results/index.md": "results/README.md",
    "results/anatomy/index.md": "results/anatomy/README.md",
    "changelog.md": "CHANGELOG.md",
}


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
        moved = page.parent.name == "docs" and name in MOVED
        target = ROOT / MOVED[name] if moved else (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in headings(target), f"{page.name} links to {link}"


def test_the_pages_have_their_pictures() -> None:
    for name in ("index", "idea", "choosing-eta", "adaptive-eta", "report"):
        assert "](images/" in (ROOT / "docs" / f"{name}.md").read_text(), name
    assert "](pendulum/pendulum.png)" in (ROOT / "results" / "README.md").read_text()


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
    assert members | {"all", "dev", "docs", "examples", "sb3"} == set(extras)  # sbx has sb3
    assert not members & {"dev", "docs", "examples"}


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
    for page in (
        "index.html",
        "results/index.html",
        "changelog/index.html",
        "install/index.html",
        "lab/index.html",
        "lab/lab.html",
    ):
        assert (tmp_path / page).exists(), page
    api = (tmp_path / "api" / "index.html").read_text()
    for argument in ("learning_rate", "potential_network", "value_fn", "target_update_interval", "shaping"):
        assert argument in api, argument


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize(("file", "name"), sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", ARCHITECTURE))))
def test_a_test_that_the_architecture_names_exists(file: str, name: str) -> None:
    assert re.search(rf"(def|class) {name}\b", (ROOT / "tests" / file).read_text())
