"""The one shaper: policy invariance for any scale, scales that learn and are saved, and who takes whose place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs import Bootstrapped, Constant, Linear, RandomDynamic, Shaping, shaped_reward
from bsrs.agents.agent import Batch
from bsrs.config.algorithms import find_algorithm
from bsrs.config.training import TrainingConfig
from bsrs.shaping import Memory, Seen, Shaper, ShapeScale
from small_agents import RUN, advance, started


@dataclass(frozen=True)
class Near(ShapeScale):
    """A scale of a user's own: larger where the state's number is smaller."""

    most: float

    def __call__(self, step: int, state: Any = None) -> Any:
        return self.most / (1.0 + state)


@given(st.integers(0, 10_000), st.floats(-0.9, 5.0), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_state_dependent_scale_keeps_the_optimal_policy(seed: int, most: float, as_function: bool) -> None:
    """Shaped by `eta(s) V(s)`, Q* moves by just that potential: Q~ = Q* - phi(s): no state's order of actions does."""
    rng = np.random.default_rng(seed)
    n, actions, gamma = 6, 3, 0.9
    transition = rng.dirichlet(np.ones(n), size=(n, actions))  # (S, A, S)
    reward = rng.normal(size=(n, actions, n))
    value = rng.normal(size=n)  # any estimate, right or wrong
    scale = Near(most)
    shaper = Shaper(Shaping(scale if not as_function else (lambda step, state: scale(step, state))))
    state, _, after = np.meshgrid(range(n), range(actions), range(n), indexing="ij")
    shaped = shaper(reward, value[state], value[after], gamma=gamma, state=state, next_state=after)

    def optimal(rewards: np.ndarray) -> np.ndarray:
        q = np.zeros((n, actions))
        for _ in range(400):
            q = (transition * (rewards + gamma * q.max(axis=1))).sum(axis=2)
        return q

    phi = scale(0, np.arange(n)) * value
    np.testing.assert_allclose(optimal(shaped), optimal(reward) - phi[:, None], atol=1e-9)


def test_members_are_shaped_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    agent = started([config("dqn", seed=seed) for seed in range(3)])[1]
    reward, value, next_value = (torch.from_numpy(rng.standard_normal((3, 8))) for _ in range(3))
    state, terminated = torch.from_numpy(rng.integers(0, 5, (3, 8))), torch.from_numpy(rng.random((3, 8)) < 0.3)
    batch = Batch(state, state, reward, state.flip(1), terminated)
    for shapings in (
        [Shaping(0.0), Shaping(2.0), Shaping("linear:0:1:10")],
        [Shaping(Near(1.0)), Shaping(0.5), Shaping(Near(0.2))],
        [Shaping(1.0, RandomDynamic(seed, n_states=5)) for seed in range(3)],
        [Shaping(1.0), Shaping(1.0, RandomDynamic(1, n_states=5)), Shaping(1.0, Bootstrapped())],
    ):
        agent.shapers = list(map(Shaper, shapings))
        together = agent.shaped_target(batch, 0 * reward, value, next_value, step=5)
        for p, shaping in enumerate(shapings):
            mine = {"state": state[p], "next_state": state.flip(1)[p], "step": 5, "gamma": agent.config.gamma}
            alone = Shaper(shaping)(reward[p], value[p], next_value[p], terminated=terminated[p], **mine)
            torch.testing.assert_close(together[p], alone, rtol=1e-12, atol=1e-12)


def test_the_shaper_is_the_formula() -> None:
    rng = np.random.default_rng(1)
    reward, value, next_value = rng.standard_normal((3, 10))
    shaped = Shaper(Shaping(0.7))(reward, value, next_value, gamma=0.9)
    np.testing.assert_array_equal(shaped, shaped_reward(reward, value, next_value, eta=0.7, gamma=0.9))


def test_a_shaper_knows_when_there_is_nothing_to_do() -> None:
    assert not Shaper(Shaping(0.0)).is_active(3)
    assert Shaper(Shaping(1.0)).is_active(3)
    assert [Shaper(Shaping(Linear(1.0, 0.0, 10))).is_active(step) for step in (0, 9, 10)] == [True, True, False]
    assert Shaper(Shaping(Near(0.0))).is_active(0)
    assert Shaper(Shaping(Constant(np.array([0.0, 1.0])))).is_active(0)
    members = started([config("dqn", eta=eta) for eta in (0.0, 1.0)])[1]
    assert members.is_shaped(3)
    assert not started([config("dqn", eta=0.0)])[1].is_shaped(3)


