"""`bsrs demo`: the main job in two minutes. Train with and without shaping, watch the curves, open the page."""

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
NEXT = """
Try next:
  a Stable-Baselines3 model  model = bsrs.sb3.shape(model, eta="auto")
  your own env               bsrs train dqn --env my_module:MyEnv-v0 --eta auto --out runs/mine
  the best eta for a task    bsrs sweep dqn --env CartPole-v1 --eta 0 0.5 1 2 auto --seeds 10 --out runs/sweep
"""


def demo(out: Path = Path("demo"), workers: int = 0, first_seed: int = 40, seeds: int = 20) -> None:
    """Train TD3 on Pendulum with and without shaping, and write a report.

    Args:
        out: Folder for the runs and the report. Repeat the command to resume.
        workers: Processes that train; 0 means one per core.
        first_seed: First of the seeds.
        seeds: Seeds for each eta.
    """
    from bsrs.report import read_study, write_report
    from bsrs.stats.recommend import recommend
    from bsrs.sweep.conduct import run_sweep
    from bsrs.sweep.plan import expand, read_sweep

    make_folder(out)
    print(f"TD3 on Pendulum: baseline (eta = 0), eta = 2 and eta = auto, {seeds} seeds each", flush=True)
    configs = expand(replace(read_sweep("demo", "", {}), seeds=seeds, first_seed=first_seed))
    run_sweep(configs, out, SweepOptions(workers=workers, members=MEMBERS), view=Curves)
    study = read_study([out], title="TD3 on Pendulum, with and without shaping")
    page = write_report(study, out / "report.html")
    print_recommendations(recommend([row.series for row in study.rows]))
    print(f"\nOpen {page} in a browser for curves, statistics and every run.")
    print(NEXT.rstrip())


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

        table = Table(box=None, title=f"mean score while learning; {self._ended} of {self._total} runs finished")
        for column in ("eta", "start of training → end", "score now"):
            table.add_column(column, justify="right" if column == "score now" else "left")
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
