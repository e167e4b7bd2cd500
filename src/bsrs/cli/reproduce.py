"""`bsrs reproduce ...`: parsing and printing only."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from bsrs.config.sweep import SweepOptions, default_out
from bsrs.errors import BadInput, printable
from bsrs.store.files import make_folder


@dataclass(frozen=True, kw_only=True)
class ReproduceArguments(SweepOptions):
    """What every experiment takes."""

    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """How much is trained: seconds, minutes to an hour on two cores, or what the paper did."""
    env: tuple[str, ...] = ()
    """Only these of the experiment's envs."""
    seeds: int = 0
    """How many; 0 as many as the scale has. A verdict needs six."""
    as_run: bool = False
    """The authors' code where it differs from the paper's text (`bsrs presets paper-atari-as-run`)."""
    out: Path | None = None
    """Folder of the runs, the figures, the claims and the report. The same again goes on with what is there."""
    train: bool = True
    """Whether to train; --no-train draws and judges the runs that are in the folder."""


def atari(arguments: ReproduceArguments) -> None:
    """DQN on Atari."""
    _reproduce("atari", arguments)


def pendulum(arguments: ReproduceArguments) -> None:
    """TD3 on Pendulum."""
    _reproduce("pendulum", arguments)


def mujoco(arguments: ReproduceArguments) -> None:
    """TD3 on Hopper and Humanoid."""
    _reproduce("mujoco", arguments)


def target_ablation(arguments: ReproduceArguments) -> None:
    """The potential from the online or the target network."""
    _reproduce("target-ablation", arguments)


def rescaling(arguments: ReproduceArguments) -> None:
    """Shaping against a rescaled learning rate and reward."""
    _reproduce("rescaling", arguments)


def anatomy(arguments: ReproduceArguments) -> None:
    """The parts of BSRS one by one, controls, and what else the field does."""
    _reproduce("anatomy", arguments)


def auto_eta(arguments: ReproduceArguments) -> None:
    """eta = auto against every constant."""
    _reproduce("auto-eta", arguments)


@dataclass(frozen=True, kw_only=True)
class TheoryArguments:
    """The theorems on random tables."""

    out: Path | None = None
    """Folder for the table of claims, as JSON."""


def theory(arguments: TheoryArguments) -> None:
    """The paper's statements, put to the test."""
    from bsrs.reproduce.claims import print_claims, write_claims
    from bsrs.reproduce.theory import judge_theory

    if arguments.out is not None:
        make_folder(arguments.out)  # before any work
    claims = judge_theory()
    print_claims("theory", claims)
    if arguments.out is not None:
        write_claims(arguments.out / "claims.json", claims)


@dataclass(frozen=True, kw_only=True)
class CalibrationArguments:
    """Our own statistics, on simulated runs."""

    draws: int = 1_000
    """Simulated experiments for each row."""
    json: bool = False
    """One JSON document instead of a table."""


def calibration(arguments: CalibrationArguments) -> None:
    """How often intervals miss and verdicts err, for each statistic, distribution and number of seeds."""
    import json
    from dataclasses import asdict

    from bsrs.cli.print_table import print_table
    from bsrs.reproduce.calibration import calibrate

    if arguments.draws < 1:
        raise BadInput(f"--draws is {arguments.draws}; expected at least 1")
    rows = [asdict(row) for row in calibrate(arguments.draws, effect=not arguments.json)]
    if arguments.json:
        wanted = ("statistic", "distribution", "n", "coverage", "false_holds")
        print(json.dumps({"rows": [{name: row[name] for name in wanted} for row in rows]}, indent=1))
    else:
        print_table(f"95 % intervals and verdicts on simulated runs, {arguments.draws:,} draws", rows)


@dataclass(frozen=True, kw_only=True)
class TabularArguments:
    """The tabular figures."""

    out: Path = Path("runs/tabular")
    """Folder for the figures (PDF, PNG) and their numbers (CSV)."""


def tabular(arguments: TabularArguments) -> None:
    """Steps against eta, the same over many tables, and learning from samples."""
    from bsrs.reproduce.tabular import findings, study, write

    make_folder(arguments.out)  # before any work
    numbers = study()
    files = write(numbers, arguments.out)
    for sentence in findings(numbers):
        print(f"- {sentence}")
    for path in files:
        print(f"wrote {path}")


def everything(arguments: ReproduceArguments) -> None:
    """All of them, each in its folder, and one report."""
    from dataclasses import replace

    from bsrs.report import read_study, write_report
    from bsrs.reproduce.experiments import EXPERIMENTS

    out = arguments.out or default_out(f"all-{arguments.scale}")
    make_folder(out)
    theory(TheoryArguments(out=out / "theory"))
    tabular(TabularArguments(out=out / "tabular"))
    for name in EXPERIMENTS:
        _reproduce(name, replace(arguments, out=out / name))
    study = read_study([out], title=f"Everything, {arguments.scale}")
    print(f"wrote {write_report(study, out / 'report.html')}")


def _reproduce(name: str, arguments: ReproduceArguments) -> None:
    from bsrs.reproduce.claims import print_claims
    from bsrs.reproduce.experiments import reproduce

    options = SweepOptions(**{field.name: getattr(arguments, field.name) for field in fields(SweepOptions)})
    label = f"{name}-as-run" if arguments.as_run else name
    out = arguments.out or default_out(f"{label}-{arguments.scale}")
    result = reproduce(
        name, arguments.scale, out, options, arguments.env,
        seeds=arguments.seeds, as_run=arguments.as_run, train=arguments.train,
    )  # fmt: skip
    print_claims(f"{label}, {arguments.scale}" if arguments.train else label, result.claims)
    for path in result.files:
        print(f"wrote {path}")
    for run, why in result.problems.items():
        print(printable(f"no result: {run}: {why}"))
    if result.problems:
        raise SystemExit(1)
