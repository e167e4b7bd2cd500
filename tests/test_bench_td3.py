"""`bsrs bench td3`: its contestants really train, and its arithmetic is right."""

from __future__ import annotations

import pytest

from bsrs.bench.td3 import SAC_VARIANTS, VARIANTS, Entry, Ours, Sb3, _row, config_of, matmul_operations
from bsrs.bench.timing import Result


@pytest.mark.parametrize("entry", [VARIANTS[3], VARIANTS[4], Entry("sac", "bsrs", "policy", 2.0, members=2)], ids=str)
def test_our_contestants_train(entry: Entry) -> None:
    ours = Ours(entry, threads=1)
    ours.run(4)
    report = ours.report()  # runs another block
    assert ours._loop.step == 8 // entry.members
    assert sum(report["shares"].values()) == pytest.approx(1, abs=0.01)
    assert report["shares"]["update"] > 0.3
    assert report["matmul_limit"] > 0


@pytest.mark.parametrize("entry", [VARIANTS[0], SAC_VARIANTS[0]], ids=str)
def test_sb3s_contestants_have_our_settings(entry: Entry) -> None:
    theirs = Sb3(entry, threads=1)
    theirs.run(3)
    model, config = theirs._model, config_of(entry)
    assert model.num_timesteps == 3
    assert (model.batch_size, model.gamma, model.learning_starts) == (256, 0.98, 0)
    assert [layer.out_features for layer in model.critic.q_networks[0] if hasattr(layer, "out_features")] == [
        *config.hidden,
        1,
    ]
    assert model._n_updates >= 2


def test_operations_of_one_step_by_hand() -> None:
    """In forward passes through one network: 11.5 plain; replay asks both critics once more, policy twice and the
    actor 1.5 times more. The first layer, where it needs no gradient of its input, makes the small difference."""
    layers = 2.0 * 256 * (4 * 400 + 400 * 300 + 300)
    plain, policy, replay = (matmul_operations(config_of(entry), entry.eta != 0) for entry in VARIANTS[1:4])
    assert plain / layers == pytest.approx(11.5, rel=0.01)
    assert (replay - plain) / layers == pytest.approx(2, rel=0.01)
    assert (policy - plain) / layers == pytest.approx(5.5, rel=0.01)


def test_a_population_counts_every_members_steps() -> None:
    entry = Entry("td3", "bsrs", "policy", 2.0, members=4)
    population = Ours(entry, threads=1)
    population.run(12)
    assert population._loop.step == 3
    report = {"matmul_limit": 100.0, "peak_mb": 7.4}
    ours, sb3 = Result((40.0, 48.0, 44.0), report), Result((20.0, 20.0, 20.0), report)
    row = _row(entry, 1, ours, sb3, constant=ours)
    assert (row["steps_per_s"], row["ratio_to_sb3"], row["matmul_share"]) == (44.0, 2.2, 0.44)
    assert row["ratio_to_eta_2"] == 1.0
    assert (row["variant"], row["processes"], row["members"], row["peak_mb"]) == ("policy", 1, 4, 7)
