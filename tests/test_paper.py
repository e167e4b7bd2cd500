"""Each theorem, proposition and remark of the paper, under its own name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bsrs import Constant, PerState, Shaping, Static, shaped_reward
from bsrs.rng import stream
from bsrs.tabular import MDP, bellman, expected_next, relaxed_bellman, shaped_bellman, solve, state_value
from bsrs.tabular.learning import Transition, action_target
from bsrs.tabular.theory import contraction_factor, fixed_point, proven_range, spectral_limit
from strategies import gammas, mdps, proven_etas, seeds, table


def shaped_by(mdp: MDP, gamma: float, phi: np.ndarray) -> MDP:
    """The task with the reward r + gamma E phi(s') - phi(s)."""
    here = np.broadcast_to(phi[:, None], mdp.rewards.shape)
    rewards = shaped_reward(mdp.rewards, here, expected_next(mdp, phi), eta=1.0, gamma=gamma)
    return MDP(mdp.transitions, rewards, mdp.terminates)


class TestTheorem1Ng:
    @given(mdps(), gammas, seeds)
    def test_values_move_by_the_potential_and_the_optimal_policy_stays(self, mdp, gamma, seed):
        phi = table(seed, mdp.n_states)
        plain = solve(mdp, gamma, tol=1e-12)
        shaped = solve(shaped_by(mdp, gamma, phi), gamma, tol=1e-12)
        np.testing.assert_allclose(shaped.q, plain.q - phi[:, None], atol=1e-8)
        np.testing.assert_allclose(shaped.value, plain.value - phi, atol=1e-8)
        best = plain.q.max(axis=1, keepdims=True)
        gap = np.where(plain.q < best, best - plain.q, np.inf).min(axis=1)
        clear = gap > 1e-6  # where two actions tie, either is optimal
        np.testing.assert_array_equal(shaped.policy[clear], plain.policy[clear])


class TestTheorem2Bsrs:
    @given(st.data(), mdps(), gammas, seeds)
    def test_contraction_factor_is_never_exceeded(self, data, mdp, gamma, seed):
        eta = data.draw(proven_etas(gamma))
        one, other = table(seed, 2, mdp.n_states, mdp.n_actions)
        before = np.abs(one - other).max()
        after = np.abs(shaped_bellman(mdp, gamma, one, eta) - shaped_bellman(mdp, gamma, other, eta)).max()
        assert after <= contraction_factor(eta, gamma) * before + 1e-12
        assert contraction_factor(eta, gamma) < 1

    @given(gammas)
    def test_the_range_is_where_the_factor_is_below_one(self, gamma):
        low, high = proven_range(gamma)
        assert contraction_factor(high, gamma) == pytest.approx(1.0)
        assert contraction_factor(high + 1e-3, gamma) > 1 > contraction_factor(high - 1e-3, gamma)
        assert contraction_factor(low - 1e-3, gamma) > 1

    @given(st.data(), mdps(), gammas, seeds)
    def test_fixed_points(self, data, mdp, gamma, seed):
        eta = data.draw(proven_etas(gamma))
        expected = fixed_point(solve(mdp, gamma, tol=1e-13).q, eta)
        found = solve(mdp, gamma, eta=eta, init=table(seed, mdp.n_states, mdp.n_actions), tol=1e-12)
        assert found.outcome == "converged"
        np.testing.assert_allclose(found.q, expected.q, atol=1e-8)
        np.testing.assert_allclose(found.value, expected.value, atol=1e-8)
        np.testing.assert_allclose(eta * found.value, expected.potential, atol=1e-8)

    def test_erratum_the_potential_converges_to_eta_times_what_the_statement_says(self):
        mdp, gamma, eta = MDP([[[1.0]]], [[1.0]]), 0.5, 0.2
        optimal_value = 2.0
        potential = eta * solve(mdp, gamma, eta=eta, tol=1e-12).value
        assert potential == pytest.approx(eta / (1 + eta) * optimal_value)  # the proof
        assert potential != pytest.approx(optimal_value / (1 + eta))  # the statement

    @pytest.mark.parametrize("gamma", [0.5, 0.8, 0.95])
    def test_divergence_begins_at_the_bound_where_the_chain_has_eigenvalue_minus_one(self, gamma):
        swap = MDP([[[0.0, 1.0]], [[1.0, 0.0]]], [[1.0], [0.0]])
        limit = spectral_limit(swap.transitions, gamma)
        assert limit == pytest.approx((1 - gamma) / (1 + gamma))
        assert solve(swap, gamma, eta=limit - 1e-2).outcome == "converged"
        assert solve(swap, gamma, eta=limit + 1e-2).outcome == "diverged"

    @given(mdps(terminating=False), gammas)
    def test_the_spectral_limit_is_sharp_for_a_single_policy(self, mdp, gamma):
        chain = MDP(mdp.chain(np.zeros(mdp.n_states, dtype=int)), mdp.rewards[:, :1])  # one action: a linear problem
        limit = spectral_limit(chain.transitions, gamma)
        assert limit >= (1 - gamma) / (1 + gamma) - 1e-9
        inside = solve(chain, gamma, eta=-1 + 0.98 * (1 + limit), tol=1e-6, max_steps=20_000)
        assert inside.outcome == "converged"
        start = table(0, *chain.rewards.shape)
        outside = solve(chain, gamma, eta=-1 + 1.02 * (1 + limit), init=start, max_steps=20_000)
        assert outside.outcome == "diverged"


class TestOverRelaxation:
    """Beyond the paper: in the coordinates U = (1 + eta) V, BSRS is value iteration relaxed by 1 + eta."""

    @given(mdps(), gammas, seeds, st.floats(-0.9, 3.0), st.sampled_from([0.0, 0.5]))
    def test_identity(self, mdp, gamma, seed, eta, temperature):
        self.check(mdp, gamma, seed, eta, temperature)

    @given(mdps(), gammas, seeds, st.sampled_from([0.0, 0.5]))
    def test_identity_with_a_state_dependent_eta(self, mdp, gamma, seed, temperature):
        self.check(mdp, gamma, seed, stream(seed, "eta").uniform(-0.9, 3.0, mdp.n_states), temperature)

    @staticmethod
    def check(mdp, gamma, seed, eta, temperature):
        q = table(seed, mdp.n_states, mdp.n_actions)
        u = (1 + eta) * state_value(q, temperature)
        stepped = (1 + eta) * state_value(shaped_bellman(mdp, gamma, q, eta, temperature=temperature), temperature)
        relaxed = relaxed_bellman(mdp, gamma, u, eta, temperature=temperature)
        np.testing.assert_allclose(stepped, relaxed, atol=1e-12 * max(1.0, np.abs(u).max()))

    @given(st.data(), mdps(), gammas)
    def test_fixed_points_with_a_state_dependent_eta(self, data, mdp, gamma):
        top = data.draw(st.floats(0.05, 0.95)) * (1 - gamma) / (1 + gamma)
        eta = np.linspace(-top / 2, top, mdp.n_states)
        expected = fixed_point(solve(mdp, gamma, tol=1e-13).q, eta)
        found = solve(mdp, gamma, eta=eta, tol=1e-12)
        np.testing.assert_allclose(found.q, expected.q, atol=1e-8)
        np.testing.assert_allclose(found.optimal_value, (1 + eta) * expected.value, atol=1e-8)

    @given(st.data(), mdps(), gammas, seeds)
    def test_entropy_regularised_fixed_points(self, data, mdp, gamma, seed):
        eta, temperature = data.draw(proven_etas(gamma)), 0.3
        optimal = solve(mdp, gamma, tol=1e-13, temperature=temperature).q
        np.testing.assert_allclose(bellman(mdp, gamma, optimal, temperature=temperature), optimal, atol=1e-10)
        expected = fixed_point(optimal, eta, temperature=temperature)
        init = table(seed, mdp.n_states, mdp.n_actions)
        found = solve(mdp, gamma, eta=eta, init=init, tol=1e-12, temperature=temperature)
        np.testing.assert_allclose(found.q, expected.q, atol=1e-8)


def walk(mdp: MDP, seed: int, steps: int) -> list[Transition]:
    """One trajectory of a random policy; where the episode ends, a new one begins in state 0."""
    draw, state, moves = stream(seed, "walk"), 0, []
    termination = mdp.termination()
    for _ in range(steps):
        action = int(draw.integers(mdp.n_actions))
        row = mdp.transitions[[state * mdp.n_actions + action]].toarray()[0]
        terminated = bool(draw.random() < termination[state, action])
        next_state = state if terminated or row.sum() == 0 else int(draw.choice(mdp.n_states, p=row / row.sum()))
        reward = mdp.rewards[state, action]
        moves.append(Transition(*map(np.atleast_1d, (state, action, reward, next_state, terminated))))
        state = 0 if terminated else next_state
    return moves


@pytest.mark.parametrize("rule", ["q-learning", "sarsa"])
@given(mdp=mdps(), gamma=gammas, seed=seeds)
@settings(max_examples=20)
def test_wiewiora_a_static_potential_is_an_initialisation(rule, mdp, gamma, seed):
    phi = table(seed, mdp.n_states)
    shaped_q = table(seed + 1, 1, mdp.n_states, mdp.n_actions)
    plain_q = shaped_q + phi[:, None]
    for move in walk(mdp, seed, 50):
        next_action = np.zeros(1, dtype=int)
        at = (0, move.state, move.action)
        shaped_q[at] += 0.3 * (
            action_target(shaped_q, move, next_action, gamma, rule, Shaping(1.0, Static(phi))) - shaped_q[at]
        )
        plain_q[at] += 0.3 * (action_target(plain_q, move, next_action, gamma, rule, Shaping(0.0)) - plain_q[at])
        np.testing.assert_allclose(plain_q, shaped_q + phi[:, None], atol=1e-9)


class TestRemark3NoStaticPotential:
    """A static potential adds the same term in every step; BSRS does not, so none can give the same updates."""

    mdp = MDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[0.0], [1.0]])
    gamma, eta = 0.5, 0.2

    def added(self, q):
        """What shaping adds to the plain operator at this point."""
        return shaped_bellman(self.mdp, self.gamma, q, self.eta) - bellman(self.mdp, self.gamma, q)

    def test_counterexample(self):
        first = np.array([[1.0], [0.0]])
        second = shaped_bellman(self.mdp, self.gamma, first, self.eta)
        assert not np.allclose(self.added(first), self.added(second))

    def test_each_step_alone_is_potential_based(self):
        q = np.array([[1.0], [0.0]])
        psi = self.eta * state_value(q)
        np.testing.assert_allclose(self.added(q), self.gamma * expected_next(self.mdp, psi) - psi[:, None])

    def test_at_the_fixed_point_the_term_is_static(self):
        q = solve(self.mdp, self.gamma, eta=self.eta, tol=1e-13).q
        after = shaped_bellman(self.mdp, self.gamma, q, self.eta)
        np.testing.assert_allclose(self.added(q), self.added(after), atol=1e-12)


