"""Every example runs as it stands, at a small size, and so does the README's code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("stable_baselines3", ["sb3_ten_lines.py", "300"]),
        ("torch", ["cleanrl_style_dqn.py", "--steps", "300"]),
        ("rl_zoo3", ["rl_zoo.py", "--steps", "300"]),
        ("torchrl", ["torchrl_dqn.py", "--steps", "300"]),
        ("tianshou", ["tianshou_dqn.py", "--steps", "300"]),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_example(library: str, words: list[str], tmp_path: Path) -> None:
    pytest.importorskip(library)
    run(str(ROOT / "examples" / words[0]), *words[1:], cwd=tmp_path)


def test_the_readmes_first_code_block(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert code is not None
    assert "bsrs.sb3.shape(" in code.group(1)
    run("-c", code.group(1).replace("total_timesteps=20_000", "total_timesteps=1_200"), cwd=tmp_path)
