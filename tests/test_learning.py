from __future__ import annotations

import numpy as np
import pytest

from bsrs import Constant, Linear, PerState, RandomDynamic, Shaping, Static
from bsrs.tabular import MDP, solve
from bsrs.tabular.learning import learn

LAKE = MDP.from_gymnasium("FrozenLake-v1")
OPTIMAL = solve(LAKE, 0.9, tol=1e-12).value


def decaying(visits):
    return 1.0 / visits**0.7


@pytest.mark.parametrize(
    "shaping",
    [
        Shaping(0.0),
        Shaping(0.3),
        Shaping(-0.3),
        Shaping(Linear(0.5, 0.0, 20_000)),
        Shaping(PerState(np.linspace(0.0, 0.4, 16))),
        Shaping(1.0, Static(OPTIMAL)),
        Shaping(0.05, RandomDynamic(seed=0, period=5_000, n_states=16)),
    ],
    ids=["plain", "bsrs", "negative", "schedule", "per state", "oracle", "random"],
)
def test_q_learning_finds_the_optimal_value_with_any_shaping(shaping):
    run = learn(
        LAKE, 0.9, shaping=shaping, seeds=range(4), steps=12_000, alpha=decaying, epsilon=0.5, reference=OPTIMAL
    )
    assert run.error[-1].mean() < 0.15 * OPTIMAL.max()


def test_sarsa_finds_the_value_of_its_own_policy():
    run = learn(
        LAKE, 0.9, rule="sarsa", shaping=Shaping(0.2), seeds=range(4), steps=15_000, alpha=decaying, epsilon=0.2
    )
    greedy_value = 1.2 * run.q.max(axis=2).mean(axis=0)
    assert greedy_value[14] > greedy_value[0] > 0
    assert (greedy_value <= OPTIMAL + 0.05).all()


def test_td0_finds_the_value_of_a_given_policy():
    policy = np.full(LAKE.rewards.shape, 0.25)
    exact = np.linalg.solve(np.eye(16) - 0.9 * LAKE.chain(policy).toarray(), (policy * LAKE.rewards).sum(axis=1))
    run = learn(
        LAKE.following(policy), 0.9, shaping=Shaping(0.5), seeds=range(10), steps=15_000, alpha=0.02, reference=exact
    )
    assert run.error[-1].mean() < 0.4 * run.error[0].mean()


def test_a_run_does_not_change_with_its_company():
    etas = np.array([0.0, 0.4, 0.4])
    together = learn(LAKE, 0.9, shaping=Shaping(Constant(etas)), seeds=[7, 7, 8], steps=2_000)
    alone = learn(LAKE, 0.9, shaping=Shaping(0.4), seeds=[7], steps=2_000)
    np.testing.assert_array_equal(together.q[1], alone.q[0])


def test_one_seed_repeats_and_two_differ():
    one, same, other = (learn(LAKE, 0.9, seeds=[seed], steps=2_000).q for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_sampling_follows_the_table():
    """Frequencies of next states and ends, against the exact probabilities."""
    from bsrs.tabular.learning import _Walk

    mdp = MDP([[[0.2, 0.5]], [[1.0, 0.0]]], [[0.0], [0.0]], terminates=[[0.3], [0.0]], start=[1.0, 0.0])
    walk = _Walk(mdp, [0], episode_steps=10**9)
    counts = np.zeros(3)
    for _ in range(20_000):
        move = walk.step(np.array([0]))
        if move.state[0] == 0:
            counts[2 if move.terminated[0] else move.next_state[0]] += 1
        else:
            assert move.next_state[0] == 0
            assert not move.terminated[0]
    np.testing.assert_allclose(counts / counts.sum(), [0.2, 0.5, 0.3], atol=0.015)


def test_a_time_limit_bootstraps():
    """One state that pays 1 for ever: its value is 1 / (1 - gamma) although every episode is cut after 5 steps."""
    forever = MDP([[[1.0]]], [[1.0]])
    assert learn(forever, 0.9, steps=2_000, episode_steps=5, alpha=0.5).q == pytest.approx(10.0, abs=1e-3)
    once = MDP([[[0.0]]], [[1.0]])
    assert learn(once, 0.9, steps=2_000, episode_steps=5, alpha=0.5).q == pytest.approx(1.0, abs=1e-3)
