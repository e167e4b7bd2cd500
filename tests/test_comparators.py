"""What BSRS is compared with: each against a computation that shares nothing with ours."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import NStepReplayBuffer
from torch import Tensor
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from bsrs.agents.comparators import CENTERING_RATE
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.networks import Layers
from bsrs.agents.replay import ArrayReplay, Batch, NStep
from bsrs.config.agents import DQNConfig, SACConfig, TD3Config
from bsrs.config.base import identity_of
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput
from small_agents import after, assert_same, batch, dqn, made, weights

GAMMA = 0.99


def rows(kind: str, fields: dict[str, Any]) -> tuple[Any, list[dict[str, Any]], Tensor]:
    """A DQN agent, its networks' numbers for each transition of a batch, and the target that it takes."""
    agent, data = made(kind, fields), batch(kind)
    with torch.no_grad():
        rng = torch.Generator().manual_seed(1)
        for network in (agent.online, agent.target):
            network.layers[-1][0].normal_(generator=rng)
        found, _ = agent._target(data, agent._passes(data, 1)[1], 1)
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
    return agent, each, found[0]


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
    ("fields", "target"),
    [
        ({"comparator": "advantage"}, advantage_learning),
        ({"comparator": "advantage", "comparator_alpha": 2 / 3}, lambda x: advantage_learning(x, 2 / 3)),
        ({"comparator": "persistent"}, persistent),
        ({"comparator": "munchausen"}, munchausen),
        ({"comparator": "minto"}, minto),
        ({"double": True}, double),
    ],
)
def test_the_target_is_the_papers(fields: dict[str, Any], target: Any) -> None:
    _, each, found = rows("dqn", fields)
    torch.testing.assert_close(found.double(), torch.tensor([target(x) for x in each]).double(), rtol=1e-4, atol=1e-5)
    assert any(abs(target(x) - bellman(x)) > 1e-3 for x in each)


@pytest.mark.parametrize("kind", ["td3", "sac"])
def test_actor_critics_take_the_least_of_both_networks(kind: str) -> None:
    """With its target network made equal, MINTO is plain; with one that is far above, it bootstraps from the online."""
    agents = [made(kind, {"comparator": name}) for name in ("none", "minto")]
    data = batch(kind)
    for agent in agents:
        agent.target_critics.weights.numbers.copy_(agent.critics.weights.numbers)
        if agent is agents[1]:
            agent.target_critics.layers[-1][1].add_(100.0)
        agent.gradient_step(data, 1)
    ours, plain = (agent.critics.weights.numbers for agent in agents)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-6)


def test_the_advantage_of_td3_is_at_the_target_actors_action() -> None:
    plain, agent, data = made("td3", {}), made("td3", {"comparator": "advantage"}), batch("td3")

    def q(action: Tensor) -> Tensor:
        pairs = torch.cat((data.obs[0], action), dim=-1)
        critics = [agent.target_critics.to_linears(i) for i in range(2)]
        values = [l3(l2(l1(pairs).relu()).relu())[:, 0] for l1, l2, l3 in critics]
        return torch.minimum(*values)

    l1, l2, l3 = agent.target_actor.to_linears(0)
    with torch.no_grad():
        best = l3(l2(l1(data.obs[0]).relu()).relu()).tanh()
        reward = data.reward + 0.9 * (q(data.action[0]) - q(best))
    agent.gradient_step(data, 1)
    plain.gradient_step(data._replace(reward=reward), 1)
    assert_same(weights(agent), weights(plain), atol=2e-6)


def test_munchausen_sac_adds_its_own_log_policy() -> None:
    plain, agent, data = made("sac", {}), made("sac", {"comparator": "munchausen"}), batch("sac")
    l1, l2, l3 = agent.actor.to_linears(0)
    with torch.no_grad():
        mean, log_std = l3(l2(l1(data.obs[0]).relu()).relu()).chunk(2, dim=-1)
        policy = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()])
        log_prob = policy.log_prob(data.action[0]).sum(dim=-1)
    agent.gradient_step(data, 1)
    plain.gradient_step(data._replace(reward=data.reward + 0.9 * log_prob.clamp(-1, 0)), 1)
    assert_same(weights(agent), weights(plain), atol=2e-6)


# ---- reward centering


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
def test_centering_is_a_constant_potential(kind: str) -> None:
    """Step by step: rewards without the mean so far, and its whole worth to come at an end."""
    agent, plain = made(kind, {"comparator": "centering"}), made(kind, {})
    errors: list[Tensor] = []
    plain._comparators.learn, plain._comparators.any = errors.append, True
    gamma, average = agent.config.gamma, 0.0
    for seed in range(4):
        data = batch(kind, 1, seed)
        data = data._replace(reward=data.reward + 5.0)
        assert float(agent._comparators._rewards.average) == pytest.approx(average, rel=1e-4)
        left = data.reward - average * torch.where(data.terminated, 1 / (1 - gamma), 1.0)
        agent.gradient_step(data, 1)
        plain.gradient_step(data._replace(reward=left), 1)
        average += CENTERING_RATE * float(errors[-1].mean())
    assert_same({k: v for k, v in weights(agent).items() if "centering" not in k}, weights(plain), atol=1e-5)