@given(mdp=mdps(), gamma=gammas, seed=seeds, eta=st.floats(-0.9, 5.0))
def test_proposition_4_scaled_td0(mdp, gamma, seed, eta):
    """BSRS with rate alpha makes the updates of plain TD(0) with rate alpha (1 + eta) and reward r / (1 + eta)."""
    alpha, none = 0.1 / (1 + eta), np.zeros(1, dtype=int)  # TD(0) is Q-learning with one action
    shaped = table(seed, 1, mdp.n_states, 1)
    plain = shaped.copy()
    for move in walk(mdp, seed, 50):
        at = (0, move.state, 0)
        move, scaled = (
            Transition(move.state, none, reward, move.next_state, move.terminated)
            for reward in (move.reward, move.reward / (1 + eta))
        )
        target, plain_target = (
            action_target(q, step, none, gamma, "q-learning", Shaping(scale))
            for q, step, scale in ((shaped, move, eta), (plain, scaled, 0.0))
        )
        shaped[at] += alpha * (target - shaped[at])
        plain[at] += alpha * (1 + eta) * (plain_target - plain[at])
        np.testing.assert_allclose(shaped, plain, atol=1e-10)


class TestProposition5RegularizedSarsa0:
    """The shaped step is the plain one, rescaled, PLUS lambda grad A^2: an ascent step, so eta > 0 widens the gap."""

    @given(seed=seeds, eta=st.floats(-0.9, 5.0), gamma=gammas)
    @settings(max_examples=20)
    def test_update_of_a_network(self, seed, eta, gamma):
        generator = torch.Generator().manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
        obs, next_obs = torch.randn(2, 3, generator=generator, dtype=torch.float64)
        reward, alpha = 0.7, 0.1
        value, next_value = net(obs).max().detach(), net(next_obs).max().detach()

        def ascent(scalar):
            return [alpha * g for g in torch.autograd.grad(scalar, list(net.parameters()), retain_graph=True)]

        q = net(obs)[0]
        shaped = shaped_reward(reward, value, next_value, eta=eta, gamma=gamma)
        bsrs_step = ascent(q * (shaped + gamma * next_value - q).detach())

        q = net(obs)[0]
        td_error = (reward / (1 + eta) + gamma * next_value - q).detach()
        lam = 0.5 * eta / (1 + eta)
        regularised = [(1 + eta) * g for g in ascent(q * td_error + lam * (q - value) ** 2)]
        for one, other in zip(bsrs_step, regularised, strict=True):
            torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)

    @given(mdp=mdps(), gamma=gammas, seed=seeds, eta=st.floats(-0.9, 5.0))
    def test_update_of_a_table(self, mdp, gamma, seed, eta):
        q = table(seed, 1, mdp.n_states, mdp.n_actions)
        for move in walk(mdp, seed, 20):
            next_action = q[:, move.next_state[0]].argmax(axis=1)
            at = (0, move.state, move.action)
            advantage = q[at] - q[0, move.state].max(axis=1)
            scaled = Transition(move.state, move.action, move.reward / (1 + eta), move.next_state, move.terminated)
            plain = action_target(q, scaled, next_action, gamma, "sarsa", Shaping(0.0)) - q[at]
            shaped = action_target(q, move, next_action, gamma, "sarsa", Shaping(eta)) - q[at]
            lam = 0.5 * eta / (1 + eta)
            np.testing.assert_allclose(shaped, (1 + eta) * (plain + lam * 2 * advantage), atol=1e-10)
            q[at] += 0.1 * shaped

    @pytest.mark.parametrize("eta", [0.5, -0.5])
    def test_sign_of_the_advantage_term(self, eta):
        """With the TD error of the rescaled problem zero, only the advantage term is left: eta > 0 grows the gap."""
        gamma, q = 0.0, np.array([[[1.0, 0.4]]])  # one state; action 1 is worse by 0.6
        reward = np.array([0.4 * (1 + eta)])  # makes r / (1 + eta) equal Q(s, 1)
        move = Transition(np.array([0]), np.array([1]), reward, np.array([0]), np.array([False]))
        step = action_target(q, move, np.array([0]), gamma, "sarsa", Shaping(eta)) - 0.4
        assert np.sign(step[0]) == -np.sign(eta)  # Q(s, 1) falls, its distance to the maximum grows, for eta > 0
        assert step[0] == pytest.approx(eta * -0.6)


