"""Do two versions learn alike? From run folders of both to scores of each run, and from these to a table.

python -m experiments.versions scores OLD NEW > results/versions/scores.csv
python -m experiments.versions table results/versions/scores.csv

Each folder holds sweeps with the same settings in both versions. Their random numbers differ, so that the runs of a
task and an eta are two groups, not pairs.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bsrs.errors import BadInput
from bsrs.stats import holm
from bsrs.stats.aggregates import Array
from bsrs.stats.records import read_runs, series_of
from experiments.tables import markdown

COLUMNS = ("version", "algorithm", "env", "eta", "seed", "steps", "outcome", "over training", "at the end")
DRAWS = 99_999
Row = dict[str, str]


def main() -> None:
    """Print the scores of runs, or the table of a file of scores."""
    match sys.argv[1:]:
        case ["scores", old, new]:
            writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*scores("old", Path(old)), *scores("new", Path(new))])
        case ["table", path]:
            print("\n".join(compare(read_scores(Path(path)))))
        case _:
            raise SystemExit(__doc__)


def scores(version: str, folder: Path) -> Iterator[Row]:
    """Yield the scores of each run in a folder."""
    for each in series_of(read_runs(folder)[0]):
        for i, run in enumerate(each.runs):
            about = (version, each.task.algorithm, each.env, each.eta, each.seeds[i], each.config.steps, run.outcome)
            cells = [*map(str, about), f"{each.area[i]:.2f}", f"{each.final[i]:.2f}"]
            yield dict(zip(COLUMNS, cells, strict=True))


def read_scores(path: Path) -> list[Row]:
    """Read a file of scores."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def compare(rows: Iterable[Row]) -> list[str]:
    """Write a row for each task, eta and score: means, Welch's interval, permutation test, Holm's correction."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["algorithm"], row["env"], row["eta"]), []).append(row)
    table, p_values = [], []
    for (algorithm, env, eta), found in sorted(groups.items()):
        for measure in COLUMNS[-2:]:
            old, new = (np.array([float(r[measure]) for r in found if r["version"] == v]) for v in ("old", "new"))
            if min(len(old), len(new)) < 2:
                raise BadInput(f"{algorithm} on {env} at eta = {eta} has fewer than two runs of a version")
            low, high, p = difference(old, new)
            means = [f"{group.mean():.0f} ({group.std(ddof=1):.0f})" for group in (old, new)]
            gap = f"{new.mean() - old.mean():+.0f} [{low:+.0f}, {high:+.0f}]"
            table.append([f"{algorithm.upper()}, {env}", eta, measure, len(new), *means, gap, f"{p:.2f}"])
            p_values.append(p)
    corrected = [f"{p:.2f}" for p in holm(p_values)]
    columns = "task | eta | score | seeds each | old: mean (SD) | new: mean (SD) | new - old | p | p (Holm)"
    return markdown(columns, [[*cells, p] for cells, p in zip(table, corrected, strict=True)])


def difference(old: Array, new: Array) -> tuple[float, float, float]:
    """Return Welch's 95% interval of the mean difference, and the p value of a permutation test."""
    from scipy.stats import permutation_test, ttest_ind

    interval = ttest_ind(new, old, equal_var=False).confidence_interval()
    test = permutation_test(
        (new, old), lambda a, b, axis: a.mean(axis) - b.mean(axis), vectorized=True, n_resamples=DRAWS, rng=0
    )
    return float(interval.low), float(interval.high), float(test.pvalue)


if __name__ == "__main__":
    main()
