"""DQN learns: CartPole is solved within the preset's steps, without shaping and with it."""

from __future__ import annotations

from typing import Any

import pytest

from bsrs.envs.defaults import default_preset
from bsrs.run import Records, make_agent
from bsrs.train import Loop


class Solved(Exception):
    """Every member has been."""


class Watch(Records):
    """Ends the run as soon as each of `watches` has seen 20 greedy episodes with a mean of 475."""

    def __init__(self, watches: list[Watch]) -> None:
        super().__init__()
        self.solved = False
        self._watches = watches

    def append(self, line: dict[str, Any]) -> None:
        self.solved |= line["kind"] == "eval" and line["score"] >= 475
        if all(watch.solved for watch in self._watches):
            raise Solved


@pytest.mark.timeout(1200)
def test_cartpole_is_solved_with_and_without_shaping() -> None:
    fields = {"eval_episodes": 20}
    configs = [default_preset("dqn", "CartPole-v1", eta=eta, seed=seed, **fields) for eta, seed in ((0.0, 0), (0.5, 4))]
    watches: list[Watch] = []
    watches += [Watch(watches) for _ in configs]
    with pytest.raises(Solved):
        Loop(make_agent(configs), configs[0], [config.seed for config in configs], watches).run()
