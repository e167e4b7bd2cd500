"""The control of the tuned agents: their stored runs are those of the study, with a target network twice as fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bsrs.config.settings import RunSettings
from bsrs.stats.records import read_runs, series_of
from experiments import zoo
from experiments.variants import with_options

RESULTS = Path(__file__).parent.parent / "results"


def test_the_control_is_the_baseline_with_a_target_network_twice_as_fast() -> None:
    for config in zoo.plan("paper"):
        control = zoo.faster_target(replace(config, eta=0.0))
        before, after = (RunSettings.of(each).meaning for each in (replace(config, eta=0.0), control))
        (changed,) = {name for name in after if after[name] != before.get(name)}
        if changed == "target_every":
            assert (control.env, after[changed]) == ("CartPole-v1", before["gradient_steps"] / 2)
        else:
            assert after[changed] == before[changed] * {"tau": 2, "target_update_interval": 0.5}[changed]


@pytest.mark.parametrize(
    "task", sorted(path.name for path in (RESULTS / "zoo-faster-target").iterdir() if path.is_dir())
)
def test_stored_controls_have_the_seeds_of_the_study(task: str) -> None:
    runs, broken = read_runs(RESULTS / "zoo-faster-target" / task)
    assert not broken
    own, (control,) = zoo.controls(series_of([with_options(run) for run in runs]))
    assert own == []
    assert control.seeds == tuple(range(10))
