"""What BSRS is compared with: each against a computation that shares nothing with ours."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import NStepReplayBuffer
from torch import Tensor

import experiments.variants  # noqa: F401  registers what is tested
from bsrs.agents.agent import Transition
from bsrs.agents.replay import ArrayReplay
from bsrs.config import algorithms as registry
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput
from experiments.comparators import CENTERING_RATE
from small_agents import DISCRETE, after, assert_same, batch, made, weights

GAMMA = 0.99


def rows(kind: str, fields: dict[str, Any]) -> tuple[list[dict[str, Any]], Tensor]:
    """A DQN variant's networks' numbers for each transition of a batch, and the target that it takes."""
    agent, data = made(kind, fields), batch(kind)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in (agent.online, agent.target):
            list(network.parameters())[-2].normal_(generator=rng)  # the last layer's weights
        found, _ = agent.td_target(data, agent.online(data.obs), 1)
        tables = {
            "q": agent.online(data.obs)[0],
            "q_t": agent.target(data.obs)[0],
            "next_q": agent.online(data.next_obs)[0],
            "next_t": agent.target(data.next_obs)[0],
        }
    each = [
        {name: table[i].double().numpy() for name, table in tables.items()}
        | {"r": float(data.reward[0, i]), "a": int(data.action[0, i]), "alive": float(~data.terminated[0, i])}
        for i in range(len(found[0]))
    ]
    return each, found[0]


def bellman(x: dict[str, Any]) -> float:
    return float(x["r"] + GAMMA * x["alive"] * x["next_t"].max())


def advantage_learning(x: dict[str, Any], alpha: float = 0.9) -> float:
    return bellman(x) - alpha * float(x["q_t"].max() - x["q_t"][x["a"]])


def persistent(x: dict[str, Any]) -> float:
    return max(advantage_learning(x), x["r"] + GAMMA * x["alive"] * float(x["next_t"][x["a"]]))


def munchausen(x: dict[str, Any]) -> float:
    def log_softmax(q: Any) -> Any:
        return (q - q.max()) / 0.03 - np.log(np.exp((q - q.max()) / 0.03).sum())

    log_pi, next_log_pi = log_softmax(x["q_t"]), log_softmax(x["next_t"])
    soft = float((np.exp(next_log_pi) * (x["next_t"] - 0.03 * next_log_pi)).sum())
    return float(x["r"] + 0.9 * np.clip(0.03 * log_pi[x["a"]], -1, 0) + GAMMA * x["alive"] * soft)


def minto(x: dict[str, Any]) -> float:
    return float(x["r"] + GAMMA * x["alive"] * np.minimum(x["next_q"], x["next_t"]).max())


def double(x: dict[str, Any]) -> float:
    return float(x["r"] + GAMMA * x["alive"] * x["next_t"][x["next_q"].argmax()])


@pytest.mark.parametrize(
    ("kind", "fields", "target"),
    [
        ("dqn-advantage", {}, advantage_learning),
        ("dqn-advantage", {"comparator_alpha": 2 / 3}, lambda x: advantage_learning(x, 2 / 3)),
        ("dqn-persistent", {}, persistent),
        ("dqn-munchausen", {}, munchausen),
        ("dqn-minto", {}, minto),
        ("dqn", {"double": True}, double),
    ],
)
def test_the_target_is_the_papers(kind: str, fields: dict[str, Any], target: Any) -> None:
    each, found = rows(kind, fields)
    torch.testing.assert_close(found.double(), torch.tensor([target(x) for x in each]).double(), rtol=1e-4, atol=1e-5)
    assert any(abs(target(x) - bellman(x)) > 1e-3 for x in each)


def td3_target(kind: str) -> tuple[Any, Any, Tensor, Tensor]:
    """A TD3 variant, a batch, the target that TD3 takes from the same networks and noise, and the variant's."""
    agent, data = made(kind, {}), batch(kind)
    agent.noise = lambda *shape: np.zeros((1, *shape[1:]), np.float32)
    plain = made("td3", {})
    plain.noise = agent.noise
    for name, network in plain.networks.items():
        network.load_state_dict(agent.networks[name].state_dict())
    with torch.no_grad():
        q = agent.critics(data.obs, data.action)
        return agent, data, plain.td_target(data, q, 1)[0], agent.td_target(data, q, 1)[0]


