"""From the runs of `python -m experiments anatomy` to effects, verdicts, figures and the table: on made-up curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bsrs.errors import BadInput
from bsrs.stats.records import Series, read_run, read_runs, series_of
from experiments.anatomy import (
    ETAS,
    anatomy_table,
    cells,
    contrasts,
    held_out,
    judge_anatomy,
    plan,
)
from experiments.anatomy import by_cell as found_cells
from experiments.experiments import EXPERIMENTS
from experiments.pooling import against_zero
from experiments.variants import with_options
from run_folders import write_run

WORTH = {"c": 10.0, "a": -4.0, "b": 2.0}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> list[Series]:
    """CartPole, ten seeds: the parts add up, c and b together give 6 more, comparators give nothing."""
    root = tmp_path_factory.mktemp("anatomy")
    for config in EXPERIMENTS["anatomy"].configs("laptop", ("CartPole-v1",)):
        replaced = {getattr(config, name, "none") for name in ("control", "comparator")} != {"none"}
        shaped = config.eta == 1.0 and config.potential_network == "online" and not replaced
        kept = getattr(config, "parts", "cab") if shaped else ""
        level = sum(WORTH[part] for part in kept) + 6.0 * ("c" in kept and "b" in kept)
        noise = np.random.default_rng(config.seed).normal() * 5
        noise += np.random.default_rng([config.seed, len(kept)]).normal() * 0.1
        write_run(root, config, [50.0 + level + noise] * 8)
    return series_of([with_options(run) for run in read_runs(root)[0]])


def test_every_cell_is_found_again(series: list[Series]) -> None:
    own = found_cells(series)["CartPole-v1"]
    assert set(own) == set(cells("dqn", 1.0))
    assert all(len(each.seeds) == 10 for each in own.values())


def test_the_effects_are_those_that_were_put_in(series: list[Series]) -> None:
    each = contrasts(found_cells(series)["CartPole-v1"])
    found = {parts: against_zero(values) for parts, values in each.items()}
    expected = {"c": 13.0, "a": -4.0, "b": 5.0, "ca": 0.0, "cb": 3.0, "ab": 0.0, "cab": 0.0}
    for parts, effect in expected.items():
        assert found[parts].mean == pytest.approx(effect, abs=0.3)
        assert found[parts].low < effect < found[parts].high


def test_verdicts(series: list[Series]) -> None:
    claims = {claim.claim: claim for claim in EXPERIMENTS["anatomy"].claims(series)}

    def verdict(text: str) -> str:
        return claims[f"CartPole-v1: {text}"].verdict

    assert verdict("BSRS beats the baseline") == "holds"
    assert verdict("BSRS beats MINTO") == "holds"
    assert verdict("BSRS beats the exact control (Q in the place of V)") == "does not hold"
    assert verdict("part c, the scaled reward, helps on average over the other parts") == "holds"
    assert verdict("part a, advantage learning, helps on average over the other parts") == "does not hold"
    assert verdict("tuned BSRS beats the tuned baseline") == "holds"


def test_runs_that_are_too_short_or_missing_are_inconclusive(series: list[Series]) -> None:
    scope = replace(EXPERIMENTS["anatomy"].scope(), steps={"CartPole-v1": 30_000})
    assert {claim.verdict for claim in judge_anatomy(series, scope)} == {"inconclusive"}
    two = [each for each in series if each.config.comparator == "none" and each.config.parts in ("cab", "c")]
    assert {c.verdict for c in EXPERIMENTS["anatomy"].claims(two)} >= {"inconclusive"}


def test_figures_and_table(series: list[Series], tmp_path: Path) -> None:
    experiment = EXPERIMENTS["anatomy"]
    figures = experiment.draw(series)
    assert set(figures) == {"anatomy", "anatomy-parts"}
    assert "BSRS: all three" in [label.get_text() for label in figures["anatomy"].axes[0].get_yticklabels()]
    lines = anatomy_table(series)
    assert len(lines) == 2 + len(cells("dqn", 1.0))
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_a_try_is_chosen_without_the_seed_that_judges_it() -> None:
    scores = np.array([[9.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(held_out(scores), [1.0, 0.0, 0.0])


def test_scales() -> None:
    configs = EXPERIMENTS["anatomy"].configs
    assert {config.env for config in configs("laptop")} == {"CartPole-v1", "Acrobot-v1", "Pendulum-v1"}
    assert {config.env for config in configs("laptop", ("Acrobot-v1",))} == {"Acrobot-v1"}
    with pytest.raises(BadInput, match="env of this experiment"):
        configs("laptop", ("LunarLander-v3",))
    for scale in ("smoke", "laptop"):
        assert len(set(plan(scale))) == len(plan(scale))


@pytest.mark.parametrize(("env", "algorithm", "count"), [("CartPole-v1", "dqn", 26), ("Pendulum-v1", "td3", 21)])
def test_stored_runs_are_cells_although_their_options_are_agents_now(env: str, algorithm: str, count: int) -> None:
    """One seed of each cell, as version 0.1 wrote it."""
    folder = Path(__file__).parent.parent / "results" / "anatomy"
    runs = [read_run(path) for path in folder.glob(f"**/*{env}*-seed200-*") if (path / "config.json").exists()]
    own = found_cells(series_of(runs))[env]
    assert set(own) == set(cells(algorithm, ETAS[env]))
    assert len(own) == count
