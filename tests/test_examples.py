"""Every example runs as it stands, at a small size, and so does the README's code."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support import example, page_code, run_page_code

ROOT = Path(__file__).parent.parent

# file, arguments that make it small, the library without which it cannot run, what it prints at the end
EXAMPLES = [
    ("custom_eta.py", ["--steps", "600"], "torch", r"CountBased\(scale=2\.0\): 0\.\d.*ErrorBased"),
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
    command = shlex.split(page_code("rl-baselines3-zoo", "bash"))
    small = ["--n-timesteps", "1300", "--log-folder", "logs", "--eval-freq", "-1", "--seed", "1"]
    assert command[0] == "python"
    output = run(*command[1:], *small, cwd=tmp_path)
    tables = re.findall(r"shaping/ .*?eta +\| (\S+).*?mean +\| (\S+)", output, re.DOTALL)
    assert tables, output
    eta, mean = map(float, tables[-1])
    assert eta == 0.5
    assert mean != 0
    assert "Saving to" in output


def test_the_blocks_for_sb3_and_for_a_loop_of_your_own_run(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    # Long enough for episodes to end, and so for a table, after the first update.
    output = run("-c", page_code("Stable-Baselines3").replace("50_000", "1_500"), cwd=tmp_path)
    assert re.search(r"shaping/ .*\|\s+value", output, re.DOTALL), output
    assert run_page_code("A training loop of your own")["reward"].std() > 0


def test_the_zoos_hyperparameter_file_is_its_command() -> None:
    """The page's two forms name one callback, so that neither can rot alone."""
    assert "bsrs.sb3.ShapeCallback:\n        eta: 0.5" in page_code("rl-baselines3-zoo", "yaml")


def test_every_example_is_tested() -> None:
    tested = {file for file, *_ in EXAMPLES} | {f"{name}.py" for name in SINGLE_FILES}
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == tested


# Single files in the manner of CleanRL, at a small size.
SINGLE_FILES = {
    "cleanrl_dqn": {"total_timesteps": 900, "target_network_frequency": 50},
    "cleanrl_td3": {"total_timesteps": 401, "learning_starts": 200, "tau": 0.1, "batch_size": 32},
    "cleanrl_sac": {"total_timesteps": 401, "learning_starts": 200, "tau": 0.1, "batch_size": 32},
}


@pytest.mark.parametrize("name", SINGLE_FILES)
def test_a_single_file_without_its_marked_lines_is_the_one_at_eta_zero(name: str, tmp_path: Path) -> None:
    size, module = SINGLE_FILES[name], example(name)
    lines = (ROOT / "examples" / f"{name}.py").read_text().splitlines()
    stripped = [line for line in lines if "  # BSRS" not in line]
    assert 5 <= len(lines) - len(stripped) <= 16
    assert not re.search("bsrs|shap(er|ed)", "\n".join(stripped).split('"""')[2].replace("bsrs.shaped_reward(", ""))
    (tmp_path / f"{name}.py").write_text("\n".join(stripped))
    plain = example(name, tmp_path)
    without = plain.main(plain.Args(**size))
    assert module.main(module.Args(eta="0", **size)) == without
    for eta in ("0.5", "auto"):
        returns = module.main(module.Args(eta=eta, **size))
        assert returns != without
        assert np.isfinite(returns).all()