def test_td3_takes_the_least_of_both_networks() -> None:
    agent, data, plain, found = td3_target("td3-minto")
    torch.testing.assert_close(agent.smoothed_action(data), torch.tanh(agent.target_actor(data.next_obs)))
    with torch.no_grad():
        action = torch.tanh(agent.target_actor(data.next_obs))
        every = torch.cat([net(data.next_obs, action) for net in (agent.critics, agent.target_critics)], dim=1)
    expected = data.reward + agent.config.gamma * ~data.terminated * every.amin(dim=1)
    torch.testing.assert_close(found[:, 0], expected)
    assert not torch.allclose(found, plain)


@pytest.mark.parametrize("kind", ["td3-advantage", "td3-persistent"])
def test_the_advantage_of_td3_is_at_the_target_actors_action(kind: str) -> None:
    agent, data, plain, found = td3_target(kind)
    with torch.no_grad():
        q, best, repeated = (
            agent.target_critics(obs, action).amin(dim=1)
            for obs, action in (
                (data.obs, data.action),
                (data.obs, agent.target_actor(data.obs).tanh()),
                (data.next_obs, data.action),
            )
        )
    expected = plain[:, 0] + 0.9 * (q - best)
    if kind == "td3-persistent":
        again = data.reward + agent.config.gamma * ~data.terminated * repeated
        assert (again > expected).any()
        expected = expected.maximum(again)
    torch.testing.assert_close(found[:, 0], expected)


# ---- reward centering


@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_centering_is_a_constant_potential(kind: str) -> None:
    """Step by step: rewards without the mean so far, and its whole worth to come at an end."""
    agent, plain = made(f"{kind}-centering", {}), made(kind, {})
    errors: list[Tensor] = []
    td_target = plain.td_target

    def watched(given: Any, q: Tensor, step: int) -> Any:
        target, shaping = td_target(given, q, step)
        taken = q.gather(-1, given.action[..., None])[..., 0] if kind == "dqn" else q
        errors.append(target - taken)
        return target, shaping

    plain.td_target = watched
    gamma, average = agent.config.gamma, 0.0
    for seed in range(4):
        data = batch(kind, 1, seed)
        data = data._replace(reward=data.reward + 5.0)
        assert float(agent.networks["centering"].each[0].mean) == pytest.approx(average, rel=1e-4)
        left = data.reward - average * torch.where(data.terminated, 1 / (1 - gamma), 1.0)
        for each, own in ((agent, data), (plain, data._replace(reward=left))):
            each.updates += 1
            each.train_on(own, 1)
        average += CENTERING_RATE * float(errors[-1].mean())
    assert average != 0
    assert_same({k: v for k, v in weights(agent).items() if "centering" not in k}, weights(plain), atol=1e-5)


# ---- PopArt


def test_popart_keeps_every_q_while_its_units_move() -> None:
    agent, data = made("dqn-popart", {}), batch("dqn")
    (network,) = agent.online
    with torch.no_grad():
        before, weight = network(data.obs[0]), network.network[-1].weight.clone()
        for seed in range(50):
            network.learn(100 + 10 * batch("dqn", 1, seed).reward[0])
        torch.testing.assert_close(network(data.obs[0]), before, rtol=1e-4, atol=1e-4)
    assert (network.network[-1].weight - weight).abs().max() > 1e-3
    assert network.mean == pytest.approx(100 * (1 - (1 - 1e-4) ** 50), rel=0.1)


def test_popart_descends_on_the_normalised_loss() -> None:
    """What the first step of Adam remembers is a tenth of the gradient: that of the Huber loss in the new units."""
    agent, data = made("dqn-popart", {"max_grad_norm": 1e9}), batch("dqn")
    data = data._replace(reward=data.reward * 50)
    again = made("dqn-popart", {"max_grad_norm": 1e9})
    with torch.no_grad():
        target, _ = again.td_target(data, again.online(data.obs), 1)
    (network,) = again.online
    network.learn(target[0])
    out = network.network(data.obs[0]).gather(1, data.action[0][:, None])[:, 0]
    F.smooth_l1_loss(out, ((target - network.mean) / network.spread)[0]).backward()
    agent.train_on(data, 1)
    (ours,) = agent.online
    for parameter, expected in zip(ours.network.parameters(), network.network.parameters(), strict=True):
        found = agent.optimizer.state[parameter]["exp_avg"] * 10
        torch.testing.assert_close(found, expected.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["dqn-centering", "td3-centering", "dqn-popart"])
