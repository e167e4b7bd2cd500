"""Wheel and sdist: they build, hold what they need, and work where nothing is installed but what they ask for."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bsrs

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the repository and, as an index would have it, the wheel that is built from the sdist."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=source)
    return folder


def run(*words: str, cwd: Path, environment: dict[str, str] | None = None, code: int = 0) -> str:
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_wheel_holds_the_whole_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = run("git", "ls-files", "src/bsrs", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    assert {path.removeprefix("src/") for path in tracked} <= held
    assert not [name for name in held if name.startswith(("tests", "results", "docs"))]


def needs(wheel: Path) -> set[str]:
    """Every distribution that installing the wheel brings, by its own metadata and that of what it needs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        asked = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)
    left = [(Requirement(line), "") for line in asked]
    found: set[tuple[str, str]] = set()
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            key = canonicalize_name(requirement.name), wanted
            if key not in found:
                found.add(key)
                left += [(Requirement(line), wanted) for line in metadata.requires(requirement.name) or ()]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def fresh(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing but what its metadata asks for, by links to what is installed here."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", symlinks=True)
    (wheel,) = built.glob("*.whl")
    python = str(folder / "venv" / "bin" / "python")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
        cwd=folder,
    )
    (site,) = (folder / "venv" / "lib").glob("*/site-packages")
    for name in needs(wheel):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return folder


COMMANDS = [  # the words, the exit code, what is said
    ("presets", 0, "paper-atari"),  # a data file
    ("tabular solve --eta 0 0.23", 0, "converged"),
    ("train dqn --env CartPole-v1 --steps 200 --eval-episodes 1 --threads 1 --out run", 0, "finished at step 200"),
    ("export run --format torchscript", 0, "1,000 are equal"),
    ("report run", 2, "bsrs[report]"),
    ("train dqn --env MinAtar/Breakout-v1", 2, "bsrs[atari]"),
    ("export run", 2, "bsrs[onnx]"),
]
SCRIPT = """
import sys, bsrs.cli
print(bsrs.__file__)
for words in sys.argv[1:]:
    code = 0
    try:
        bsrs.cli.main(words.split())
    except SystemExit as stop:
        code = stop.code
    print(f"== {words}: {code}", flush=True)
"""


def test_it_works_with_nothing_but_what_its_metadata_asks_for(fresh: Path) -> None:
    programs = fresh / "venv" / "bin"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(fresh), "OMP_NUM_THREADS": "1"}
    version = run(str(programs / "bsrs"), "--version", cwd=fresh, environment=environment)
    assert version == f"bsrs {bsrs.__version__}\n"
    words = [row[0] for row in COMMANDS]
    done = subprocess.run(
        [str(programs / "python"), "-c", SCRIPT, *words],
        cwd=fresh,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )
    assert done.stdout.startswith(str(fresh)), done.stdout
    for words, code, says in COMMANDS:
        before, _, _ = done.stdout.partition(f"== {words}: {code}\n")
        assert before != done.stdout, done.stdout
        assert says in before.rpartition("== ")[2], done.stdout


def test_version_changelog_and_docs_agree(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.startswith(f"bsrs-{bsrs.__version__}-")
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == bsrs.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]  # one place says it: src/bsrs/__init__.py
    pythons = {line.rsplit(" ", 1)[1] for line in project["project"]["classifiers"] if "Python :: 3." in line}
    assert project["project"]["requires-python"].removeprefix(">=") in pythons
    assert f"Python {min(pythons, key=lambda v: int(v[2:]))} or newer" in (ROOT / "docs" / "install.md").read_text()
