"""`python -m experiments NAME --scale smoke|laptop|paper`: run an experiment, judge its claims, draw its figures."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from bsrs.cli import run_program
from bsrs.cli.flags import parse
from bsrs.cli.show import print_json, print_table
from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput, printable
from bsrs.writing import make_folder

PROGRAM = "python -m experiments"
SUMMARIES = {
    "tabular": "the paper's tabular figure, and where the best eta is",
    "theory": "the paper's statements on random tables, with verdicts",
    "atari": "DQN on Atari",
    "pendulum": "TD3 on Pendulum",
    "mujoco": "TD3 on Hopper and Humanoid",
    "target-ablation": "the potential from the online or the target network",
    "rescaling": "ours: shaping or mere rescaling",
    "anatomy": "ours: which part of BSRS helps, and against what",
    "auto-eta": "ours: eta = auto against every constant",
    "minatar": "ours: the Atari study on MinAtar's games",
    "zoo": "ours: does shaping add to tuned agents?",
    "calibration": "ours: how often our own intervals and verdicts err",
    "tables": "rebuild the pages, figures and numbers of results/ from its records",
    "all": "all of them, and one report",
}


@dataclass(frozen=True, kw_only=True)
class ExperimentArguments(SweepOptions):
    name: tyro.conf.Suppress[tyro.conf.Fixed[str]]
    """The experiment."""
    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """How much is computed: seconds to minutes, up to an hour on two cores, or what the paper did."""
    env: tuple[str, ...] = ()
    """Only these of the experiment's envs."""
    seeds: int = 0
    """How many; 0 as many as the scale has. A verdict needs six."""
    as_run: bool = False
    """Use the authors' code where it differs from the paper's text (`bsrs presets paper-atari-as-run`)."""
    out: Path | None = None
    """Folder of the runs, the figures, the claims and the report. Repeat the command to continue."""
    train: bool = True
    """Train; --no-train draws and judges the runs that are in the folder."""
    json: bool = False
    """Print one JSON document instead of a table."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"{self.name}{'-as-run' if self.as_run else ''}-{self.scale}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one experiment. Bad input is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_program("experiments", lambda: _run(words))


def _run(words: list[str]) -> None:
    subcommands = tyro.extras.subcommand_type_from_defaults(
        {name: ExperimentArguments(name=name) for name in SUMMARIES}, SUMMARIES, prefix_names=False
    )
    arguments = parse(subcommands, words, PROGRAM, "Run an experiment, judge its claims and draw its figures.")
    COMMANDS.get(arguments.name, reproduce)(arguments)


def reproduce(arguments: ExperimentArguments) -> None:
    """Train what is to be trained; draw and judge."""
    from experiments.claims import print_claims
    from experiments.experiments import reproduce

    result = reproduce(
        arguments.name, arguments.scale, arguments.folder, arguments, arguments.env,
        seeds=arguments.seeds, as_run=arguments.as_run, train=arguments.train,
    )  # fmt: skip
    if arguments.json:
        print_json({"claims": [asdict(claim) for claim in result.claims], "problems": result.problems})
    else:
        print_claims(result.title, result.claims)
        for path in result.files:
            print(f"wrote {path}")
        for run, why in result.problems.items():
            print(printable(f"no result: {run}: {why}"))
    if result.problems:
        raise SystemExit(1)


def theory(arguments: ExperimentArguments) -> None:
    """Put the paper's statements to the test on random tables."""
    from experiments.claims import print_claims, write_claims
    from experiments.theory import TABLES, judge_theory

    _check_trains_nothing(arguments)
    make_folder(arguments.folder)  # before any work
    claims = judge_theory(TABLES[arguments.scale])
    write_claims(arguments.folder / "claims.json", claims)
    if arguments.json:
        print_json({"claims": [asdict(claim) for claim in claims]})
    else:
        print_claims("theory", claims)


def tabular(arguments: ExperimentArguments) -> None:
    """Draw steps against eta, and the same over many tables."""
    from experiments.tabular import run

    _check_trains_nothing(arguments)
    make_folder(arguments.folder)  # before any work
    findings, files = run(arguments.scale, arguments.folder)
    if arguments.json:
        print_json({"findings": findings, "files": [str(path) for path in files]})
    else:
        print(*(f"- {sentence}" for sentence in findings), *(f"wrote {path}" for path in files), sep="\n")


def calibration(arguments: ExperimentArguments) -> None:
    """Simulate experiments to see how often intervals miss and verdicts err."""
    from experiments.calibration import DRAWS, calibrate

    _check_trains_nothing(arguments)
    draws = DRAWS[arguments.scale]
    rows = [asdict(row) for row in calibrate(draws)]
    if arguments.json:
        print_json({"draws": draws, "rows": rows})
    else:
        print_table(f"Verdicts on simulated runs with equal means, {draws:,} draws", rows)


def tables(arguments: ExperimentArguments) -> None:
    """Rebuild results/ in this folder, and README's table and figure."""
    from experiments.pages import main

    _check_trains_nothing(arguments)
    main()


def everything(arguments: ExperimentArguments) -> None:
    """Run all of them, each in its folder, and write one report."""
    from bsrs.report import read_study, write_report
    from experiments.experiments import EXPERIMENTS

    out = arguments.folder
    make_folder(out)
    for name, command in {"theory": theory, "tabular": tabular, **dict.fromkeys(EXPERIMENTS, reproduce)}.items():
        command(replace(arguments, name=name, out=out / name))
    study = read_study([out], title=f"Everything, {arguments.scale}")
    print(f"wrote {write_report(study, out / 'report.html')}")


def _check_trains_nothing(arguments: ExperimentArguments) -> None:
    for flag in ("env", "seeds", "as_run"):
        if getattr(arguments, flag):
            raise BadInput(f"--{flag.replace('_', '-')}: {arguments.name} trains nothing")


COMMANDS: dict[str, Callable[[ExperimentArguments], None]] = {
    "theory": theory, "tabular": tabular, "calibration": calibration, "tables": tables, "all": everything,
}  # fmt: skip

if __name__ == "__main__":
    main()
