"""The anatomy of BSRS: its parts as one target, the controls, and the theory of both as tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import experiments.variants  # noqa: F401  registers what is tested
from bsrs.agents.agent import Batch
from bsrs.agents.dqn import DQNAgent
from bsrs.config.algorithms import find_algorithm
from bsrs.errors import BadInput
from bsrs.shaping import shaped_reward
from experiments.parts import part_coefficients, parts_target
from experiments.variant_configs import DQNTargetConfig, DQNVariantConfig, faster_interval, faster_tau
from small_agents import after, assert_same, batch, fill, made, weights

# ---- the identity


@given(st.floats(-0.9, 20.0), st.integers(0, 1_000), st.booleans())
@settings(max_examples=50, deadline=None)
def test_all_parts_together_are_the_shaped_reward(eta: float, seed: int, keep: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    reward, q, value, next_value, bootstrap = torch.randn(5, 30, generator=rng, dtype=torch.float64)
    terminated = torch.rand(30, generator=rng) < 0.3
    shaped = shaped_reward(reward, value, next_value, eta=eta, gamma=0.97, terminated=None if keep else terminated)
    discount = 0.97 * (terminated == 0).double()
    found = parts_target(
        reward, q, value, next_value, bootstrap,
        discount=discount, potential_discount=torch.full_like(discount, 0.97) if keep else discount,
        **part_coefficients(torch.tensor(eta, dtype=torch.float64), "cab"),
    )  # fmt: skip
    torch.testing.assert_close(found, shaped + discount * bootstrap, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["dqn", "td3"])
@pytest.mark.parametrize("terminal", ["zero", "keep"])
def test_an_agent_with_all_parts_learns_what_bsrs_does(kind: str, terminal: str) -> None:
    fields: dict[str, Any] = {"eta": 2.0, "terminal": terminal}
    assert_same(after(kind, fields), after(f"{kind}-variant", {**fields, "parts": "cab"}), atol=2e-5)


@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_at_eta_zero_learning_is_the_baselines(kind: str) -> None:
    assert_same(after(kind, {}), after(f"{kind}-variant", {"parts": "b"}), atol=2e-6)


@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_the_split_potential_is_shaping_without_the_mixed_bootstrap(kind: str) -> None:
    split = after(kind, {"eta": 2.0, "potential_network": "split"})
    assert_same(split, after(f"{kind}-variant", {"eta": 2.0, "parts": "ca"}), atol=2e-5)


def target_of(agent: Any, given: Batch) -> tuple[Tensor, Tensor]:
    """DQN's target on a batch, and its Q."""
    with torch.no_grad():
        q_all = agent.online(given.obs)
        found, _ = agent.td_target(given, q_all, 1)
    return found, q_all


@pytest.mark.parametrize("parts", ["c", "a", "b", "ca", "cb", "ab", "cab"])
def test_each_part_by_hand(parts: str) -> None:
    eta, gamma, given = 2.0, 0.99, batch("dqn")
    agent = made("dqn-variant", {"eta": eta, "parts": parts})
    found, q_all = target_of(agent, given)
    with torch.no_grad():
        next_q, bootstrap = agent.online(given.next_obs).amax(-1), agent.target(given.next_obs).amax(-1)
    q = q_all.gather(-1, given.action[..., None])[..., 0]
    alive = (~given.terminated).float()
    reward = given.reward / 3 if "c" in parts else given.reward
    mixed = bootstrap / 3 + next_q * 2 / 3 if "b" in parts else bootstrap
    gap = (q_all.amax(-1) - q) * 2 / 3 if "a" in parts else 0.0
    error = 3 * (reward + gamma * alive * mixed - q - gap)
    torch.testing.assert_close(found - q, error, rtol=1e-5, atol=1e-5)


def test_each_critic_of_td3_has_a_target_of_its_own() -> None:
    given = batch("td3")
    agent = made("td3-variant", {"eta": 2.0, "parts": "cb"})
    with torch.no_grad():
        q = agent.critics(given.obs, given.action)  # (P, n, B)
        found, _ = agent.td_target(given, q, 1)
    torch.testing.assert_close((found + 2 * q)[:, 0], (found + 2 * q)[:, 1])  # w = 3: -(w - 1) Q of its own
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    "fields",
    [{"double": True}, {"temperature": 0.1}, {"potential_network": "target"}],
    ids=lambda each: next(iter(each)),
)
def test_what_the_parts_do_not_have_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="dqn-variant has"):
        made("dqn-variant", fields)


# ---- controls


