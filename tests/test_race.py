"""A race of etas: who leaves, who judges, and that its answer keeps its level."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsrs.cli import main
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput
from bsrs.race import entrants
from bsrs.rng import stream
from bsrs.sweep.plan import expand
from sweeping import small_sweep

ETAS = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, "auto")


def _race(configs: list[TrainingConfig], scores: dict[TrainingConfig, float]) -> list[TrainingConfig]:
    """Rounds until nothing is needed any more."""
    known: dict[TrainingConfig, float] = {}
    while set(needed := entrants(configs, known)) - set(known):
        known |= {config: scores[config] for config in needed}
    return needed


def test_half_of_the_etas_leave_and_the_last_meets_0_on_seeds_that_did_not_judge() -> None:
    configs = expand(small_sweep(eta=ETAS, seeds=12))
    noise = stream(0, "race").normal(size=len(configs))
    scores = {config: 10 * (config.eta == 3.0) + x for config, x in zip(configs, noise, strict=True)}
    run = _race(configs, scores)
    assert len(run) == len(set(run)) == 6 * 2 + 3 * 2 + 2 * 2 + 2 * 6
    assert {config.seed for config in run if config.eta == 0.0} == set(range(6, 12))
    assert {config.seed for config in run if config.eta == 3.0} == set(range(12))
    for leaver in set(ETAS) - {0.0, 3.0}:
        assert {config.seed for config in run if config.eta == leaver} <= set(range(6))


def test_a_race_is_run_by_the_command_line_and_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = "--max-steps 120 --learning-starts 50 --buffer-size 200 --hidden 8 --eval-every 60 --eval-episodes 1"
    command = f"sweep dqn --env CartPole-v1 --eta 0 1 2 --seeds 8 --race --no-tensorboard {fields} --out {tmp_path}"
    main([*command.split(), "--dry-run"])
    told = capsys.readouterr().out
    assert [line.split("-seed")[0][-1:] for line in told.splitlines()[:4]] == ["1", "2", "1", "2"]  # the first round
    assert "these 4 runs; at most, the whole race takes\n16 runs, 0 of them done; the rest takes about" in told
    assert not list(tmp_path.iterdir())
    main(command.split())
    out = capsys.readouterr().out
    assert "race: eta 1.0, 2.0 on seeds 0, 1\n" in out
    assert "16 finished" in out  # two etas on two seeds, then 0 and the winner on six: 8 fewer than all
    assert len(list(tmp_path.glob("*/result.json"))) == 4 + 12
    assert "6 held-out seeds" in out.splitlines()[-1]
    main(command.split())
    assert "all done before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("etas", "seeds", "message"),
    [
        ((1.0, 2.0), 20, "needs eta = 0"),
        ((0.0,), 20, "at least one other"),
        (ETAS, 11, "11 seeds; expected at least 12: 2 for each of 3 rounds and 6 for the test"),
    ],
)
def test_what_cannot_be_raced(etas: tuple[float | str, ...], seeds: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        entrants(expand(small_sweep(eta=etas, seeds=seeds)), {})
