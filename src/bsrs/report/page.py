"""The page: records in, one HTML file out, with all that it needs inside."""

from __future__ import annotations

import base64
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import bsrs
from bsrs.config.base import to_dict
from bsrs.errors import BadInput, MissingExtra
from bsrs.figures.style import eta_label
from bsrs.report.pictures import pictures
from bsrs.report.plots import METRICS, interval, series_label, task_names, tasks
from bsrs.stats.records import RunRecord, read_runs, series_of
from bsrs.stats.summary import Row, summary

OUTCOMES = ("failed", "diverged", "unfinished", "finished")


def write_report(root: Path, out: Path, title: str = "") -> Path:
    """A page about all runs in `root`, with the figures and claims that `bsrs reproduce` left there."""
    runs, unreadable = read_runs(root)
    if not runs and not unreadable:
        raise BadInput(f"{root} holds no runs; expected folders with a config.json")
    rows = summary(series_of(runs))
    names = task_names(rows)
    html = _template("page.html.j2").render(
        title=title or root.resolve().name,
        version=bsrs.__version__,
        command=shlex.join(["bsrs", "report", str(root), "-o", str(out)]),
        facts=_facts(runs, unreadable),
        table=[_table_row(row, names[row.series.task]) for row in rows],
        claims=_claims(root),
        figures=_figures(root) + pictures(rows),
        unreadable={str(folder.relative_to(root)): why.replace(f"{root}/", "") for folder, why in unreadable.items()},
        data=_json({"tasks": tasks(rows), "metrics": METRICS, "runs": _runs(runs, root)}),
        style=_asset("page.css"),
        script=_asset("page.js"),
        plotly=_plotly(),
    )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}") from None
    return out


def _facts(runs: Sequence[RunRecord], unreadable: dict[Path, str]) -> dict[str, Any]:
    outcomes = Counter(run.outcome for run in runs)
    if unreadable:
        outcomes["unreadable"] = len(unreadable)
    etas = sorted({run.config.eta for run in runs}, key=lambda eta: (isinstance(eta, str), eta))
    seconds = sum(run.seconds or 0.0 for run in runs)
    return {
        "outcomes": dict(outcomes),
        "algorithms": sorted({run.config.algorithm for run in runs}),
        "envs": sorted({run.config.env for run in runs}),
        "etas": [eta_label(eta) for eta in etas],
        "seeds": len({run.config.seed for run in runs}),
        "steps": sum(run.step for run in runs),
        "hours": seconds / 3600,
    }


def _runs(runs: Sequence[RunRecord], root: Path) -> list[dict[str, Any]]:
    """All of them, those first that went wrong: nobody should have to look for them."""
    return [_run(run, root) for run in sorted(runs, key=lambda run: OUTCOMES.index(run.outcome))]


def _run(run: RunRecord, root: Path) -> dict[str, Any]:
    config = to_dict(run.config)
    return {
        "folder": str(run.folder.relative_to(root)),
        "env": run.config.env,
        "algorithm": run.config.algorithm,
        "eta": run.config.eta,
        "seed": run.config.seed,
        "step": run.step,
        "steps": run.config.steps,
        "score": run.score,
        "outcome": run.outcome,
        "reason": run.reason,
        "seconds": run.seconds,
        "config": {name: value for name, value in config.items() if name not in ("env", "eta", "seed")},
    }


def _table_row(row: Row, task: str) -> dict[str, Any]:
    return {
        "task": task,
        "label": series_label(row.series),
        "runs": len(row.series.seeds),
        "diverged": row.series.diverged,
        "final": interval(row.final),
        "area": interval(row.area),
        "steps": _steps_text(row.steps_to_level),
        "improvement": interval(row.improvement) if row.improvement else None,
        "advantage": interval(row.advantage) if row.advantage else None,
    }


def _steps_text(steps: float) -> str:
    if np.isnan(steps):
        return "–"
    return f"{steps:,.0f}" if np.isfinite(steps) else "not reached"


def _claims(root: Path) -> list[dict[str, str]]:
    """The tables of claims that `bsrs reproduce` wrote anywhere in `root`."""
    found = []
    for path in sorted(root.rglob("claims.json")):
        try:
            found += json.loads(path.read_text())["claims"]
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path} is damaged; `bsrs reproduce` writes it anew") from None
    return found


def _figures(root: Path) -> list[dict[str, str]]:
    """Pictures that lie in `root` and below, but for those of single runs, as data URLs."""
    paths = sorted(path for path in root.rglob("*.png") if not (path.parent / "config.json").exists())
    return [
        {"name": path.stem, "source": f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"}
        for path in paths
    ]


def _json(data: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("bsrs.report").joinpath("assets", name).read_text(encoding="utf-8")


def _template(name: str) -> Any:
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("a report", "report") from None
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["interval"] = _interval_text
    return environment.from_string(_asset(name))


def _interval_text(value: Sequence[float | None] | None, percent: bool = False) -> str:
    if value is None:
        return "–"
    estimate, low, high = (None if x is None else f"{x:+.0%}" if percent else f"{x:,.4g}" for x in value)
    return f"{estimate} [{low}, {high}]" if low and high else f"{estimate or '∞'}"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingExtra("a report", "report") from None
    return str(get_plotlyjs())
