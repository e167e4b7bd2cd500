"""`bsrs demo`: train with and without shaping for two minutes, watch the curves, and write a report."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bsrs.cli.show import print_recommendations
from bsrs.config.settings import folder_name
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.store.read import read_metrics
from bsrs.store.table import RunStatus
from bsrs.sweep.view import SweepView
from bsrs.writing import make_folder

MEMBERS = 5  # runs that one process trains together
BARS = "▁▂▃▄▅▆▇█"
LOWEST, HIGHEST = -1_600.0, -100.0  # random play and a solved Pendulum, for the height of the bars
START = """\
Training TD3 on Pendulum with eta = 0 (the baseline, without shaping), eta = 2 and eta = auto, {seeds} seeds each.
The score is the return of an episode: about -1,200 for random actions, -150 when solved. This takes two minutes.
"""
TERMS = """
Over training: the mean score of all evaluations. At the end: the mean of the last tenth. Brackets: 95% intervals.
Held-out seeds did not choose eta. Failed: diverged, or within 10% of random actions."""
NEXT = """
Open {page} in a browser for curves, statistics and every run.

Try next:
  Shape a Stable-Baselines3 model  model = bsrs.sb3.shape(model, eta="auto")
  Train on your own env            bsrs train dqn --env my_module:MyEnv-v0 --eta auto --out runs/mine
  Find the best eta for a task     bsrs sweep dqn --env CartPole-v1 --eta 0 0.5 1 2 auto --seeds 10 --out runs/sweep"""


def demo(out: Path = Path("demo"), workers: int = 0, first_seed: int = 40, seeds: int = 20) -> None:
    """Train TD3 on Pendulum with and without shaping, and write a report.

    Args:
        out: Write the runs and the report to this folder. Repeat the command to resume.
        workers: Train in this many processes; 0 starts one per core.
        first_seed: Start counting seeds here.
        seeds: Train this many seeds per eta.
    """
    from bsrs.report import read_study, write_report
    from bsrs.stats.recommend import recommend
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand, read_sweep

    make_folder(out)
    print(START.format(seeds=seeds), flush=True)
    configs = expand(replace(read_sweep("demo", "", {}), seeds=seeds, first_seed=first_seed))
    run_sweep(configs, out, SweepOptions(workers=workers, members=MEMBERS), view=Curves)
    study = read_study([out], title="TD3 on Pendulum, with and without shaping")
    page = write_report(study, out / "report.html")
    print_recommendations(recommend([row.series for row in study.rows]))
    print(TERMS)
    print(NEXT.format(page=page))


class Curves(SweepView):
    """A row for each eta: its mean score so far, as bars over training."""

    transient = False

    def __init__(self, root: Path, left: Sequence[TrainingConfig], total: int) -> None:
        super().__init__(root, left, total)
        self._runs: dict[float | str, list[Path]] = {}
        for config in left:
            self._runs.setdefault(config.eta, []).append(root / folder_name(config))

    def run_ended(self, status: RunStatus) -> None:
        self.count(status)
        if not self._live and self._ended % MEMBERS == 0:
            self.message(f"{self._ended} of {self._total} runs finished")

    def tick(self) -> None:
        if self._live:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(box=None, title=f"Mean score over seeds; {self._ended} of {self._total} runs finished")
        for column in ("eta", "learning curve", "latest score"):
            table.add_column(column, justify="right" if column == "latest score" else "left")
        for eta, folders in self._runs.items():
            scores = mean_scores(folders)
            label = "baseline" if eta == 0 else f"{eta:g}" if isinstance(eta, float) else eta
            table.add_row(label, bars(scores), f"{scores[-1]:,.0f}" if scores else "–")
        return table


def mean_scores(folders: Sequence[Path]) -> list[float]:
    """Return the mean score at each evaluation that any of the runs has reached."""
    found: dict[int, list[float]] = {}
    for folder in folders:
        for record in read_metrics(folder):
            if record["kind"] == "eval":
                found.setdefault(record["step"], []).append(record["score"])
    return [sum(scores) / len(scores) for _, scores in sorted(found.items())]


def bars(scores: Sequence[float]) -> str:
    """Draw scores as a line of bars, between random play and a solved task."""
    heights = ((score - LOWEST) / (HIGHEST - LOWEST) for score in scores)
    return "".join(BARS[round(min(max(height, 0.0), 1.0) * (len(BARS) - 1))] for height in heights)