class TestPolicyInvarianceNeedsMaskedTerminals:
    """A state from which two actions end the episode, in end states whose values nothing ever learns."""

    reward = np.array([1.0, 0.9])
    end_value = np.array([0.0, 0.5])  # whatever the initialisation left there
    gamma, eta = 0.9, 1.0

    def best_action(self, terminated):
        value = np.full(2, 0.3)
        shaped = shaped_reward(
            self.reward, value, self.end_value, eta=self.eta, gamma=self.gamma, terminated=terminated
        )
        return int(shaped.argmax())  # nothing follows: the reward is all there is

    def test_masked_keeps_the_optimal_action(self):
        assert self.best_action(np.array([True, True])) == int(self.reward.argmax()) == 0

    def test_unmasked_flips_it(self):
        assert self.best_action(None) == 1

    @given(mdps(terminating=True), gammas, seeds)
    def test_masked_is_invariant_on_every_terminating_mdp(self, mdp, gamma, seed):
        assume((mdp.termination() > 0).any())
        phi = 10 * table(seed, mdp.n_states)
        plain, shaped = solve(mdp, gamma, tol=1e-12), solve(shaped_by(mdp, gamma, phi), gamma, tol=1e-12)
        np.testing.assert_allclose(shaped.q + phi[:, None], plain.q, atol=1e-7)


def test_static_oracle_potential_leaves_only_advantages_to_learn():
    """With phi = V*, what is left of the optimal values is the advantage: zero for the best action everywhere."""
    mdp = MDP.garnet(20, 3, 4, seed=1)
    optimal = solve(mdp, 0.9, tol=1e-12)
    left = solve(shaped_by(mdp, 0.9, optimal.value), 0.9, tol=1e-12)
    np.testing.assert_allclose(left.value, 0.0, atol=1e-8)
    np.testing.assert_allclose(left.q, optimal.q - optimal.value[:, None], atol=1e-8)


def test_shaping_with_eta_of_the_state_is_potential_based():
    """eta(s) V(s) is a potential only if the next state brings its own eta."""
    eta = np.array([0.1, 0.7])
    state, next_state = np.array([0]), np.array([1])
    value, next_value = np.array([2.0]), np.array([3.0])
    shaped = Shaping(PerState(eta))(np.zeros(1), value, next_value, gamma=0.5, state=state, next_state=next_state)
    assert shaped == pytest.approx(0.5 * 0.7 * 3.0 - 0.1 * 2.0)
    assert Shaping(Constant(0.1))(np.zeros(1), value, next_value, gamma=0.5) == pytest.approx(0.1 * (1.5 - 2.0))
