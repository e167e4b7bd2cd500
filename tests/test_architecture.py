"""docs/architecture.md names functions and tests: each of them exists."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMES = sorted(set(re.findall(r"`(bsrs(?:\.\w+)+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_page_is_in_the_code(name: str) -> None:
    words = name.split(".")
    for end in range(len(words), 0, -1):
        try:
            module = importlib.import_module(".".join(words[:end]))
        except ModuleNotFoundError:
            continue
        reduce(getattr, words[end:], module)
        return
    pytest.fail(f"no module of {name}")


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert re.search(rf"(def|class) {name}\b", (ROOT / "tests" / file).read_text())
