from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from bsrs.errors import BadInput
from bsrs.tabular import MDP, bellman, grid_mdp, shaped_bellman, solve, solve_many
from bsrs.tabular.theory import random_inits
from strategies import gammas, mdps, seeds, table


def quantecon_value(mdp: MDP, gamma: float) -> np.ndarray:
    """The optimal value by an independent solver, which wants whole rows: an end becomes an absorbing state."""
    from quantecon.markov import DiscreteDP

    n_states, n_actions = mdp.rewards.shape
    p = np.zeros((n_states + 1, n_actions, n_states + 1))
    p[:n_states, :, :n_states] = mdp.transitions.toarray().reshape(n_states, n_actions, n_states)
    p[:, :, n_states] += 1.0 - p.sum(axis=2)
    rewards = np.vstack([mdp.rewards, np.zeros(n_actions)])
    return DiscreteDP(rewards, p, gamma).solve(method="policy_iteration").v[:n_states]


class TestAgainstQuantecon:
    @pytest.mark.parametrize("gamma", [0.9, 0.99])
    def test_frozen_lake(self, gamma):
        mdp = MDP.from_gymnasium("FrozenLake-v1", map_name="8x8")
        np.testing.assert_allclose(solve(mdp, gamma, tol=1e-12).value, quantecon_value(mdp, gamma), atol=1e-8)

    @pytest.mark.parametrize("eta", [0.0, 0.2, -0.3])
    def test_random_mdps(self, eta):
        for seed in range(5):
            mdp = MDP.garnet(40, 3, 5, seed=seed)
            found = solve(mdp, 0.8, eta=eta, tol=1e-12)
            np.testing.assert_allclose(found.optimal_value, quantecon_value(mdp, 0.8), atol=1e-8)


@given(mdps(), gammas, seeds)
def test_eta_zero_is_the_plain_operator_to_the_bit(mdp, gamma, seed):
    q = table(seed, mdp.n_states, mdp.n_actions)
    np.testing.assert_array_equal(shaped_bellman(mdp, gamma, q, 0.0), bellman(mdp, gamma, q))


@given(mdps(), seeds)
def test_a_batch_is_its_runs_one_by_one(mdp, seed):
    init = table(seed, 3, mdp.n_states, mdp.n_actions)
    etas = np.array([0.0, 0.1, -0.4])
    scale = min(np.abs(mdp.rewards).max(), 1.0) or 1.0  # a tol above every reward is refused
    batch = solve_many(mdp, 0.7, eta=etas, init=init, tol=1e-6 * scale)
    for run in range(3):
        alone = solve(mdp, 0.7, eta=etas[run], init=init[run], tol=1e-6 * scale)
        assert alone.applications == batch.applications[run]
        np.testing.assert_allclose(alone.q, batch.q[run], atol=1e-12)


def test_the_papers_curve():
    """Steps to 1e-6 on the 7x7 grid: fewest near eta = 0.23, about 20 % below eta = 0."""
    mdp = grid_mdp("paper")
    steps = {}
    for eta in (0.0, 0.05, 0.11, 0.2, 0.23, 0.33):
        batch = solve_many(mdp, 0.8, eta=np.full(20, eta), init=random_inits(mdp, range(20)))
        assert set(batch.outcomes) == {"converged"}
        steps[eta] = batch.applications.mean()
    assert min(steps, key=steps.get) == 0.23
    prototype = {0.0: 62.8, 0.05: 59.2, 0.11: 56.0, 0.2: 51.0, 0.23: 50.0, 0.33: 62.5}
    assert steps == pytest.approx(prototype, abs=0.75)
    assert steps[0.23] / steps[0.0] == pytest.approx(0.80, abs=0.02)


class TestOutcomes:
    mdp = grid_mdp("paper")

    def test_converged(self):
        found = solve(self.mdp, 0.8)
        assert found.outcome == "converged"
        assert len(found.residuals) == found.applications
        assert found.residuals[-1] < 1e-6 <= found.residuals[-2]

    def test_diverged_is_found_early(self):
        found = solve(self.mdp, 0.8, eta=5.0)
        assert found.outcome == "diverged"
        assert found.applications < 100
        assert np.isfinite(found.q).all()

    def test_ran_out(self):
        found = solve(self.mdp, 0.8, max_steps=7)
        assert (found.outcome, found.applications) == ("exhausted", 7)


class TestBadInput:
    mdp = grid_mdp("paper")

    @pytest.mark.parametrize("gamma", [1.0, -0.1, 1.5, float("nan")])
    def test_gamma(self, gamma):
        with pytest.raises(BadInput, match=r"gamma is .*; expected a number in \[0, 1\)"):
            solve(self.mdp, gamma)

    def test_eta_of_the_wrong_shape(self):
        with pytest.raises(BadInput, match=r"eta has shape \(5,\); expected a number or one per state, \(39,\)"):
            solve(self.mdp, 0.8, eta=np.zeros(5))
        with pytest.raises(BadInput, match=r"eta has shape \(5,\)"):
            shaped_bellman(self.mdp, 0.8, np.zeros((39, 4)), np.zeros(5))

    def test_eta_that_is_not_finite(self):
        with pytest.raises(BadInput, match="not finite"):
            solve(self.mdp, 0.8, eta=float("nan"))

    def test_init_of_the_wrong_shape(self):
        with pytest.raises((BadInput, ValueError), match="shape"):
            solve(self.mdp, 0.8, init=np.zeros((3, 2)))

    def test_tolerance(self):
        with pytest.raises(BadInput, match="tol is 0"):
            solve(self.mdp, 0.8, tol=0.0)
