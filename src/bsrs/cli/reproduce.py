"""`bsrs reproduce ...` and `bsrs demo`: parsing and printing only."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bsrs.cli.show import print_json, print_recommendations, print_table
from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput, printable
from bsrs.store.files import make_folder

# Runs of networks as small as the demo's are trained several times as fast together: one population for each core.
DEMO_MEMBERS = 12


@dataclass(frozen=True, kw_only=True)
class ReproduceArguments(SweepOptions):
    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """How much is trained: seconds, minutes to an hour on two cores, or what the paper did."""
    env: tuple[str, ...] = ()
    """Only these of the experiment's envs."""
    seeds: int = 0
    """How many; 0 as many as the scale has. A verdict needs six."""
    as_run: bool = False
    """The authors' code where it differs from the paper's text (`bsrs presets paper-atari-as-run`)."""
    out: Path | None = None
    """Folder of the runs, the figures, the claims and the report. Repeat the command to continue."""
    train: bool = True
    """Whether to train; --no-train draws and judges the runs that are in the folder."""


def experiment_command(name: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs reproduce NAME`, for what is trained: its flags and its function."""
    return ReproduceArguments, partial(_reproduce, name)


def theory(out: Path | None = None) -> None:
    """The paper's statements, put to the test on random tables.

    Args:
        out: Folder for the table of claims, as JSON.
    """
    from bsrs.reproduce.claims import print_claims, write_claims
    from bsrs.reproduce.theory import judge_theory

    if out is not None:
        make_folder(out)  # before any work
    claims = judge_theory()
    print_claims("theory", claims)
    if out is not None:
        write_claims(out / "claims.json", claims)


def calibration(draws: int = 1_000, json: bool = False) -> None:
    """How often intervals miss and verdicts err, for each statistic, distribution and number of seeds.

    Args:
        draws: Simulated experiments for each row.
        json: One JSON document instead of a table.
    """
    from bsrs.reproduce.calibration import calibrate

    if draws < 1:
        raise BadInput(f"--draws is {draws}; expected at least 1")
    rows = [asdict(row) for row in calibrate(draws, effect=not json)]
    if json:
        wanted = ("statistic", "distribution", "n", "coverage", "false_holds")
        print_json({"rows": [{name: row[name] for name in wanted} for row in rows]})
    else:
        print_table(f"95 % intervals and verdicts on simulated runs, {draws:,} draws", rows)


def tabular(out: Path = Path("runs/tabular")) -> None:
    """Steps against eta, the same over many tables, and learning from samples.

    Args:
        out: Folder for the figures (PDF, PNG) and their numbers (CSV).
    """
    from bsrs.reproduce.tabular import findings, study, write

    make_folder(out)  # before any work
    numbers = study()
    files = write(numbers, out)
    for sentence in findings(numbers):
        print(f"- {sentence}")
    for path in files:
        print(f"wrote {path}")


def everything(arguments: ReproduceArguments) -> None:
    """All of them, each in its folder, and one report."""
    from bsrs.report import read_study, write_report
    from bsrs.reproduce.experiments import EXPERIMENTS

    out = arguments.out or Path("runs") / f"all-{arguments.scale}"
    make_folder(out)
    theory(out / "theory")
    tabular(out / "tabular")
    for name in EXPERIMENTS:
        _reproduce(name, replace(arguments, out=out / name))
    study = read_study([out], title=f"Everything, {arguments.scale}")
    print(f"wrote {write_report(study, out / 'report.html')}")


def _reproduce(name: str, arguments: ReproduceArguments) -> None:
    from bsrs.reproduce.claims import print_claims
    from bsrs.reproduce.experiments import reproduce

    label = f"{name}-as-run" if arguments.as_run else name
    out = arguments.out or Path("runs") / f"{label}-{arguments.scale}"
    result = reproduce(
        name, arguments.scale, out, arguments, arguments.env,
        seeds=arguments.seeds, as_run=arguments.as_run, train=arguments.train,
    )  # fmt: skip
    print_claims(f"{label}, {arguments.scale}" if arguments.train else label, result.claims)
    for path in result.files:
        print(f"wrote {path}")
    for run, why in result.problems.items():
        print(printable(f"no result: {run}: {why}"))
    if result.problems:
        raise SystemExit(1)


def demo(out: Path = Path("demo"), workers: int = 0) -> None:
    """Draw the paper's tabular figure, train DQN on Acrobot plain and shaped, and put it all on one page.

    Args:
        out: Folder for everything that is made. Repeat the command to continue.
        workers: Processes that train; 0 is one for each core.
    """
    from bsrs.report import read_study, write_report
    from bsrs.reproduce.tabular import study, write
    from bsrs.stats.recommend import recommend
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand, read_sweep

    make_folder(out)
    print("1. The exact theory: steps to convergence against eta, on the paper's gridworld", flush=True)
    files = write(study(), out)
    print("2. DQN on Acrobot, plain (eta = 0) and self-shaped (eta = 2), twelve seeds each", flush=True)
    options = SweepOptions(workers=workers, members=DEMO_MEMBERS)
    run_sweep(expand(read_sweep("demo", "", {})), out, options)
    print("3. One page about all of it", flush=True)
    page = read_study([out], title="The demo")
    files.append(write_report(page, out / "report.html"))
    for path in files:
        print(f"wrote {path}")
    print_recommendations(recommend([row.series for row in page.rows]))
    print(f"open {files[-1]} in a browser")
