"""The notebook runs from top to bottom, and what it draws is what happened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Its code cells in order, in one namespace, as a kernel runs them; with fewer steps."""
    pytest.importorskip("stable_baselines3")
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    assert all(not cell.get("outputs") for cell in notebook["cells"])  # kept without output
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"]).replace("STEPS = 4_000", "STEPS = 1_500")
            exec(compile(source, cell["id"], "exec"), names)
    for name in ("eta-and-value.png", "learning-curve.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in printed[-2:]] == ["baseline", "shaped"]
    for watch in names["shaped"]:  # type: ignore[attr-defined]
        assert watch.eta
        assert all(np.isfinite(number) for _, number in watch.eta + watch.value)
        assert [step for step, _ in watch.value] == list(range(100, 1_501, 100))
    assert all(not watch.eta for watch in names["baseline"])  # type: ignore[attr-defined]
    values = [[number for _, number in names[kind][0].value] for kind in ("baseline", "shaped")]  # type: ignore[index]
    assert values[0][:5] == values[1][:5]  # the same networks, until they learn
    assert values[0] != values[1]
