"""Helpers for the tests of adapters and examples."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from bsrs.auto import ADVANTAGE

ROOT = Path(__file__).parent.parent


def example(name: str, folder: Path = ROOT / "examples") -> Any:
    """The module of an example file."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_code(heading: str, language: str = "python") -> str:
    """The first block of code under a heading of docs/libraries.md."""
    section = (ROOT / "docs" / "libraries.md").read_text().split(f"# {heading}\n")[1]
    code = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert code is not None
    return code.group(1)


def run_page_code(heading: str, **changes: str) -> dict[str, Any]:
    """Run that block, with some of its numbers changed: `steps="1_000"` for `steps = 10_000`; return its variables."""
    code = page_code(heading)
    for name, value in changes.items():
        code, found = re.subn(rf"\b{name}( ?= ?)[\w.]+", rf"{name}\g<1>{value}", code)
        assert found, name
    variables: dict[str, Any] = {}
    exec(compile(code, f"docs/libraries.md, {heading}", "exec"), variables)
    return variables


def auto_target(b: float, plain: Any, reward: Any, value: Any, next_value: Any) -> Any:
    """The TD target of eta="auto" at a share b, from the library's own; `next_value` is discounted, 0 at an end."""
    little = ADVANTAGE / (1 - ADVANTAGE)
    return (1 + little) * (reward / 2 + (1 - b) * (plain - reward) + b * next_value) - little * value
