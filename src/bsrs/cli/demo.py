"""`bsrs demo`: the exact theory, a small sweep, and a report, from one command."""

from dataclasses import dataclass
from pathlib import Path

from bsrs.config.sweep import SweepOptions

# Runs of networks this small are trained several times as fast together: one population for each of two cores.
MEMBERS = 12


@dataclass(frozen=True)
class DemoArguments:
    """The main job in two minutes. The same again goes on with what is there."""

    out: Path = Path("demo")
    """Folder for everything that is made."""
    workers: int = 0
    """Processes that train; 0 is one for each core."""


def demo(arguments: DemoArguments) -> None:
    """Draw the paper's tabular figure, train DQN on Acrobot plain and shaped, and put it all on one page."""
    from bsrs.cli.recommend import print_recommendations
    from bsrs.report import read_study, write_report
    from bsrs.reproduce.tabular import reproduce_tabular
    from bsrs.stats.recommend import recommend
    from bsrs.store.files import make_folder
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand, read_sweep

    make_folder(arguments.out)
    print("1. The exact theory: steps to convergence against eta, on the paper's gridworld", flush=True)
    files = reproduce_tabular(arguments.out)
    print("2. DQN on Acrobot, plain (eta = 0) and self-shaped (eta = 2), twelve seeds each", flush=True)
    options = SweepOptions(workers=arguments.workers, members=MEMBERS)
    run_sweep(expand(read_sweep("demo", "", {})), arguments.out, options)
    print("3. One page about all of it", flush=True)
    study = read_study([arguments.out], title="The demo")
    files.append(write_report(study, arguments.out / "report.html"))
    for path in files:
        print(f"wrote {path}")
    print_recommendations(recommend([row.series for row in study.rows]))
    print(f"open {files[-1]} in a browser")