@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_controls_are_the_baseline_with_other_numbers(kind: str) -> None:
    rate, own = 1e-3, {"eta": 3.0}
    same: dict[str, Any] = {"learning_rate": rate}

    def control(name: str) -> dict[str, Tensor]:
        return learnt(f"{kind}-variant", {**same, **own, "control": name})

    assert_same(control("scaled"), learnt(kind, same, reward_scale=1 / 4))
    assert_same(control("learning-rate"), learnt(kind, {"learning_rate": 4 * rate}))
    assert_same(control("rescaled"), learnt(kind, {"learning_rate": 4 * rate}, reward_scale=1 / 4))
    if kind == "td3":
        assert_same(control("faster-target"), learnt(kind, {**same, "tau": 0.005 * 4 / (1 + 3 * 0.02)}))


def learnt(kind: str, fields: dict[str, Any], reward_scale: float = 1.0) -> dict[str, Tensor]:
    """The weights after learning from a replay of rewards that are scaled before they are stored."""
    agent = made(kind, {"learning_starts": 0, "train_freq": 1, **fields}, use_kernels=False)
    observe = agent.observe
    agent.observe = lambda t: observe(t._replace(reward=t.reward * reward_scale))
    fill(agent)
    for step in range(1, 4):
        agent.update(step)
    return weights(agent)


def test_a_faster_target_has_the_slow_mode_of_shaping() -> None:
    """Per step, gamma^(1/T') of the faster target equals (gamma / (1 + eta (1 - gamma)))^(1/T) of the shaped one."""
    interval = faster_interval(100_000, 5.0, 0.99)
    shaped = (0.99 / (1 + 5 * 0.01)) ** (1 / 100_000)
    assert 0.99 ** (1 / interval) == pytest.approx(shaped, rel=1e-9)
    assert faster_interval(1_000, 0.0, 0.99) == 1_000
    assert faster_tau(0.005, 2.0, 0.98) == pytest.approx(0.005 * 3 / 1.04)
    config = DQNVariantConfig(env="CartPole-v1", eta=5.0, control="faster-target", target_update_interval=100_000)
    assert (
        find_algorithm("dqn-variant").make_agent([config], made("dqn", {}).spec).config.target_update_interval
        == interval
    )


def test_a_control_that_only_has_other_numbers_is_dqn_itself() -> None:
    """So that it has DQN's kernel."""
    assert type(made("dqn-variant", {"eta": 1.0, "control": "faster-target"})) is DQNAgent


def test_a_target_network_is_copied_between_the_gradient_steps_of_a_round() -> None:
    agent = made("dqn-target", {"target_every": 2, "train_freq": 4, "gradient_steps": 3, "learning_starts": 0})
    fill(agent)
    copies = []
    train_on = agent.train_on
    agent.train_on = lambda *given: (train_on(*given), copies.append(weights(agent)))
    agent.update(4)
    same = [torch.equal(each["policy/0.weight"], each["target/0.weight"]) for each in copies]
    assert same == [False, True, False]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DQNVariantConfig(env="CartPole-v1", eta=-1.0, control="scaled"), "needs a constant number above -1"),
        (
            lambda: DQNVariantConfig(env="CartPole-v1", eta="linear:0:1:10", control="rescaled"),
            "needs a constant number above -1",
        ),
        (lambda: DQNTargetConfig(env="CartPole-v1", target_every=0), "target_every is 0"),
    ],
)
def test_bad_controls_are_named(make: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()


@pytest.mark.parametrize("kind", ["dqn-variant", "td3-variant", "dqn-advantage", "td3-centering", "dqn-popart"])
def test_a_member_of_a_population_learns_as_it_does_alone(kind: str) -> None:
    fields = [{"eta": 2.0, "seed": seed} for seed in (0, 1)]
    together = made(kind, *fields)
    for seed in range(3):
        together.updates += 1
        together.train_on(batch(kind, 2, seed), 1)
    for member, each in enumerate(fields):
        assert_same(after(kind, each), weights(together, member), atol=1e-5)


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
        goal = parts_target(
            reward, value, here, transition @ there, transition @ target,
            discount=gammas, potential_discount=gammas,
            **part_coefficients(torch.tensor(eta, dtype=torch.float64), "cab"),
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
    coefficients = part_coefficients(torch.tensor(eta, dtype=torch.float64), parts)

    def step(q: Tensor, share: float) -> Tensor:
        value = q.amax(dim=1)
        there = transition @ value
        one = torch.full((n, actions), GAMMA, dtype=torch.float64)
        goal = parts_target(
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
