"""The page: a study in, one HTML file out, with all that it needs inside."""

import base64
import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import bsrs
from bsrs.errors import optional
from bsrs.figures.style import eta_label
from bsrs.report.plots import COMPARISONS, METRICS, task_names, tasks
from bsrs.report.study import Study, read_png
from bsrs.stats.recommend import recommend
from bsrs.stats.resampling import three_digits
from bsrs.writing import make_folder, write_whole

OUTCOMES = ("failed", "diverged", "interrupted", "finished")
WIDE = 1_200  # pixels; a wider figure takes the whole width of the page, to stay legible


def write_report(study: Study, out: Path) -> Path:
    """Write the page about `study` to `out`."""
    shown = tasks(study.rows)
    grouped = ["--group-by", ",".join(study.group_by)] if study.group_by else []
    data = {"tasks": shown, "metrics": METRICS, "comparisons": COMPARISONS, "runs": _runs(study)}
    jinja2 = optional("jinja2", "a report", "report")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["interval"] = _interval_text
    script, plotly = _asset("page.js"), optional("plotly.offline", "a report", "report").get_plotlyjs()
    html = environment.from_string(_asset("page.html.j2")).render(
        title=study.title or ", ".join(folder.resolve().name for folder in study.folders),
        version=bsrs.__version__,
        command=shlex.join(["bsrs", "report", *map(str, study.folders), "-o", str(out), *grouped]),
        facts=_facts(study),
        tasks=shown,
        findings=_findings(study),
        claims=study.claims,
        figures=[_figure(path) for path in study.figures],
        group_by=study.group_by,
        unreadable={study.name_of(folder): _without_roots(why, study) for folder, why in study.unreadable.items()},
        # JSON that may stand inside a script element
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=_asset("page.css"),
        script=script,
        plotly=plotly,
        # for the Content-Security-Policy: no other scripts run, whatever a run's text contains
        hashes=" ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in (plotly, script)
        ),
    )
    make_folder(out.parent)
    write_whole(out, html.encode(errors="replace"))  # names of files need not be text
    return out


def _findings(study: Study) -> list[dict[str, str]]:
    """Return the recommendation for each task and variant, those where shaping helps first."""
    found = recommend([row.series for row in study.rows])
    names = task_names(study.rows)
    return [
        {
            "kind": "helps" if each.helps else "unsure",
            "task": names[each.task] + (f" · {each.variant}" if each.variant else ""),
            "sentence": each.sentence.replace("eta = ", "η = "),
        }
        for each in sorted(found, key=lambda each: not each.helps)
    ]


def _facts(study: Study) -> dict[str, Any]:
    runs = study.runs
    outcomes = Counter(run.outcome for run in runs)
    if study.unreadable:
        outcomes["unreadable"] = len(study.unreadable)
    etas = sorted({run.config.eta for run in runs}, key=lambda eta: (isinstance(eta, str), eta))
    return {
        "outcomes": dict(outcomes),
        "algorithms": sorted({run.config.algorithm for run in runs}),
        "envs": sorted({run.config.env for run in runs}),
        "etas": [eta_label(eta) for eta in etas],
        "seeds": len({run.config.seed for run in runs}),
        "steps": sum(run.step for run in runs),
        "hours": sum(run.seconds or 0.0 for run in runs) / 3600,
    }


def _runs(study: Study) -> list[dict[str, Any]]:
    """List every run, those with problems first, then by env and seed."""
    rows = []
    for run in sorted(study.runs, key=lambda run: (OUTCOMES.index(run.outcome), run.config.env, run.config.seed)):
        settings = {"algorithm": run.config.algorithm, **run.config.fields}
        row = {name: settings.pop(name) for name in ("env", "algorithm", "eta", "seed")}
        row |= {name: getattr(run, name) for name in ("step", "score", "outcome", "reason", "seconds")}
        rows.append({"folder": study.name_of(run.folder), **row, "steps": run.config.steps, "config": settings})
    return rows


def _figure(path: Path) -> dict[str, Any]:
    """Embed a PNG file as a data URL, with its caption and its width."""
    content, width = read_png(path)
    captions: dict[str, str] = json.loads(_asset("captions.json"))
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    kind = path.stem.rpartition("-")[2]  # many figures are the same kind for every experiment
    caption = captions.get(path.stem) or captions.get(kind) or path.stem.replace("-", " ").replace("_", " ")
    return {"name": path.stem, "caption": caption, "source": source, "wide": width >= WIDE}


def _without_roots(text: str, study: Study) -> str:
    for folder in study.folders:
        text = text.replace(f"{folder}/", "")
    return text


def _asset(name: str) -> str:
    return files("bsrs.report").joinpath("assets", name).read_text(encoding="utf-8")


def _interval_text(value: Sequence[float | None] | None, percent: bool = False) -> str:
    if value is None:
        return "–"
    estimate, low, high = (
        None if x is None else f"{round(x, 2) + 0.0:+.0%}" if percent else three_digits(x) for x in value
    )
    return f"{estimate} [{low}, {high}]" if low and high else f"{estimate or '∞'}"
