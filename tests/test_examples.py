"""Every example runs as it stands, at a small size, and so does the README's code."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# file, arguments that make it small, the library without which it cannot run, what it prints at the end
EXAMPLES = [
    ("sb3_ten_lines.py", ["300"], "stable_baselines3", r"shaping/ .*\|\s+potential"),
    ("cleanrl_style_dqn.py", ["--steps", "800"], "torch", r"800 steps, eta 0\.5, mean return .* \d"),
    ("torchrl_dqn.py", ["--steps", "400"], "torchrl", r"400 steps, eta 0\.5, mean return .* \d"),
    ("tianshou_dqn.py", ["--steps", "200"], "tianshou", r"200 steps, eta 0\.5, mean return .* \d"),
    ("my_envs.py", ["300", "catch"], "torch", r"one episode: [-+]1; mean of twenty: [-+]\d"),
]


@pytest.mark.parametrize(("file", "arguments", "library", "printed"), EXAMPLES, ids=[row[0] for row in EXAMPLES])
def test_example_runs(file: str, arguments: list[str], library: str, printed: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    output = run(str(ROOT / "examples" / file), *arguments, cwd=tmp_path)
    assert re.search(printed, output, re.DOTALL), output


def run(*words: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_first_code_block(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    assert "bsrs.sb3.shape(" in code.group(1)
    run("-c", code.group(1).replace("total_timesteps=20_000", "total_timesteps=1_200"), cwd=tmp_path)


def test_the_notebook_goes_from_runs_to_a_figure(tmp_path: Path) -> None:
    """Its code cells, one after the other, in a folder that has the repository's results where the notebook looks."""
    pytest.importorskip("pandas")
    notebook = json.loads((ROOT / "examples" / "own_figure.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "examples").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    prelude = "import matplotlib; matplotlib.use('Agg')"
    printed = run("-c", "\n".join([prelude, *cells, "print(intervals)"]), cwd=tmp_path / "examples")
    assert (tmp_path / "examples" / "own-figure.png").read_bytes().startswith(b"\x89PNG")
    assert "10.0: " in printed


def test_shaping_inside_rl_zoo_changes_the_rewards(tmp_path: Path) -> None:
    """Once the zoo's model learns, what shaping adds to a reward is not zero."""
    pytest.importorskip("rl_zoo3")
    output = run(str(ROOT / "examples" / "rl_zoo.py"), "--steps", "1300", cwd=tmp_path)
    tables = re.findall(r"shaping/ .*?abs +\| (\S+).*?eta +\| (\S+).*?potential +\| (\S+)", output, re.DOTALL)
    assert tables, output
    absolute, eta, potential = map(float, tables[-1])
    assert eta == 0.5
    assert absolute > 0
    assert potential != 0
    assert "Saving to" in output


def test_every_example_is_tested() -> None:
    tested = {file for file, *_ in EXAMPLES} | {"rl_zoo.py"}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tested


def test_the_commands_of_the_zoo_page_are_those_of_the_example() -> None:
    """The page's hyperparameter and the script's are one text, so that neither can rot alone."""
    page = (ROOT / "examples" / "rl_zoo.md").read_text()
    assert "callback:{'bsrs.sb3.ShapeCallback': {'eta': 0.5}}" in page


def test_the_single_file_dqn_without_shaping_is_another_run(capsys: pytest.CaptureFixture[str]) -> None:
    """eta reaches the loss: two etas give two results, and one eta repeats."""
    spec = importlib.util.spec_from_file_location("cleanrl_style_dqn", ROOT / "examples" / "cleanrl_style_dqn.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def lines(eta: str) -> str:
        sys.argv = ["cleanrl_style_dqn.py", "--steps", "1500", "--eta", eta]
        module.main(module.parse_args())
        return capsys.readouterr().out.split("mean return")[1]

    assert lines("0.5") == lines("0.5")
    assert lines("0.5") != lines("0.0")
