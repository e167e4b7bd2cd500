"""`python -m experiments NAME --scale smoke|laptop|paper`: run an experiment, judge its claims, draw its figures."""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import tyro

from bsrs.cli import run_program
from bsrs.cli.flags import parse
from bsrs.cli.show import print_table
from bsrs.config.sweep import SweepOptions
from bsrs.errors import BadInput
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
    out: Path | None = None
    """Folder of the runs, the figures and the claims. Repeat the command to continue."""
    train: bool = True
    """Train; --no-train draws and judges the runs that are in the folder."""
    json: bool = False
    """Print the claims, or calibration's rows, as one JSON document."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one experiment. Bad input is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_program("experiments", lambda: _run(words))


def _run(words: list[str]) -> None:
    subcommands = tyro.extras.subcommand_type_from_defaults(
        {name: ExperimentArguments(name=name) for name in SUMMARIES}, SUMMARIES, prefix_names=False
    )
    given = parse(subcommands, words, PROGRAM, "Run an experiment, judge its claims and draw its figures.")
    out = given.out or Path("runs") / f"{given.name}-{given.scale}"
    if not given.json:
        return _compute(given, out)
    if given.name in ("tabular", "tables", "all"):
        raise BadInput(f"--json: {given.name} makes no single JSON document; expected another experiment")
    document = out / ("calibration.json" if given.name == "calibration" else "claims.json")
    code: SystemExit | None = None
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            _compute(given, out)
        except SystemExit as exit:  # some runs have no result
            code = exit
    print(document.read_text(), end="")
    if code:
        raise code


def _compute(given: ExperimentArguments, out: Path) -> None:
    if given.name not in COMPUTED and given.name != "all":
        from experiments.experiments import reproduce

        return reproduce(given.name, given.scale, out, given, given.env, seeds=given.seeds, train=given.train)
    for flag in ("env", "seeds"):
        if getattr(given, flag):
            raise BadInput(f"--{flag}: {given.name} does not take it")
    return everything(given, out) if given.name == "all" else COMPUTED[given.name](given.scale, out)


def theory(scale: str, out: Path) -> None:
    """Put the paper's statements to the test on random tables."""
    from experiments.claims import print_claims, write_claims
    from experiments.theory import TABLES, judge_theory

    claims = judge_theory(TABLES[scale])
    write_claims(out / "claims.json", claims)
    print_claims(claims)


def tabular(scale: str, out: Path) -> None:
    """Draw steps against eta, and the same over many tables."""
    from experiments.tabular import run

    make_folder(out)  # before any work
    findings, files = run(scale, out)
    print(*(f"- {sentence}" for sentence in findings), *(f"wrote {path}" for path in files), sep="\n")


def calibration(scale: str, out: Path) -> None:
    """Simulate experiments to see how often intervals miss and verdicts err."""
    from experiments.calibration import DRAWS, calibrate

    make_folder(out)  # before any work
    draws = DRAWS[scale]
    rows = [asdict(row) for row in calibrate(draws)]
    path = out / "calibration.json"
    path.write_text(json.dumps({"draws": draws, "rows": rows}, indent=2) + "\n")
    print_table(f"Verdicts on simulated runs with equal means, {draws:,} draws", rows)
    print(f"wrote {path}")


def tables(_scale: str, _out: Path) -> None:
    """Rebuild results/ in this folder, and README's table and figure."""
    from experiments.pages import main

    main()


COMPUTED: dict[str, Callable[[str, Path], None]] = {
    "theory": theory, "tabular": tabular, "calibration": calibration, "tables": tables,
}  # fmt: skip
"""Those that train nothing."""


def everything(options: ExperimentArguments, out: Path) -> None:
    """Run all of them, each in its folder, and write one report."""
    from bsrs.report import read_study, write_report
    from experiments.experiments import EXPERIMENTS, reproduce

    theory(options.scale, out / "theory")
    tabular(options.scale, out / "tabular")
    for name in EXPERIMENTS:
        reproduce(name, options.scale, out / name, options, train=options.train)
    study = read_study([out], title=f"Everything, {options.scale}")
    print(f"wrote {write_report(study, out / 'report.html')}")


if __name__ == "__main__":
    main()