# ---- PopArt and dueling


def test_popart_keeps_every_q_while_its_units_move() -> None:
    agent, data = dqn({"comparator": "popart"}, {}), batch("dqn", 2)
    before = [agent._heads.q(net(data.obs)) for net in (agent.online, agent.target)]
    weight = agent.online.layers[-1][0].clone()
    with torch.no_grad():
        for seed in range(50):
            agent._heads.learn(100 + 10 * batch("dqn", 2, seed).reward, agent.online, agent.target)
    after_ = [agent._heads.q(net(data.obs)) for net in (agent.online, agent.target)]
    for old, new in zip(before, after_, strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-4)
    moved = (agent.online.layers[-1][0] - weight).abs().amax(dim=(1, 2))
    assert moved[0] > 1e-3
    assert moved[1] == 0


def test_popart_descends_on_the_normalised_loss() -> None:
    """The gradient of Adam's first step has the sign of autograd's of the Huber loss in the new units."""
    agent, data = dqn({"comparator": "popart", "max_grad_norm": 1e9}), batch("dqn")
    data = data._replace(reward=data.reward * 50)
    with torch.no_grad():
        target, _ = agent._target(data, agent._passes(data, 1)[1], 1)
        agent._heads.learn(target, agent.online, agent.target)
    mean, spread = (each.clone() for each in agent._heads._units())
    linears = agent.online.to_linears(0)
    out = linears[2](linears[1](linears[0](data.obs[0]).relu()).relu())
    loss = torch.nn.functional.smooth_l1_loss(
        out.gather(1, data.action[0][:, None])[:, 0], ((target - mean) / spread)[0]
    )
    loss.backward()
    agent._heads.learn = lambda *_: None  # type: ignore[method-assign]
    for (ours, _), linear in zip(gradients_of_a_step(agent, data), linears, strict=True):
        torch.testing.assert_close(ours[0], linear.weight.grad.T, rtol=1e-3, atol=1e-6)


def gradients_of_a_step(agent: DQNAgent, data: Batch) -> Layers:
    """What the first step of Adam remembers is a tenth of the gradient."""
    agent.gradient_step(data, 1)
    (numbers,) = agent._stacks["policy"].parameters
    return agent.online.weights.layers(agent.optimizer.state[numbers]["exp_avg"] * 10)


def test_dueling_heads_and_their_gradient() -> None:
    agent, data = dqn({"dueling": True, "max_grad_norm": 1e9}), batch("dqn")
    linears = agent.online.to_linears(0)
    out = linears[2](linears[1](linears[0](data.obs[0]).relu()).relu())
    assert out.shape[1] == 4
    q = out[:, :1] + out[:, 1:] - out[:, 1:].mean(dim=1, keepdim=True)
    with torch.no_grad():
        target, _ = agent._target(data, agent._passes(data, 1)[1], 1)
    torch.nn.functional.smooth_l1_loss(q.gather(1, data.action[0][:, None])[:, 0], target[0]).backward()
    assert (agent.greedy(data.obs.numpy())[0] == q.argmax(dim=1).numpy()).all()
    for (ours, _), linear in zip(gradients_of_a_step(agent, data), linears, strict=True):
        torch.testing.assert_close(ours[0], linear.weight.grad.T, rtol=1e-4, atol=1e-6)


# ---- n-step returns


