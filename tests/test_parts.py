"""The anatomy of BSRS: its parts as one target, the controls, and the theory of both as tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bsrs.agents import targets
from bsrs.agents.members import polyak_tau, target_interval
from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.errors import BadInput
from bsrs.shaping import shaped_reward
from small_agents import after, assert_same, batch, dqn, made, weights

# ---- the identity


@given(st.floats(-0.9, 20.0), st.integers(0, 1_000), st.booleans())
@settings(max_examples=50, deadline=None)
def test_all_parts_together_are_the_shaped_reward(eta: float, seed: int, keep: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    reward, q, value, next_value, bootstrap = torch.randn(5, 30, generator=rng, dtype=torch.float64)
    terminated = torch.rand(30, generator=rng) < 0.3
    shaped = shaped_reward(reward, value, next_value, eta=eta, gamma=0.97, terminated=None if keep else terminated)
    expected = shaped + 0.97 * (terminated == 0).double() * bootstrap
    yes = torch.tensor(True)
    discount = 0.97 * (terminated == 0).double()
    found = targets.parts_target(
        reward, q, value, next_value, bootstrap,
        discount=discount, potential_discount=torch.full_like(discount, 0.97) if keep else discount,
        **targets.part_coefficients(torch.tensor(eta, dtype=torch.float64), yes, yes, yes),
    )  # fmt: skip
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
@pytest.mark.parametrize("network", ["online", "target", "split"])
@pytest.mark.parametrize("terminal", ["zero", "keep"])
def test_the_general_target_learns_what_the_shaped_reward_does(kind: str, network: str, terminal: str) -> None:
    """A member without one part makes its company take the general path; the whole member learns as it does alone."""
    whole = {"eta": 2.0, "potential_network": network, "terminal": terminal}
    alone, mixed = made(kind, whole), made(kind, whole, {**whole, "parts": "cb"})
    for seed in range(3):
        alone.gradient_step(batch(kind, 1, seed), 1)
        mixed.gradient_step(batch(kind, 2, seed), 1)
    assert_same(weights(alone), weights(mixed), atol=2e-5)
    assert any(
        not torch.allclose(a, b) for a, b in zip(weights(mixed).values(), weights(mixed, 1).values(), strict=True)
    )


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
@pytest.mark.parametrize("fields", [{"parts": "none", "eta": 3.0}, {"eta": 0.0}, {"eta": 0.0, "parts": "b"}])
def test_without_parts_or_eta_learning_is_plain_bit_for_bit(kind: str, fields: dict[str, Any]) -> None:
    plain, other = made(kind, {}), made(kind, fields)
    for seed in range(3):
        for agent in (plain, other):
            agent.gradient_step(batch(kind, 1, seed), 1)
    assert_same(weights(plain), weights(other))


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
def test_the_split_potential_is_shaping_without_the_mixed_bootstrap(kind: str) -> None:
    split = after(kind, {"eta": 2.0, "potential_network": "split"})
    assert_same(split, after(kind, {"eta": 2.0, "parts": "ca"}), atol=2e-5)


def test_each_part_by_hand() -> None:
    """On one batch: the target that DQN takes for each subset of the parts."""
    eta, gamma = 2.0, 0.99
    given = batch("dqn")
    for parts in ("c", "a", "b", "ca", "cb", "ab", "cab"):
        agent = dqn({"eta": eta, "parts": parts})
        with torch.no_grad():
            q_all, next_q = agent.online(given.obs), agent.online(given.next_obs).amax(-1)
            bootstrap = agent.target(given.next_obs).amax(-1)
            found, _ = agent._target(given, agent._passes(given, 1)[1], 1)
        q = q_all.gather(-1, given.action[..., None])[..., 0]
        alive = (~given.terminated).float()
        reward = given.reward / 3 if "c" in parts else given.reward
        mixed = bootstrap / 3 + next_q * 2 / 3 if "b" in parts else bootstrap
        gap = (q_all.amax(-1) - q) * 2 / 3 if "a" in parts else 0.0
        error = 3 * (reward + gamma * alive * mixed - q - gap)
        torch.testing.assert_close(found - q, error, rtol=1e-5, atol=1e-5)


# ---- controls


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
def test_controls_are_plain_learning_with_other_numbers(kind: str) -> None:
    rate = 1e-3
    plain = {"learning_rate": rate}
    assert_same(after(kind, {**plain, "eta": 3.0, "control": "scaled"}), after(kind, plain, 1 / 4))
    assert_same(
        after(kind, {**plain, "eta": 3.0, "control": "learning-rate"}), after(kind, {"learning_rate": 4 * rate})
    )
    assert_same(
        after(kind, {**plain, "eta": 3.0, "control": "rescaled"}), after(kind, {"learning_rate": 4 * rate}, 1 / 4)
    )
    if kind != "dqn":
        tau = 0.005 * 4 / (1 + 3 * 0.02)
        assert_same(after(kind, {**plain, "eta": 3.0, "control": "faster-target"}), after(kind, {**plain, "tau": tau}))


def test_the_exact_control_puts_q_in_the_place_of_v() -> None:
    given, agent = batch("dqn"), dqn({"eta": 2.0, "control": "exact"})
    with torch.no_grad():
        q_all, next_q = agent.online(given.obs), agent.online(given.next_obs).amax(-1)
        bootstrap = agent.target(given.next_obs).amax(-1)
        found, _ = agent._target(given, agent._passes(given, 1)[1], 1)
    q = q_all.gather(-1, given.action[..., None])[..., 0]
    shaped = shaped_reward(given.reward, q, next_q, eta=2.0, gamma=0.99, terminated=given.terminated)
    torch.testing.assert_close(found, shaped + 0.99 * ~given.terminated * bootstrap)


def test_a_faster_target_has_the_slow_mode_of_shaping() -> None:
    """Per step, gamma^(1/T') of the faster target equals (gamma / (1 + eta (1 - gamma)))^(1/T) of the shaped one."""
    config = DQNConfig(env="CartPole-v1", eta=5.0, control="faster-target")
    interval = target_interval(config, 100_000)
    shaped = (0.99 / (1 + 5 * 0.01)) ** (1 / 100_000)
    assert 0.99 ** (1 / interval) == pytest.approx(shaped, rel=1e-9)
    assert target_interval(DQNConfig(env="CartPole-v1", eta=5.0), 1_000) == 1_000
    continuous = TD3Config(env="Pendulum-v1", eta=2.0, control="faster-target")
    assert polyak_tau(continuous, 0.005) == pytest.approx(0.005 * 3 / 1.04)


def test_members_of_one_population_may_differ_in_all_of_this() -> None:
    fields: list[dict[str, Any]] = [
        {"eta": 1.0, "seed": 1},
        {"eta": 2.0, "seed": 2, "parts": "c"},
        {"eta": 2.0, "seed": 3, "control": "exact", "learning_rate": 3e-4},
        {"eta": 2.0, "seed": 4, "control": "scaled"},
        {"eta": 2.0, "seed": 5, "potential_network": "split"},
        {"eta": 0.5, "seed": 6, "potential_network": "target"},
        {"eta": 2.0, "seed": 7, "control": "rescaled"},
    ]
    for kind in ("dqn", "td3", "sac"):
        together = made(kind, *fields)
        for seed in range(3):
            together.gradient_step(batch(kind, len(fields), seed), 1)
        for member, each in enumerate(fields):
            assert_same(after(kind, each), weights(together, member), atol=1e-4)


def test_members_copy_their_target_networks_each_at_its_own_time() -> None:
    agent = dqn({"target_update_interval": 10}, {"eta": 2.0, "control": "faster-target", "target_update_interval": 10})
    assert agent._intervals[0] == 10
    due = agent._intervals[1]
    assert 1 < due < 10
    agent.update(due)
    state = [agent.state(p).tensors for p in range(2)]
    assert not torch.equal(state[0]["target/weight_0"], state[0]["policy/weight_0"])
    assert torch.equal(state[1]["target/weight_0"], state[1]["policy/weight_0"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"control": "scaled", "eta": -1.0}, "expected a constant number above -1"),
        ({"control": "exact", "eta": "linear:0:1:10"}, "expected a constant number above -1"),
        ({"control": "scaled", "parts": "c"}, "a control has no parts"),
    ],
)
def test_bad_controls_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        DQNConfig(env="CartPole-v1", **fields)