def test_what_a_comparator_remembers_is_in_the_checkpoint(kind: str) -> None:
    agent, again = made(kind, {}), made(kind, {"seed": 3})
    for seed in range(3):
        agent.updates += 1
        agent.train_on(batch(kind, 1, seed), 1)
    again.load_state(0, agent.state(0))
    for each in (agent, again):
        each.rngs = {name: [np.random.default_rng(0)] for name in each.rngs}
        each.updates += 1
        each.train_on(batch(kind, 1, 9), 1)
    assert_same(weights(agent), weights(again))


# ---- n-step returns


@given(seed=st.integers(0, 10_000), n=st.integers(1, 5), steps=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_n_step_returns_are_stable_baselines(seed: int, n: int, steps: int) -> None:
    rng, capacity = np.random.default_rng(seed), 20
    ours = ArrayReplay(EnvSpec("x", "gym", (2,), "float32", n_actions=3), 1, capacity, 1, n, 0.9)
    box, actions = gymnasium.spaces.Box(-9, 9, (2,)), gymnasium.spaces.Discrete(3)
    theirs = NStepReplayBuffer(capacity, box, actions, n_steps=n, gamma=0.9)
    obs = rng.normal(size=(1, 2)).astype(np.float32)
    for _ in range(steps):
        following, reward, action = (
            rng.normal(size=(1, 2)).astype(np.float32),
            rng.normal(size=1),
            rng.integers(3, size=1),
        )
        ended, cut = rng.random(1) < 0.15, rng.random(1) < 0.15
        ours.add(Transition(*(each[None] for each in (obs, action, reward, following, ended, cut & ~ended))))
        info: list[dict[str, Any]] = [{"TimeLimit.truncated": bool(cut[0] and not ended[0])}]
        theirs.add(obs, following, action, reward, ended | cut, info)
        obs = rng.normal(size=(1, 2)).astype(np.float32) if (ended | cut)[0] else following
    at = np.arange(min(steps, capacity))
    found, expected = ours.take(at[None]), theirs._get_samples(at)
    np.testing.assert_allclose(found.reward[0], expected.rewards[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.terminated[0], expected.dones[:, 0] > 0)
    np.testing.assert_array_equal(found.next_obs[0], expected.next_observations)
    if n > 1:
        assert expected.discounts is not None
        alive = ~found.terminated[0]
        np.testing.assert_allclose(0.9 ** found.steps[0][alive], expected.discounts[:, 0][alive], rtol=1e-5)


@pytest.mark.parametrize("kind", ["dqn", "td3", "dqn-variant", "td3-variant", "dqn-centering"])
def test_n_step_targets_bootstrap_with_gamma_to_the_n(kind: str) -> None:
    """With shaping: the potentials telescope, so that only the ends of the n steps count."""
    data, gamma = batch(kind), made(kind, {}).config.gamma
    several, one = (made(kind, {"eta": 1.5, "gamma": each}) for each in (gamma, gamma**3))
    for agent, own in ((several, data._replace(steps=torch.full_like(data.reward, 3.0))), (one, data)):
        agent.updates += 1
        agent.train_on(own, 1)
    assert_same(weights(several), weights(one), atol=1e-5)


# ---- bad input


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("dqn-centering", {"gamma": 1.0}, "needs gamma below 1"),
        ("dqn-advantage", {"comparator_alpha": 1.5}, "expected between 0 and 1"),
        ("td3-minto", {"eta": 1.0}, "td3-variant has 0.0 only"),
        ("dqn-munchausen", {"double": True}, "dqn-variant has False only"),
        ("dqn-popart", {"network": "dueling"}, "dqn-variant has"),
        ("td3-popart", {}, "which only DQN has"),
    ],
)
def test_bad_comparators_are_named(kind: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        made(kind, fields)


def test_the_variant_on_the_page_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent / "docs" / "adding-an-algorithm.md").read_text()
    _, start, rest = page.partition('"""MINTO')
    (tmp_path / "minto_on_the_page.py").write_text(start + rest.partition("```")[0])
    monkeypatch.setattr(registry, "_ROWS", dict(registry._ROWS))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("minto_on_the_page")
    assert_same(after("dqn-minto", {}), after_page())
    assert registry.find_algorithm("minto").presets == registry.find_algorithm("dqn").presets


def after_page() -> dict[str, Tensor]:
    """The weights after a few gradient steps on the batches of DQN."""
    agent = made("minto", {}, spec=DISCRETE)
    for seed in range(3):
        agent.updates += 1
        agent.train_on(batch("dqn", 1, seed), 1)
    return weights(agent)