# ---- scales that learn


@dataclass(frozen=True)
class Falling(ShapeScale):
    """Falls with every second batch, by how large the values are."""

    first: float = 1.0
    depends_on_state = False
    update_every = 2

    def init(self) -> Memory:
        return {"eta": self.first, "sizes": []}

    def at(self, memory: Memory, step: int, state: Any = None) -> float:
        return float(memory["eta"])

    def update(self, memory: Memory, seen: Seen) -> Memory:
        size = float(abs(seen.value).mean())
        assert seen.eta == memory["eta"]
        return {"eta": memory["eta"] * 0.9 / (1 + 0.1 * size), "sizes": [*memory["sizes"][-3:], size]}


def test_a_scale_that_learns_sees_every_second_batch() -> None:
    zeros = np.zeros(4)
    for first, value, eta in ((1.0, 0.0, 0.81), (2.0, 10.0, 2 * 0.45**2)):
        shaper, other = (Shaper(Shaping(Falling(first))) for _ in range(2))
        for _ in range(4):
            shaper.update(zeros, zeros + value, zeros + value, terminated=zeros, step=1)
        assert shaper.in_force(1)["eta"] == pytest.approx(eta)
        other.load_state(shaper.state())
        assert other.in_force(1) == shaper.in_force(1)


CASES = {
    "dqn": {"env": "CartPole-v1", "learning_starts": 20, "train_freq": 1, "target_update_interval": 15},
    "td3": {"env": "Pendulum-v1", "exploration_noise": 0.1},
    "sac": {"env": "Pendulum-v1"},
}


def config(algorithm: str, **fields: Any) -> TrainingConfig:
    return find_algorithm(algorithm).config_class(**{"steps": 400, **RUN, **CASES[algorithm], **fields})  # type: ignore[call-arg]


@pytest.mark.parametrize("algorithm", CASES)
@pytest.mark.parametrize("members", [1, 2])
def test_a_scale_that_learns_resumes_bit_for_bit(algorithm: str, members: int) -> None:
    of = [config(algorithm, seed=seed) for seed in range(3, 3 + members)]
    loop, agent = started(of, Shaping(Falling()))
    advance(loop, 71)
    states = [loop.state(p) for p in range(members)]
    resumed_loop, resumed = started(of, Shaping(Falling()))
    for p, state in enumerate(states):
        resumed_loop.load_state(p, state)
    for one in (loop, resumed_loop):
        advance(one, 70)
    assert agent.metrics() == resumed.metrics()
    ours, theirs = ([shaper.in_force(141) for shaper in one.shapers] for one in (agent, resumed))
    assert ours == theirs != [{"eta": 1.0}] * members
    for p in range(members):
        ours, theirs = (one.policy(p).tensors for one in (agent, resumed))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("algorithm", CASES)
def test_a_member_with_a_scale_that_learns_learns_as_it_does_alone(algorithm: str) -> None:
    """The transitions come from random play, so that the env does not amplify the rounding."""
    of = [config(algorithm, seed=seed, learning_starts=1_000) for seed in (1, 2)]
    agents = []
    for some in (of, of[:1]):
        loop, agent = started(list(some), Shaping(Falling()))
        advance(loop, 100)
        for _ in range(40):
            agent.updates += 1
            agent.train_on(agent.sample(), 100)
        agents.append(agent)
    together, alone = (agent.shapers[0].in_force(100)["eta"] for agent in agents)
    assert together == pytest.approx(alone, rel=1e-5)
    assert together < 0.2


def test_the_eta_in_force_is_recorded() -> None:
    loop, agent = started([config("dqn"), config("dqn", seed=1)], Shaping("linear:2:0:100"))
    advance(loop, 50)
    assert [line["eta"] for line in agent.metrics()] == [1.0, 1.0]


# ---- what is given in Python takes the place of the config


def test_a_given_shaping_takes_the_place_of_the_config() -> None:
    agents = []
    for eta in (1.0, 3.0, "auto"):
        loop, agent = started([config("dqn", eta=eta)], Shaping(0.5))
        advance(loop, 60)
        agents.append(agent.policy(0).tensors)
    for other in agents[1:]:
        assert all(torch.equal(agents[0][name], tensor) for name, tensor in other.items())
