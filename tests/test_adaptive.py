"""An eta that chooses itself: the same answer, far fewer applications, and never many more."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs.errors import BadInput
from bsrs.tabular import MDP, GridMap, grid_mdp, relaxed_bellman, solve
from bsrs.tabular.adaptive import ALLOWANCE, RULES, SHARE
from bsrs.tabular.backup import Backup
from bsrs.tabular.layouts import free_bytes, require
from bsrs.tabular.policy_iteration import midrange, modified_policy_iteration, policy_value
from strategies import mdps, seeds, table

rules = st.sampled_from(sorted(RULES))
discounts = st.sampled_from([0.0, 0.5, 0.9, 0.95])


def plain_count(mdp: MDP, gamma: float, start: np.ndarray, temperature: float = 0.0) -> int:
    """Applications of B that plain value iteration needs to a residual below 1e-6."""
    backup, count = Backup(mdp, gamma, temperature=temperature), 1
    point = backup(start)
    while point.residual >= 1e-6:
        point, count = backup(point.image), count + 1
    return count


def assert_kept_promise(mdp: MDP, gamma: float, rule: str, init: np.ndarray | None = None) -> None:
    found = solve(mdp, gamma, eta=rule, init=init)
    start = np.zeros(mdp.n_states) if init is None else init.max(axis=1)
    assert found.outcome == "converged"
    assert found.applications == len(found.residuals)
    assert found.applications <= (1 + SHARE) * plain_count(mdp, gamma, start) + ALLOWANCE
    exact = solve(mdp, gamma, tol=1e-10).value
    np.testing.assert_allclose(found.value, exact, atol=1e-6 / (1 - gamma) + 1e-8)


class TestSafeguard:
    """Never more than 1.1 times plain iteration's applications, plus ten; and the same answer."""

    @given(mdps(), discounts, rules, seeds)
    def test_random_tables(self, mdp, gamma, rule, seed):
        assert_kept_promise(mdp, gamma, rule, table(seed, mdp.n_states, mdp.n_actions))

    @pytest.mark.parametrize("rule", sorted(RULES))
    @pytest.mark.parametrize("period", [2, 3, 7])
    def test_periodic_chains(self, rule, period):
        ring = np.roll(np.eye(period), 1, axis=1)[:, None]
        assert_kept_promise(MDP(ring, np.arange(period)[:, None]), 0.95, rule)
        assert_kept_promise(MDP(ring, (-1.0) ** np.arange(period)[:, None]), 0.95, rule)

    @pytest.mark.parametrize("rule", sorted(RULES))
    @pytest.mark.parametrize("goal", ["terminate", "reset", "loop"])
    @pytest.mark.parametrize("slip", [0.0, 0.3])
    def test_grids(self, rule, goal, slip):
        assert_kept_promise(grid_mdp("paper", goal=goal, slip=slip), 0.95, rule)

    @pytest.mark.parametrize("rule", sorted(RULES))
    def test_states_that_nothing_reaches(self, rule):
        assert_kept_promise(grid_mdp(GridMap.parse("SFG WWW FFF")), 0.95, rule)

    @settings(max_examples=20)
    @given(mdps(), st.sampled_from([0.05, 1.0]), rules)
    def test_soft_maximum(self, mdp, temperature, rule):
        found = solve(mdp, 0.9, eta=rule, temperature=temperature)
        plain = solve(mdp, 0.9, temperature=temperature, tol=1e-10)
        np.testing.assert_allclose(found.value, plain.value, atol=2e-5)
        assert found.applications <= 1.1 * plain_count(mdp, 0.9, np.zeros(mdp.n_states), temperature) + 10


class TestSavings:
    cases = (
        (lambda: grid_mdp("paper"), 0.03),
        (lambda: grid_mdp("20x20", slip=0.2), 0.12),
        (lambda: MDP.garnet(500, 4, 5, seed=0), 0.10),
    )

    @pytest.mark.parametrize("rule", ["aitken", "anderson"])
    @pytest.mark.parametrize("case", cases)
    def test_a_fraction_of_plain_iteration(self, rule, case):
        make, share = case
        mdp = make()
        plain, found = solve(mdp, 0.99), solve(mdp, 0.99, eta=rule)
        assert found.applications <= share * plain.applications
        np.testing.assert_allclose(found.value, plain.value, rtol=1e-5)
        np.testing.assert_allclose(policy_value(Backup(mdp, 0.99), found.policy, tol=1e-9), plain.value, rtol=1e-5)


@settings(max_examples=30)
@given(mdps(), st.sampled_from(["aitken", "spectral"]), seeds)
def test_the_schedule_is_bsrs(mdp, rule, seed):
    """Value iteration relaxed by 1 + eta_n, with the reported eta_n, ends in the same point."""
    init = table(seed, mdp.n_states, mdp.n_actions)
    found = solve(mdp, 0.9, eta=rule, init=init)
    value = init.max(axis=1)
    for eta in [*found.schedule, 0.0]:  # the last application is read out as it is
        value = relaxed_bellman(mdp, 0.9, value, eta)
    np.testing.assert_allclose(found.value, value, atol=1e-9)


