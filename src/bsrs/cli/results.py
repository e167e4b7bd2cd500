"""What runs have left: `bsrs runs`, `recommend`, `report`, `play` and `export`."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from bsrs.cli.show import print_json, print_recommendations
from bsrs.config.sweep import RunFilter
from bsrs.config.training import check_range
from bsrs.errors import BadInput, printable, say
from bsrs.naming import read_value

if TYPE_CHECKING:
    from bsrs.stats.recommend import Recommendation
    from bsrs.store.table import RunStatus

_COLUMNS = ("env", "algorithm", "eta", "seed", "step", "score", "state", "age", "name")
_RIGHT = {"eta", "seed", "step", "score", "age"}


@dataclass(frozen=True, kw_only=True)
class RunsArguments(RunFilter):
    folder: Annotated[Path, tyro.conf.Positional]
    """A sweep's folder, or any folder with runs below it."""
    json: bool = False
    """Print one JSON document instead of a table."""
    csv: bool = False
    """Print comma-separated values instead, with a column for each setting of the configs."""
    sql: str = ""
    """Ask DuckDB instead: the tables are `runs` (a row each) and `records` (a row for each of their records)."""


def runs(arguments: RunsArguments) -> None:
    """List the runs, or answer a question about them."""
    from bsrs.store.table import list_runs

    if arguments.sql:
        _answer(arguments)
        return
    found = list_runs(arguments.folder, arguments)
    if arguments.json:
        print_json({"runs": [dataclasses.asdict(status) for status in found]})
    elif arguments.csv:
        _print_csv(found)
    else:
        _print_columns([_COLUMNS, *map(_row, found)])
        for status in found:
            if status.state in ("failed", "damaged"):
                kept = arguments.folder / status.name / "traceback.txt"
                where = f" (see {kept})" if kept.exists() else ""
                print(printable(f"{status.name}: {status.reason}{where}"))
        _print_summary(found, arguments)


def _answer(arguments: RunsArguments) -> None:
    from bsrs.store.table import connect

    connection = connect(arguments.folder, arguments)
    try:
        answer = connection.sql(arguments.sql)
        text = "nothing to show" if answer is None else str(answer)
    except Exception as error:  # DuckDB's own, and those of texts that are none or of numbers too large for Python
        raise BadInput(f"the question cannot be answered: {error}") from None
    print(printable(text, keep="\n"))


