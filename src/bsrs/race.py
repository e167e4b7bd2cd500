"""A race of etas: after every two seeds the worse half leaves, and the last one is tested against eta = 0 on new seeds.

Etas leave by whole runs on few seeds, not early in a run: who is ahead early is often behind in the end. The seeds that
judged the race are not run at eta = 0, so `recommend` compares on held-out seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, log2
from pathlib import Path

import numpy as np

from bsrs.config.settings import RunSettings
from bsrs.config.sweep import SweepOptions
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.stats.comparison import FEWEST_SEEDS
from bsrs.stats.records import read_runs, series_of
from bsrs.sweep.conduct import Summary, run_sweep

JUDGES = 2  # seeds of a round


def run_race(configs: Sequence[TrainingConfig], root: Path, options: SweepOptions) -> Summary:
    """Train those of these runs that the race needs. Kill it at any time and call it again: it continues."""
    total, ran = Summary(), set[TrainingConfig]()
    while due := [config for config in entrants(configs, _scores(root, configs, ran)) if config not in ran]:
        etas, seeds = (dict.fromkeys(str(getattr(config, name)) for config in due) for name in ("eta", "seed"))
        print(f"race: eta {', '.join(etas)} on seeds {', '.join(seeds)}")
        summary = run_sweep(due, root, options)
        total.statuses += summary.statuses
        total.problems |= summary.problems
        ran.update(due)
    return total


def plan_race(configs: Sequence[TrainingConfig], root: Path) -> tuple[list[TrainingConfig], list[TrainingConfig]]:
    """List the runs up to the end of the round that is due, and as many as the race can take in all: whoever wins, the
    same number leaves, so future rounds are estimated as if all scored alike."""
    scores = _scores(root, configs, set())
    due = needed = entrants(configs, scores)
    while missing := [config for config in needed if config not in scores]:
        scores |= dict.fromkeys(missing, 0.0)
        needed = entrants(configs, scores)
    return due, needed


def entrants(configs: Sequence[TrainingConfig], scores: Mapping[TrainingConfig, float]) -> list[TrainingConfig]:
    """Choose the runs of these that are needed, as far as scores are known: a round's when the one before is scored."""
    found: list[TrainingConfig] = []
    for contest in dict.fromkeys(replace(config, eta=0.0, seed=0) for config in configs):
        own = [config for config in configs if replace(config, eta=0.0, seed=0) == contest]
        left, seeds = list(dict.fromkeys(c.eta for c in own if c.eta != 0.0)), sorted({c.seed for c in own})
        rounds = _rounds(left, seeds, own)
        for end in range(JUDGES, JUDGES * rounds + 1, JUDGES):
            judged = [c for c in own if c.eta in left and c.seed in seeds[:end]]
            found += [config for config in judged if config not in found]
            if not all(config in scores for config in judged):
                break
            mean = {eta: np.mean([scores[c] for c in judged if c.eta == eta]) for eta in left}
            left = sorted(left, key=lambda eta: -mean[eta])[: ceil(len(left) / 2)]
        else:
            found += [c for c in own if c.eta in (0.0, *left) and c.seed in seeds[JUDGES * rounds :]]
    return found


def _rounds(etas: Sequence[float | str], seeds: Sequence[int], own: Sequence[TrainingConfig]) -> int:
    if not etas or not any(config.eta == 0.0 for config in own):
        raise BadInput("a race needs eta = 0 and at least one other eta")
    rounds = ceil(log2(len(etas)))
    least = JUDGES * rounds + FEWEST_SEEDS
    if len(seeds) < least:
        what = f"{JUDGES} for each of {rounds} rounds and {FEWEST_SEEDS} for the test"
        raise BadInput(f"a race of {len(etas)} etas and 0 has {len(seeds)} seeds; expected at least {least}: {what}")
    return rounds


def _scores(root: Path, configs: Sequence[TrainingConfig], ran: set[TrainingConfig]) -> dict[TrainingConfig, float]:
    """Read the mean score over training of each of these that has finished; what was tried and has none is last."""
    found, ours = dict.fromkeys(ran, -inf), {RunSettings.of(config): config for config in configs}
    for series in series_of(read_runs(root)[0]) if root.exists() else []:
        each = zip(series.runs, series.area, strict=True)
        found |= {ours[run.config]: float(score) for run, score in each if run.config in ours}
    return found