def test_aitken_really_changes_eta():
    schedule = solve(MDP.garnet(50, 3, 4, seed=0), 0.95, eta="aitken").schedule
    assert schedule.max() > 1.0
    assert len(set(schedule.round(6))) > 3


class TestBounds:
    """MacQueen's bounds: half the width of the residual's range is what compares with a sup-norm residual."""

    @given(mdps(), discounts, seeds)
    def test_midrange_needs_no_more_than_plain_iteration(self, mdp, gamma, seed):
        start = table(seed, mdp.n_states)
        found = midrange(Backup(mdp, gamma), start, tol=1e-6, max_steps=10_000)
        assert found.converged
        assert len(found.residuals) <= plain_count(mdp, gamma, start)

    @given(mdps(), discounts, seeds)
    def test_the_error_is_within_the_bound(self, mdp, gamma, seed):
        exact = solve(mdp, gamma, tol=1e-12).value
        backup, start = Backup(mdp, gamma), table(seed, mdp.n_states)
        for run in (midrange, modified_policy_iteration):
            found = run(backup, start, tol=1e-6, max_steps=3_000)
            assert found.converged
            assert np.abs(found.value - exact).max() <= 1e-6 / (1 - gamma) + 1e-9

    @given(mdps(), discounts)
    def test_policy_value(self, mdp, gamma):
        policy = np.arange(mdp.n_states) % mdp.n_actions
        chain = mdp.chain(policy).toarray()
        rewards = mdp.rewards[np.arange(mdp.n_states), policy]
        exact = np.linalg.solve(np.eye(mdp.n_states) - gamma * chain, rewards)
        np.testing.assert_allclose(policy_value(Backup(mdp, gamma), policy, tol=1e-9), exact, atol=1e-6)

    def test_relaxed_policy_iteration_on_a_grid(self):
        mdp = grid_mdp("20x20", slip=0.2)
        plain, relaxed = (solve(mdp, 0.99, method="mpi", eta=eta) for eta in (0.0, 0.1))
        np.testing.assert_allclose(relaxed.value, plain.value, rtol=1e-5)
        assert relaxed.sweeps != plain.sweeps


def lake(name: str, **options: object) -> MDP:
    return MDP.from_gymnasium(name, **options)


# name -> a table that somebody tries first
FIRST_TRIED = {
    "FrozenLake": lambda: lake("FrozenLake-v1"),
    "FrozenLake without slip": lambda: lake("FrozenLake-v1", is_slippery=False),
    "FrozenLake 8x8": lambda: lake("FrozenLake8x8-v1"),
    "FrozenLake 8x8 without slip": lambda: lake("FrozenLake8x8-v1", is_slippery=False),
    "CliffWalking": lambda: lake("CliffWalking-v1"),
    "slippery CliffWalking": lambda: lake("CliffWalking-v1", is_slippery=True),
    "Taxi": lambda: lake("Taxi-v4"),
    **{
        f"paper, {goal}, slip {slip:g}": lambda goal=goal, slip=slip: grid_mdp("paper", goal=goal, slip=slip)
        for goal in ("loop", "terminate", "reset")
        for slip in (0.0, 0.2)
    },
    "two rooms": lambda: grid_mdp("two-rooms", slip=0.1),
    "20x20": lambda: grid_mdp("20x20", slip=0.2),
    "12x12 random rewards": lambda: grid_mdp("12x12", slip=0.2, random_rewards=0),
    "chain": lambda: grid_mdp("1x50"),
    "chain that ends": lambda: grid_mdp("1x50", slip=0.3, goal="terminate"),
    "ring": lambda: MDP(np.roll(np.eye(9), 1, axis=1)[:, None], np.arange(9.0)[:, None]),
    "garnet 100": lambda: MDP.garnet(100, 4, 5, seed=0),
    "garnet 200, narrow": lambda: MDP.garnet(200, 3, 2, seed=1),
}


def iterations(mdp: MDP, gamma: float, start: np.ndarray) -> int:
    """Applications of value iteration to a residual below 1e-6, in dense arithmetic of its own."""
    p, value = mdp.transitions.toarray().reshape(*mdp.rewards.shape, -1), start
    for count in range(1, 10**6):
        image = (mdp.rewards + gamma * p @ value).max(axis=1)
        if np.abs(image - value).max() < 1e-6:
            return count
        value = image
    raise AssertionError("not converged")