def _print_csv(found: Sequence[RunStatus]) -> None:
    from bsrs.store.table import run_row

    def text(value: Any) -> str:
        parts = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        return printable(" ".join(map(str, parts)))

    rows = [{key: text(value) for key, value in run_row(status).items()} for status in found]
    writer = csv.DictWriter(sys.stdout, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Without a frame: ten thousand rows are no place for ornament."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        cells = zip(_COLUMNS, row, widths, strict=True)
        print("  ".join(f"{cell:>{w}}" if name in _RIGHT else f"{cell:<{w}}" for name, cell, w in cells).rstrip())


def _row(status: RunStatus) -> tuple[str, ...]:
    cells = (
        status.env,
        status.algorithm,
        f"{status.eta:g}" if isinstance(status.eta, (int, float)) else status.eta,
        str(status.seed),
        f"{status.step:,}",
        "" if status.score is None else f"{status.score:.2f}",
        status.state,
        _age(status.age_s),
        status.name,
    )
    return tuple(map(printable, cells))


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _print_summary(found: Sequence[RunStatus], arguments: RunsArguments) -> None:
    from bsrs.sweep.conduct import planned_runs

    counts = Counter(status.state for status in found)
    words = [f"{number} {state}" for state, number in sorted(counts.items())]
    filtered = any(getattr(arguments, field.name) for field in dataclasses.fields(RunFilter))
    waiting = set() if filtered else set(planned_runs(arguments.folder)) - {status.name for status in found}
    words += [f"{len(waiting)} not begun"] if waiting else []
    print(f"{len(found)} runs" + (f": {', '.join(words)}" if words else ""))


# --------------------------------------------------------------------------------------------------------------
# Answers.


def recommend(
    folders: Positional[tuple[Path, ...]], by: Literal["training", "final"] = "training", json: bool = False
) -> None:
    """Recommend an eta for each algorithm and env in one or more folders of runs.

    Args:
        folders: Search these folders, and all folders below them, for runs.
        by: Judge by the mean score over training or by the final score. The answer reports both.
        json: Print one JSON document instead of sentences.
    """
    from bsrs.stats.recommend import recommend as recommend_eta
    from bsrs.stats.records import read_runs, series_of

    read, damaged = read_runs(*folders)
    for run, why in damaged.items():
        say(f"{run.name} is damaged and counts nowhere: {why}")
    found = recommend_eta(series_of(read), by)
    if not found:
        where = ", ".join(map(str, folders)) or "no folder is named"
        raise BadInput(f"{where}: no ended run with an eta other than 0; expected a sweep over eta")
    if json:
        print_json({"recommendations": [_record(each) for each in found]})
    else:
        print_recommendations(found)


def _record(each: Recommendation) -> dict[str, Any]:
    record: dict[str, Any] = {"sweep": str(each.task.sweep), "algorithm": each.task.algorithm, "env": each.task.env}
    record |= {name: value for name, value in dataclasses.asdict(each).items() if name != "task"}
    for name in ("failures", "baseline_failures"):
        if (found := getattr(each, name)) is not None:
            record[name]["bound"] = found.bound
    return record


def report(
    folders: Positional[tuple[Path, ...]],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    title: str = "",
    group_by: str = "",
) -> None:
    """Write one self-contained HTML page about one or more folders of runs.

    Args:
        folders: Search these folders, and all folders below them, for runs.
        out: Write the page to this file.
        title: Set the headline. By default it is the folders' names.
        group_by: Overlay the folders: runs with equal values of these config fields share a line, for example
            double,eta.
    """
    from bsrs.report import read_study, write_report

    fields = tuple(name.strip().replace("-", "_") for name in group_by.split(",") if name.strip())
    page = write_report(read_study(folders, title=title, group_by=fields), out)
    print(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser")


# --------------------------------------------------------------------------------------------------------------
# Trained agents.


def _picked(folder: Path, eta: str, seed: int | None) -> Path:
    from bsrs.store.read import pick_run

    value = read_value(eta)
    return pick_run(folder, float(value) if isinstance(value, int | float) else eta or None, seed)


def play(
    run: Positional[Path],
    out: Path = Path("play.gif"),
    window: bool = False,
    episodes: int = 1,
    most_steps: int = 2_000,
    eta: str = "",
    run_seed: int | None = None,
    seed: int = 0,
    fps: int = 30,
    trust: bool = False,
) -> None:
    """Play a trained run and record a video of it.

    Args:
        run: Path to the run folder.
        out: Write the video to this file: a .gif or an .mp4.
        window: Open a window instead of writing a file.
        episodes: Play this many greedy episodes.
        most_steps: Stop after this many steps.
        eta: Choose the run with this eta, in a folder with several runs.
        run_seed: Choose the run trained with this seed, in a folder with several runs.
        seed: Seed the episodes.
        fps: Frames per second.
        trust: Import the modules that the run names. Only for folders whose origin you know.
    """
    numbers = SimpleNamespace(episodes=episodes, most_steps=most_steps, fps=fps)
    check_range(numbers, 1, "episodes", "most_steps", "fps")
    folder = _picked(run, eta, run_seed)
    from bsrs.play import Play, show, write_video

    player = Play(folder, seed=seed, trust=trust)
    pictures = player.pictures(episodes, most_steps)
    if window:
        show(pictures, fps)
    else:
        print(f"{out}: {write_video(pictures, out, fps)} pictures")
    print(f"scores: {', '.join(f'{score:g}' for score in player.scores) or 'no episode ended'}")


def export(
    run: Positional[Path],
    format: Literal["onnx", "torchscript"] = "onnx",
    out: Path | None = None,
    env: str = "",
    eta: str = "",
    seed: int | None = None,
    trust: bool = False,
) -> None:
    """Write the greedy policy of a run to a file, and check it against the agent's actions.

    Args:
        run: Path to the run folder.
        format: Choose the file format. onnx needs the extra of that name.
        out: Write to this file. By default it is policy.onnx or policy.pt in the run folder.
        env: Use this env instead of the one that the run names.
        eta: Choose the run with this eta, in a folder with several runs.
        seed: Choose the run trained with this seed, in a folder with several runs.
        trust: Import the modules that the run names. Only for folders whose origin you know.
    """
    run = _picked(run, eta, seed)
    from bsrs.export import SUFFIX
    from bsrs.learners import load

    file = out or run / f"policy{SUFFIX[format]}"
    if file.is_dir():
        raise BadInput(f"{file} is a folder; expected a file to write the policy to")
    print(load(run, env=env or None, trust=trust, policy_only=True).export(file, format))