@given(seed=st.integers(0, 10_000), n=st.integers(1, 5), steps=st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_n_step_returns_are_stable_baselines(seed: int, n: int, steps: int) -> None:
    rng, capacity = np.random.default_rng(seed), 20
    ours = ArrayReplay(EnvSpec("x", "gym", (2,), "float32", n_actions=3), capacity)
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
        ours.add(obs, action, reward, following, ended, cut & ~ended)
        info: list[dict[str, Any]] = [{"TimeLimit.truncated": bool(cut[0] and not ended[0])}]
        theirs.add(obs, following, action, reward, ended | cut, info)
        obs = rng.normal(size=(1, 2)).astype(np.float32) if (ended | cut)[0] else following
    at = np.arange(min(steps, capacity))
    found, expected = ours.sum_rewards(at, NStep(n, 0.9), ours.take(at)), theirs._get_samples(at)
    np.testing.assert_allclose(found.reward, expected.rewards[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.terminated, expected.dones[:, 0] > 0)
    np.testing.assert_array_equal(found.next_obs, expected.next_observations)
    assert expected.discounts is not None
    alive = ~found.terminated
    np.testing.assert_allclose(0.9 ** found.steps[alive], expected.discounts[:, 0][alive], rtol=1e-5)


@pytest.mark.parametrize("kind", ["dqn", "td3", "sac"])
def test_n_step_targets_bootstrap_with_gamma_to_the_n(kind: str) -> None:
    """With shaping: the potentials telescope, so that only the ends of the n steps count."""
    gamma = made(kind, {}).config.gamma
    data = batch(kind)
    fields: dict[str, Any] = {"eta": 1.5, "parts": "cab"}
    for more in ({}, {"parts": "cb"}, {"comparator": "centering"}):
        several, one = made(kind, {**fields, **more}), made(kind, {**fields, **more, "gamma": gamma**3})
        several.gradient_step(data._replace(steps=torch.full_like(data.reward, 3.0)), 1)
        one.gradient_step(data, 1)
        assert_same(weights(several), weights(one), atol=1e-5)


# ---- all together


def test_each_member_learns_by_its_own_comparator() -> None:
    shared: list[dict[str, Any]] = [
        {},
        {"comparator": "advantage", "seed": 1},
        {"comparator": "persistent", "seed": 2, "comparator_alpha": 0.5},
        {"comparator": "minto", "seed": 3, "eta": 1.0},
        {"comparator": "centering", "seed": 4},
        {"control": "scaled", "eta": 9.0, "seed": 5},
    ]
    own: dict[str, list[dict[str, Any]]] = {
        "dqn": [{"comparator": "munchausen"}, {"comparator": "popart"}, {"double": True}],
        "td3": [],
        "sac": [{"comparator": "munchausen"}],
    }
    for kind, more in own.items():
        fields = [*shared, *more]
        together = made(kind, *fields)
        for seed in range(3):
            together.gradient_step(batch(kind, len(fields), seed), 1)
        for member, each in enumerate(fields):
            alone = after(kind, each)
            assert_same(alone, weights(together, member), atol=1e-4)


@pytest.mark.parametrize("name", ["centering", "popart"])
def test_what_a_comparator_remembers_is_in_the_checkpoint(name: str) -> None:
    agent, again = dqn({"comparator": name}), dqn({"comparator": name, "seed": 3})
    for seed in range(3):
        agent.gradient_step(batch("dqn", 1, seed), 1)
    agent.population.observe(transition())
    again.load_state(0, agent.state(0))
    for each in (agent, again):
        each.gradient_step(batch("dqn", 1, 9), 1)
    assert_same(weights(agent), weights(again))


def transition() -> Any:
    from bsrs.agents.agent import Transition

    obs, no = np.zeros((1, 1, 4), np.float32), np.zeros((1, 1), bool)
    return Transition(obs, np.zeros((1, 1), int), np.zeros((1, 1)), obs, no, no)


def test_old_runs_keep_their_identity() -> None:
    config = DQNConfig(env="CartPole-v1")
    later = {"parts", "control", "comparator", "comparator_alpha", "n_step", "dueling"}
    data = {name: value for name, value in vars(config).items() if name not in later}
    assert identity_of(DQNConfig, data) == identity_of(DQNConfig, dict(vars(config)))
    assert identity_of(DQNConfig, {**data, "n_step": 3}) != identity_of(DQNConfig, data)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TD3Config(env="Pendulum-v1", comparator="munchausen"), "needs a policy with probabilities"),
        (lambda: SACConfig(env="Pendulum-v1", comparator="popart"), "is DQN's only"),
        (lambda: DQNConfig(env="CartPole-v1", comparator="centering", gamma=1.0), "expected gamma below 1"),
        (lambda: DQNConfig(env="CartPole-v1", n_step=0), "n_step is 0; expected at least 1"),
        (lambda: DQNConfig(env="CartPole-v1", comparator_alpha=1.5), "expected between 0 and 1"),
    ],
)
def test_bad_comparators_are_named(make: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()


def test_dueling_heads_are_read_where_the_potential_asks_the_target_network() -> None:
    agent, data = dqn({"dueling": True, "potential_network": "target", "eta": 1.0}), batch("dqn")
    with torch.no_grad():
        agent.target.layers[-1][0].normal_(generator=torch.Generator().manual_seed(1))
        found, _ = agent._target(data, agent._passes(data, 1)[1], 1)
        value, next_value = (agent._heads.q(agent.target(obs)).amax(-1) for obs in (data.obs, data.next_obs))
    discount = GAMMA * ~data.terminated
    torch.testing.assert_close(found, data.reward + 2 * discount * next_value - value)
