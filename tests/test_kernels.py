"""The fused kernels give what the SciPy operators give, on every kind of table."""

from __future__ import annotations

import numpy as np
import pytest

from bsrs.rng import stream
from bsrs.tabular import MDP, expected_next, greedy_policy, grid_mdp, kernels, solve


def irregular() -> MDP:
    """Rows from one to forty next states wide: too uneven to be padded."""
    rng = stream(0, "irregular table")
    p = rng.random((60, 2, 60)) ** 3
    p[rng.random(60) < 0.8, :, 3:] = 0.0
    return MDP(p / p.sum(axis=2, keepdims=True), rng.standard_normal((60, 2)))


TABLES = {
    "equal rows": lambda: MDP.garnet(300, 4, 5, seed=0),
    "padded rows": lambda: grid_mdp("9x9", slip=0.2),
    "certain steps": lambda: grid_mdp("9x9"),
    "rows that end": lambda: grid_mdp("9x9", goal="terminate"),
    "irregular rows": irregular,
    "many actions": lambda: MDP.garnet(20, 40, 3, seed=0),
}


@pytest.fixture(params=TABLES)
def mdp(request) -> MDP:
    return TABLES[request.param]()


def test_one_application(mdp):
    value = stream(1, "test value").standard_normal(mdp.n_states)
    q = mdp.rewards + 0.9 * expected_next(mdp, value)
    for threads in (1, 2):
        kernels.set_threads(threads)
        out, policy = np.empty_like(value), np.empty(mdp.n_states, dtype=np.int32)
        low, high = kernels.back_up(kernels.compact(mdp), 0.9, value, out, omega=1.3, policy=policy)
        change = q.max(axis=1) - value
        np.testing.assert_allclose(out, value + 1.3 * change, atol=1e-12)
        assert (low, high) == pytest.approx((change.min(), change.max()), abs=1e-12)
        np.testing.assert_array_equal(policy, greedy_policy(q))


def test_a_policys_chain(mdp):
    table = kernels.compact(mdp)
    policy = (np.arange(mdp.n_states) % mdp.n_actions).astype(np.int32)
    value, out = stream(1, "test value").standard_normal(mdp.n_states), np.empty(mdp.n_states)
    kernels.back_up(kernels.restrict(table, policy), 0.9, value, out)
    rewards = mdp.rewards[np.arange(mdp.n_states), policy]
    np.testing.assert_allclose(out, rewards + 0.9 * (mdp.chain(policy) @ value), atol=1e-12)


class TestSolving:
    """The same counts and answers, whether a table counts as large or not."""

    mdp = grid_mdp("9x9", slip=0.2)

    @pytest.mark.parametrize(("eta", "outcome"), [(0.0, "converged"), (0.1, "converged"), (5.0, "diverged")])
    def test_a_constant_eta(self, monkeypatch, eta, outcome):
        """The value function's residual is small enough one application before that of Q, or with it."""
        small = solve(self.mdp, 0.9, eta=eta)
        monkeypatch.setattr("bsrs.tabular.backup.LARGE", 0)
        large = solve(self.mdp, 0.9, eta=eta)
        assert small.outcome == large.outcome == outcome
        assert small.applications - large.applications in (0, 1)
        if outcome == "converged":
            np.testing.assert_allclose(large.q, small.q, atol=1e-5)
            np.testing.assert_allclose(large.optimal_value, small.optimal_value, atol=1e-5)

    @pytest.mark.parametrize("how", [{"eta": "anderson"}, {"method": "midrange"}, {"method": "mpi"}])
    def test_methods(self, monkeypatch, how):
        small = solve(self.mdp, 0.9, **how)
        monkeypatch.setattr("bsrs.tabular.backup.LARGE", 0)
        large = solve(self.mdp, 0.9, **how)
        assert (large.applications, large.sweeps) == (small.applications, small.sweeps)
        np.testing.assert_allclose(large.q, small.q, atol=1e-10)

    def test_float32(self, monkeypatch):
        monkeypatch.setattr("bsrs.tabular.backup.LARGE", 0)
        single = solve(self.mdp, 0.9, method="mpi", dtype=np.float32, tol=1e-4)
        assert single.q.dtype == np.float32
        np.testing.assert_allclose(single.value, solve(self.mdp, 0.9).value, atol=2e-3)


def test_a_certain_step_takes_twelve_bytes():
    """4 for the next state, 8 for the reward, nothing for probabilities or pointers: a million states in 48 MB."""
    table = kernels.compact(grid_mdp("50x50"))
    assert table.nbytes == 12 * 4 * table.n_states
    assert kernels.compact(grid_mdp("50x50"), np.float32).nbytes == 8 * 4 * table.n_states
