"""The code of README and docs: Python blocks run at a small size, and every command line is accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bsrs.cli import command_of, commands, main
from bsrs.cli.flags import parse
from bsrs.errors import BadInput

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = {
    *("README", "index", "getting-started", "idea", "own-mdp", "adaptive-eta", "custom-eta", "train-agents"),
    *("trained-agents", "envs", "report", "sweeps", "sb3"),
}
SMALL = {
    r"total_timesteps=[\d_]+": "total_timesteps=150",
    r"(?<!_)steps=[\d_]+": "steps=150",
    r"\.learn\(\)": ".learn(150)",
    r"\.learn\([\d_]+\)": ".learn(50)",
    r"episodes=\d+": "episodes=1",
    r"learning_starts=[\d_]+": "learning_starts=100",
    r'TD3\("MlpPolicy", "Pendulum-v1"\)': 'TD3("MlpPolicy", "Pendulum-v1", learning_starts=100)',
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    fences = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [code for language, code in fences if language in languages]


def command_lines(page: Path) -> list[list[str]]:
    """The words of every `bsrs` command on a page, without comments."""
    text = "\n".join(blocks(page, "sh", "console")).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").split(" > ")[0] for line in text.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("bsrs ")]
    return [each[1:] for each in words if "--plugin" not in each]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trained run that several pages take for granted."""
    where = tmp_path_factory.mktemp("docs")
    small = "--max-steps 150 --learning-starts 100 --eval-episodes 1 --no-tensorboard"
    main(shlex.split(f"train dqn --env CartPole-v1 --eta 0.5 {small} --out {where}/runs/cartpole"))
    main(shlex.split(f"export {where}/runs/cartpole"))
    return where


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem in RUN], ids=named)
def test_python_blocks_run_in_order(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    scope: dict[str, Any] = {"__name__": "page"}
    if page.stem == "README":  # the line for a loop of your own needs that loop's arrays
        exec("import bsrs; reward = value = next_value = 1.0; terminated = None", scope)
    for code in blocks(page, "python"):
        for found, instead in SMALL.items():
            code = re.sub(found, instead, code)
        exec(compile(code, named(page), "exec"), scope)


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=named)
def test_command_lines_are_accepted(page: Path) -> None:
    for words in command_lines(page):
        name = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in commands()), None)
        assert name is not None, words
        parse(command_of(name)[0], words[len(name) :], "bsrs", "")


def test_the_readmes_sweep_recommendation_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in command_lines(ROOT / "README.md") if line[0] in ("sweep", "recommend", "report")]
    assert [line[0] for line in lines] == ["sweep", "recommend", "report"]
    seeds = lines[0].index("--seeds")
    lines[0][seeds + 1] = "2"
    small = "--max-steps 300 --learning-starts 100 --eval-every 100 --eval-episodes 1 --workers 2 --no-tensorboard"
    lines[0] += small.split()
    for line in lines:
        main(line)
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_a_flag_that_is_gone_is_noticed() -> None:
    words = ["--env", "CartPole-v1", "--out", "x", "--comparator", "minto"]
    with pytest.raises(BadInput, match="--comparator"):
        parse(command_of(("train", "dqn"))[0], words, "bsrs", "")