# ---- theory, on random MDPs with exact inner solves

GAMMA = 0.9


def chain(seed: int, n: int = 6) -> tuple[Tensor, Tensor]:
    """A Markov reward process: transitions (S, S) and rewards (S,)."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.dirichlet(np.ones(n) * 0.5, size=n)), torch.from_numpy(rng.normal(size=n))


def solved(transition: Tensor, reward: Tensor, eta: float, network: str, target: Tensor) -> Tensor:
    """The V that a period of learning with the target network `target` leads to: its own TD target in expectation."""
    n = len(reward)
    gammas = torch.full((n,), GAMMA, dtype=torch.float64)

    def residual(value: Tensor) -> Tensor:
        here = target if network == "target" else value
        there = value if network == "online" else target
        yes = torch.tensor(True)
        goal = targets.parts_target(
            reward, value, here, transition @ there, transition @ target,
            discount=gammas, potential_discount=gammas,
            **targets.part_coefficients(torch.tensor(eta, dtype=torch.float64), yes, yes, yes),
        )  # fmt: skip
        return goal - value

    # The residual is affine in V: read its matrix off, and solve.
    at_zero = residual(torch.zeros(n).double())
    matrix = torch.stack([residual(unit) - at_zero for unit in torch.eye(n).double()], dim=1)
    return torch.linalg.solve(matrix, -at_zero)


@pytest.mark.parametrize("network", ["online", "target", "split"])
@pytest.mark.parametrize("eta", [0.0, 0.5, 3.0])
def test_the_factor_of_one_target_period(network: str, eta: float) -> None:
    """On the mode with mu = gamma * lam: online mu/(1+eta(1-mu)), target gamma*(1+eta)*lam - eta, split mu."""
    for seed in range(5):
        transition, reward = chain(seed)
        lam = torch.linalg.eigvals(transition)
        mu = GAMMA * lam
        fixed = solved(transition, reward, eta, network, torch.zeros(len(reward)).double())
        for _ in range(300 if network != "target" else 0):
            fixed = solved(transition, reward, eta, network, fixed)
        start = solved(transition, reward, eta, network, torch.zeros(len(reward)).double())
        period = torch.stack(
            [solved(transition, reward, eta, network, unit) - start for unit in torch.eye(len(reward)).double()], dim=1
        )
        expected = {"online": mu / (1 + eta * (1 - mu)), "target": (1 + eta) * mu - eta, "split": mu}[network]
        found = torch.linalg.eigvals(period)
        distance = (found[:, None] - expected[None, :]).abs()
        assert distance.amin(dim=1).max() < 1e-8
        assert distance.amin(dim=0).max() < 1e-8
        if network != "target":
            plain = torch.linalg.solve(torch.eye(len(reward)).double() - GAMMA * transition, reward)
            torch.testing.assert_close(fixed, plain / (1 + eta), rtol=1e-6, atol=1e-6)


def test_the_target_potential_diverges_above_one_where_an_eigenvalue_is_zero() -> None:
    uniform = torch.full((4, 4), 0.25).double()  # eigenvalues 1, 0, 0, 0
    reward = torch.tensor([1.0, -1.0, 2.0, 0.0]).double()
    for eta, diverges in ((0.9, False), (1.1, True)):
        value = torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
        for _ in range(400):
            if value.abs().max() < 1e6:
                value = solved(uniform, reward, eta, "target", value)
        assert bool(value.abs().max() >= 1e6) is diverges
        for network in ("online", "split"):
            value = torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
            for _ in range(400):
                value = solved(uniform, reward, eta, network, value)
            assert value.abs().max() < 100


@pytest.mark.parametrize("parts", ["b", "c", "ca", "cab"])
@pytest.mark.parametrize("eta", [0.5, 4.0])
def test_b_leaves_the_fixed_point_and_c_and_a_move_it(parts: str, eta: float) -> None:
    """b alone: V0. c alone: Q0/(1+eta). With c and a: V = V0/(1+eta), and the action gaps are those of Q0, unscaled."""
    rng = np.random.default_rng(0)
    n, actions = 5, 3
    transition = torch.from_numpy(rng.dirichlet(np.ones(n), size=(n, actions)))
    reward = torch.from_numpy(rng.normal(size=(n, actions)))
    keeps = [torch.tensor(name in parts) for name in "cab"]
    coefficients = targets.part_coefficients(torch.tensor(eta, dtype=torch.float64), *keeps)

    def step(q: Tensor, share: float) -> Tensor:
        value = q.amax(dim=1)
        there = transition @ value
        one = torch.full((n, actions), GAMMA, dtype=torch.float64)
        goal = targets.parts_target(
            reward, q, value[:, None], there, there, discount=one, potential_discount=one, **coefficients
        )
        return q + share * (goal - q)

    q, plain = torch.zeros(n, actions).double(), torch.zeros(n, actions).double()
    for _ in range(3_000):
        q = step(q, 0.4 / (1 + eta))
    for _ in range(1_000):
        plain = reward + GAMMA * (transition @ plain.amax(dim=1))
    value, gap = plain.amax(dim=1, keepdim=True), plain - plain.amax(dim=1, keepdim=True)
    expected = {"b": plain, "c": plain / (1 + eta)}.get(parts, value / (1 + eta) + gap)
    torch.testing.assert_close(q, expected, rtol=1e-5, atol=1e-5)
