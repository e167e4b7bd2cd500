"""An algorithm from outside the package: the agent of docs/adding-an-algorithm.md, as it stands there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bsrs.cli import main
from bsrs.errors import BadInput

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
SWEEP = "sweep linear --env CartPole-v1 --eta 0 0.5 --seeds 2 --workers 2 --log-every 200 --checkpoint-every 200"
SWEEP += " --max-steps 3000 --eval-episodes 1 --no-tensorboard"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's module in it."""
    code = re.search(r"```python\n(\"\"\"Q-learning.*?)```", PAGE, re.DOTALL)
    assert code is not None
    (tmp_path / "linear_agent.py").write_text(code.group(1))
    return tmp_path


def start(folder: Path, words: str, **environment: str) -> subprocess.Popen[str]:
    """`bsrs WORDS` in the folder, as the installed command does it: without the folder on the path."""
    code = "import sys; sys.path.remove(''); from bsrs.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, words: str, **environment: str) -> str:
    process = start(folder, words, **environment)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    return output


def metrics(root: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in root.glob("*/metrics.jsonl")}


def test_the_commands_of_the_page(folder: Path) -> None:
    commands = re.findall(r"^\$ bsrs (.*)$", PAGE, re.MULTILINE)
    outputs = [run(folder, words) for words in commands]
    assert len(outputs) == 4
    assert re.search(r"careful, for \*\n +--learning-rate 0\.001", outputs[0])
    assert "run: finished at step 2,000, score" in outputs[1]
    assert "4 runs: 4 finished" in outputs[2]
    page = (folder / "report.html").read_text()
    assert "linear" in page
    assert len(list((folder / "runs").glob("linear-CartPole-v1-eta0.5-seed?-*/model.safetensors"))) == 2


def test_killed_in_a_sweep_and_resumed(folder: Path) -> None:
    words = SWEEP
    run(folder, f"{words} --out whole", BSRS_PLUGINS="linear_agent")
    process = start(folder, f"{words} --out cut", BSRS_PLUGINS="linear_agent")
    while not list((folder / "cut").glob("*/checkpoint/state.json")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(list((folder / "cut").glob("*/result.json"))) < 4
    run(folder, f"{words} --out cut", BSRS_PLUGINS="linear_agent")
    assert len(metrics(folder / "whole")) == 4
    assert metrics(folder / "cut") == metrics(folder / "whole")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train linear --env CartPole-v1", "unknown train command 'linear'"),
        ("--plugin no_such_module train linear --env CartPole-v1", "no module 'no_such_module'"),
        ("runs . --plugin", "--plugin has no module"),
    ],
)
def test_without_the_plugin(
    words: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSRS_PLUGINS", "")
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_a_name_is_taken_once() -> None:
    from bsrs import register
    from bsrs.config.agents import DQNConfig

    with pytest.raises(BadInput, match="'dqn' is registered already"):
        register(DQNConfig)(object)


def test_members_differ_in_what_the_row_allows() -> None:
    from bsrs.config.agents import DQNConfig
    from bsrs.run import make_agent

    configs = [DQNConfig(env="CartPole-v1", steps=100, gamma=gamma) for gamma in (0.9, 0.8)]
    with pytest.raises(BadInput, match=r"differ in gamma; expected .*\beta\b.*\bseed\b.* only"):
        make_agent(configs)