class TestAuto:
    """Never more than 1.05 times value iteration's applications, plus three; a sweep counts 1 / A of one."""

    @pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99, 0.999])
    @pytest.mark.parametrize("name", FIRST_TRIED)
    def test_never_loses(self, name, gamma):
        mdp = FIRST_TRIED[name]()
        found = solve(mdp, gamma, method="auto")
        exact = solve(mdp, gamma, method="midrange", tol=1e-9)
        assert found.outcome == "converged"
        np.testing.assert_allclose(found.value, exact.value, atol=1e-6 / (1 - gamma))
        # midrange makes value iteration's steps, and stops no later: only where that does not decide, count them
        if found.work > 1.05 * solve(mdp, gamma, method="midrange").applications + 3:
            assert found.work <= 1.05 * iterations(mdp, gamma, np.zeros(mdp.n_states)) + 3

    @pytest.mark.parametrize("name", ["FrozenLake", "Taxi", "paper, loop, slip 0", "garnet 100"])
    def test_never_loses_at_long_horizons(self, name):
        mdp = FIRST_TRIED[name]()
        found = solve(mdp, 0.9999, method="auto")
        assert found.work <= 1.05 * solve(mdp, 0.9999, method="midrange").applications + 3

    @given(mdps(), st.sampled_from([0.5, 0.9, 0.95]), seeds)
    def test_never_loses_on_random_tables(self, mdp, gamma, seed):
        init = table(seed, mdp.n_states, mdp.n_actions)
        found = solve(mdp, gamma, init=init, method="auto")
        assert found.work <= 1.05 * iterations(mdp, gamma, init.max(axis=1)) + 3

    def test_keeps_its_savings(self):
        """The looping 7x7 at 0.99: plain iteration takes 1,376."""
        found = solve(grid_mdp("paper"), 0.99, method="auto")
        assert solve(grid_mdp("paper"), 0.99).applications == 1376
        assert found.work <= 26
        assert solve(lake("FrozenLake-v1"), 0.99, method="auto").work <= 95  # of 305

    def test_says_what_it_picked(self):
        assert solve(grid_mdp("paper"), 0.99, method="auto").method == "mpi"
        assert solve(grid_mdp("40x40", slip=0.2), 0.99, method="auto").method == "mpi"
        assert solve(grid_mdp("paper"), 0.99, method="auto", temperature=0.1).method == "midrange"

    @pytest.mark.parametrize("how", [{"method": "midrange"}, {"method": "mpi"}, {"method": "auto"}])
    def test_a_row_that_ends_and_stores_a_zero(self, how):
        """Two states; the first one's step ends with its reward, but the row keeps an explicit zero."""
        rows = sparse.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
        found = solve(MDP(rows, np.array([[1.0], [0.0]])), 0.99, **how)
        np.testing.assert_allclose(found.value, [1.0, 0.0], atol=1e-4)

    @given(mdps(), discounts)
    def test_is_right(self, mdp, gamma):
        exact = solve(mdp, gamma, tol=1e-12).value
        np.testing.assert_allclose(solve(mdp, gamma, method="auto").value, exact, atol=1e-6 / (1 - gamma) + 1e-9)


class TestBadInput:
    mdp = grid_mdp("paper")

    def test_unknown_rule(self):
        with pytest.raises(BadInput, match=r"unknown eta 'andersen': did you mean anderson"):
            solve(self.mdp, 0.8, eta="andersen")

    def test_unknown_method(self):
        with pytest.raises(BadInput, match="unknown method 'mip'"):
            solve(self.mdp, 0.8, method="mip")

    def test_no_memory(self):
        with pytest.raises(BadInput, match="memory is 0; expected at least 1"):
            solve(self.mdp, 0.8, eta="anderson", memory=0)

    def test_a_rule_for_policy_iteration(self):
        with pytest.raises(BadInput, match="method mpi was given eta 'aitken'; expected a number"):
            solve(self.mdp, 0.8, eta="aitken", method="mpi")

    def test_an_eta_of_the_state_for_policy_iteration(self):
        with pytest.raises(BadInput, match=r"method mpi was given an eta of shape \(39,\); expected one finite number"):
            solve(self.mdp, 0.8, eta=np.zeros(39), method="mpi")

    def test_an_eta_for_auto(self):
        with pytest.raises(BadInput, match=r"method auto was given eta 0.2; expected none"):
            solve(self.mdp, 0.8, eta=0.2, method="auto")

    def test_a_tolerance_that_float32_cannot_resolve(self):
        with pytest.raises(BadInput, match="tol is 1e-08; float32 resolves values up to 5 to 2e-06 at best"):
            solve(self.mdp, 0.8, method="mpi", dtype=np.float32, tol=1e-8)

    def test_soft_policy_iteration(self):
        with pytest.raises(BadInput, match="policy iteration takes the hard maximum"):
            solve(self.mdp, 0.8, method="mpi", temperature=1.0)


class TestTooLarge:
    """A table that does not fit is refused with its size before anything is allocated."""

    def test_grid(self):
        with pytest.raises(BadInput, match=r"a table of 10,000,000,000 states would take .* TB; expected no more than"):
            grid_mdp("100000x100000")

    def test_garnet(self):
        with pytest.raises(BadInput, match=r"a table of 1,000,000,000 states would take"):
            MDP.garnet(1_000_000_000, 4, 20, seed=0)

    def test_what_fits_is_let_through(self):
        require(free_bytes() // 2, "half of it")
        with pytest.raises(BadInput, match=r"all of it would take .* free memory"):
            require(free_bytes() * 2, "all of it")
