"""Tianshou: returns equal the formula from the algorithm's own networks, eta = 0 changes nothing, state is saved."""

import copy
import io
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from support import auto_target, run_page_code

pytest.importorskip("tianshou")

from tianshou.algorithm import C51, DDPG, DQN, SAC, TD3
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, HERReplayBuffer, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import (
    ContinuousActorDeterministic,
    ContinuousActorProbabilistic,
    ContinuousCritic,
)

import bsrs.tianshou
from bsrs import BadInput, Linear, PerState
from bsrs.adapting import separate_rng

pytestmark = pytest.mark.filterwarnings("ignore")  # Tianshou's warnings about NumPy and Gymnasium

GAMMA = 0.97
ADAM = AdamOptimizerFactory(lr=1e-3)


def make(name: str, n_step: int = 1, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    common = {"gamma": GAMMA, "n_step_return_horizon": n_step}
    if name == "DQN":
        network = Net(state_shape=4, action_shape=2, hidden_sizes=[32])
        policy = DiscreteQLearningPolicy(model=network, action_space=gym.spaces.Discrete(2), eps_training=0.5)
        algorithm = DQN(policy=policy, optim=ADAM, target_update_freq=5, **common)
    else:
        algorithm = make_actor_critic(name, common)
    for module in (getattr(algorithm, part, None) for part in ("model_old", "critic_old", "critic2_old", "actor_old")):
        for parameter in module.parameters() if module is not None else ():  # so that they differ from the online ones
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return algorithm


def make_actor_critic(name: str, common: dict[str, Any]) -> Any:
    space = gym.spaces.Box(-2.0, 2.0, (1,))

    def critic() -> Any:
        net = Net(state_shape=3, action_shape=1, hidden_sizes=[32], concat=True)
        return ContinuousCritic(preprocess_net=net)

    net = Net(state_shape=3, hidden_sizes=[32])
    if name == "SAC":
        actor = ContinuousActorProbabilistic(preprocess_net=net, action_shape=1, unbounded=True, conditioned_sigma=True)
        policy = SACPolicy(actor=actor, action_space=space)
        alpha = AutoAlpha(-1.0, -0.5, ADAM)
        critics = {"critic": critic(), "critic2": critic(), "critic_optim": ADAM}
        return SAC(policy=policy, policy_optim=ADAM, alpha=alpha, tau=0.1, **critics, **common)
    actor = ContinuousActorDeterministic(preprocess_net=net, action_shape=1, max_action=2.0)
    deterministic = ContinuousDeterministicPolicy(actor=actor, action_space=space)
    networks = {"policy": deterministic, "policy_optim": ADAM, "critic": critic(), "critic_optim": ADAM, "tau": 0.1}
    return DDPG(**networks, **common) if name == "DDPG" else TD3(**networks, critic2=critic(), **common)


def filled_buffer(name: str) -> Any:
    """Two envs, normalised observations, short episodes and prioritised replay."""
    np.random.seed(0)  # noqa: NPY002 (what Tianshou draws from)
    env_id = "CartPole-v1" if name == "DQN" else "Pendulum-v1"
    envs = VectorEnvNormObs(DummyVectorEnv([lambda: gym.make(env_id, max_episode_steps=15)] * 2))
    envs.seed(0)
    buffer = PrioritizedVectorReplayBuffer(400, buffer_num=2, alpha=0.6, beta=0.4)
    collector = Collector(make(name), envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=300, random=True)
    if name != "DQN":  # Pendulum never terminates by itself
        ends = np.flatnonzero(buffer.truncated)[::2]
        buffer._meta.terminated[ends], buffer._meta.truncated[ends] = True, False
    return buffer


def returns(algorithm: Any, buffer: Any, indices: np.ndarray) -> torch.Tensor:
    torch.manual_seed(7)
    with policy_within_training_step(algorithm.policy), torch.no_grad():
        batch = algorithm._preprocess_batch(buffer[indices], buffer, indices)
    return batch.returns.reshape(-1)


def reference_value(algorithm: Any, obs: np.ndarray) -> torch.Tensor:
    """V(s), (B,), written out with the algorithm's networks."""
    with torch.no_grad():
        if isinstance(algorithm, DQN):
            return algorithm.policy.model(obs)[0].amax(dim=1)
        if isinstance(algorithm, SAC):
            (mean, std), _ = algorithm.policy.actor(obs)
            gaussian = torch.distributions.Normal(mean, std)
            raw = gaussian.rsample()
            action = torch.tanh(raw)
            log_prob = (gaussian.log_prob(raw) - torch.log(1 - action**2 + np.finfo(np.float32).eps)).sum(-1)
        else:
            action, log_prob = algorithm.policy.actor(obs)[0], torch.tensor(0.0)
        q = algorithm.critic(obs, action).reshape(-1)
        if not type(algorithm).__name__.endswith("DDPG"):
            q = torch.minimum(q, algorithm.critic2(obs, action).reshape(-1))
        return q - (algorithm.alpha.value * log_prob if isinstance(algorithm, SAC) else 0.0)


def follow(buffer: Any, index: int, n_step: int) -> tuple[int, int]:
    """The last transition of the n-step return that starts at `index`, and its number of steps."""
    for steps in range(1, n_step + 1):
        if steps == n_step or buffer.done[index] or index in buffer.unfinished_index():
            return index, steps
        index = int(buffer.next(index))
    raise AssertionError


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_returns_equal_the_formula(name: str, n_step: int) -> None:
    buffer = filled_buffer(name)
    _, indices = buffer.sample(0)
    plain = returns(make(name, n_step), buffer, indices)
    algorithm = bsrs.tianshou.shape(make(name, n_step), eta=0.7)
    shaped = returns(algorithm, buffer, indices)
    last, steps = (np.array(column) for column in zip(*(follow(buffer, i, n_step) for i in indices), strict=True))
    terminated = torch.as_tensor(buffer.terminated[last])
    assert terminated.any()
    assert buffer.truncated[last].any()
    assert n_step == 1 or set(steps) == {1, 2, 3}
    with separate_rng(1), policy_within_training_step(algorithm.policy):
        value = reference_value(algorithm, buffer[indices].obs)
        next_value = reference_value(algorithm, buffer[last].obs_next)
    term = 0.7 * (torch.as_tensor(GAMMA**steps) * ~terminated * next_value - value)
    torch.testing.assert_close(shaped, plain + term.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_auto_halves_the_reward_before_values_have_moved(name: str) -> None:
    buffer = filled_buffer(name)
    _, indices = buffer.sample(0)
    shaped = returns(bsrs.tianshou.shape(make(name), eta="auto"), buffer, indices)
    plain = returns(make(name), buffer, indices)
    torch.testing.assert_close(shaped, plain - torch.as_tensor(buffer.rew[indices]).float() / 2, atol=5e-3, rtol=2e-3)


@pytest.mark.parametrize("n_step", [1, 3])
def test_auto_mixes_the_bootstrap_of_a_return(n_step: int) -> None:
    buffer = filled_buffer("DQN")
    buffer._meta.rew[:] = np.random.default_rng(0).normal(size=len(buffer._meta.rew))
    _, indices = buffer.sample(0)
    plain = returns(make("DQN", n_step), buffer, indices)
    algorithm = bsrs.tianshou.shape(make("DQN", n_step), eta="auto")
    shaper = algorithm.shaping.batches
    state = shaper.state()
    state["scale"]["memory"]["b"] = 0.5
    shaper.load_state(state)
    shaped = returns(algorithm, buffer, indices)
    last, steps = (np.array(column) for column in zip(*(follow(buffer, i, n_step) for i in indices), strict=True))
    rewards = torch.as_tensor(
        [
            sum(GAMMA**k * buffer.rew[j] for k, j in enumerate(stretch(buffer, i, n)))
            for i, n in zip(indices, steps, strict=True)
        ]
    )
    value, next_value = (reference_value(algorithm, obs) for obs in (buffer[indices].obs, buffer[last].obs_next))
    alive = torch.as_tensor(GAMMA**steps * ~buffer.terminated[last])
    expected = auto_target(0.5, plain, rewards, value, alive * next_value)
    torch.testing.assert_close(shaped, expected.float(), atol=1e-5, rtol=0)


def stretch(buffer: Any, index: int, length: int) -> list[int]:
    """The indices of an n-step return."""
    indices = [int(index)]
    for _ in range(length - 1):
        indices.append(int(buffer.next(indices[-1])))
    return indices


def train(algorithm: Any, buffer: Any, updates: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (what Tianshou draws from)
    with policy_within_training_step(algorithm.policy):
        for _ in range(updates):
            algorithm.stats = algorithm.update(buffer, 64)
    return [p.detach().clone() for p in algorithm.parameters()]


@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_eta_zero_leaves_training_unchanged(name: str) -> None:
    """At 1e-30 everything is computed and nothing is added: the library's random numbers stay the same too."""
    plain = train(make(name), filled_buffer(name))
    for eta in (0.0, 1e-30):
        shaped = train(bsrs.tianshou.shape(make(name), eta=eta), filled_buffer(name))
        assert all(torch.equal(a, b) for a, b in zip(plain, shaped, strict=True))
    other = train(bsrs.tianshou.shape(make(name), eta=1.0), filled_buffer(name))
    assert not all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_saved_state_continues_with_the_same_eta() -> None:
    buffer = filled_buffer("DQN")
    algorithm = bsrs.tianshou.shape(make("DQN"), eta="auto")
    train(algorithm, buffer, updates=60)
    file = io.BytesIO()
    torch.save(algorithm.state_dict(), file)
    file.seek(0)
    again = bsrs.tianshou.shape(make("DQN", seed=5), eta="auto")
    again.load_state_dict(torch.load(file, weights_only=True))
    stats = [train(one, filled_buffer("DQN"), updates=1) and one.stats for one in (algorithm, again)]
    assert stats[1].shaping_eta == stats[0].shaping_eta > 0
    assert again.shaping.batches.updates == algorithm.shaping.batches.updates == 61


def test_a_shaped_algorithm_is_copied_and_pickled_whole() -> None:
    algorithm = bsrs.tianshou.shape(make("DQN"), eta=0.7)
    for again in (copy.deepcopy(algorithm), pickle.loads(pickle.dumps(algorithm))):
        assert again.shaping._parent[0] is again
        both = [
            returns(one, buffer, buffer.sample(0)[1]) for one in (algorithm, again) for buffer in [filled_buffer("DQN")]
        ]
        assert torch.equal(*both)


class GoalNetwork(torch.nn.Module):
    """Q of observations that hold a goal."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> Any:
        return self.net(torch.as_tensor(np.concatenate([obs.observation, obs.desired_goal], axis=1))), state


@pytest.mark.parametrize("n_step", [1, 3])
def test_hindsight_goals_are_shaped_at_the_relabelled_observations(n_step: int) -> None:
    rng = np.random.default_rng(0)
    np.random.seed(0)  # noqa: NPY002 (what Tianshou draws from)
    buffer = HERReplayBuffer(200, compute_reward_fn=lambda a, g: -np.abs(a - g).sum(-1), horizon=10)
    goals = rng.normal(size=(20, 1)).astype(np.float32)
    for step in range(200):
        obs, obs_next = (
            Batch(
                observation=rng.normal(size=3).astype(np.float32),
                achieved_goal=rng.normal(size=1).astype(np.float32),
                desired_goal=goals[step // 10],
            )
            for _ in range(2)
        )
        ends = {"terminated": step % 20 == 9, "truncated": step % 20 == 19}
        buffer.add(Batch(obs=obs, obs_next=obs_next, act=step % 2, rew=0.0, info={}, **ends))
    indices = buffer.sample_indices(64)
    assert not np.isin(buffer[indices].obs.desired_goal, goals).all()

    def algorithm() -> Any:
        torch.manual_seed(0)
        policy = DiscreteQLearningPolicy(model=GoalNetwork(), action_space=gym.spaces.Discrete(2))
        return DQN(policy=policy, optim=ADAM, target_update_freq=5, gamma=GAMMA, n_step_return_horizon=n_step)

    plain = returns(algorithm(), buffer, indices)
    shaped_algorithm = bsrs.tianshou.shape(algorithm(), eta=0.7)
    shaped = returns(shaped_algorithm, buffer, indices)
    last, steps = (np.array(column) for column in zip(*(follow(buffer, i, n_step) for i in indices), strict=True))
    value = reference_value(shaped_algorithm, buffer[indices].obs)
    next_value = reference_value(shaped_algorithm, buffer[last].obs_next)
    alive = torch.as_tensor(GAMMA**steps * ~buffer.terminated[last])
    torch.testing.assert_close(shaped, plain + 0.7 * (alive * next_value - value).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["DQN", "DDPG", "TD3", "SAC"])
def test_priorities_are_the_shaped_td_error(name: str) -> None:
    """Tianshou's priority is the mean of the critics' errors."""
    buffer, algorithm = filled_buffer(name), bsrs.tianshou.shape(make(name), eta=0.7)
    indices = np.arange(10, 60)
    with policy_within_training_step(algorithm.policy):
        batch = algorithm._preprocess_batch(buffer[indices], buffer, indices)
        shaped = batch.returns.reshape(-1)
        with torch.no_grad():
            if name == "DQN":
                q = [algorithm.policy.model(batch.obs)[0].gather(1, torch.as_tensor(batch.act)[:, None])]
            else:
                critics = [getattr(algorithm, part, None) for part in ("critic", "critic2")]
                q = [critic(batch.obs, batch.act) for critic in critics if critic is not None]
        algorithm._update_with_batch(batch)
    sign = -1 if name == "DQN" else 1
    expected = sum(sign * (each.reshape(-1) - shaped) for each in q) / len(q)
    torch.testing.assert_close(batch.weight.detach().reshape(-1), expected, atol=1e-5, rtol=0)


def test_a_trainer_counts_env_steps_and_logs_eta() -> None:
    algorithm = bsrs.tianshou.shape(make("DQN"), eta=Linear(1.0, 0.0, 100))
    seen: list[dict[str, float]] = []
    update = algorithm._update_with_batch

    def record(batch: Any) -> Any:
        stats = update(batch)
        seen.append(stats.get_loss_stats_dict())
        return stats

    algorithm._update_with_batch = record
    collector = Collector(algorithm, DummyVectorEnv([lambda: gym.make("CartPole-v1")]), VectorReplayBuffer(200, 1))
    params = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=50,
        collection_step_num_env_steps=10,
        update_step_num_gradient_steps_per_sample=0.1,
        batch_size=16,
        test_step_num_episodes=0,
        verbose=False,
        show_progress=False,
    )
    algorithm.run_training(params)
    assert [stats["shaping_eta"] for stats in seen] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
    assert all(stats["shaping_mean"] != 0 for stats in seen)


def test_state_dependent_eta() -> None:
    buffer = filled_buffer("DQN")
    _, indices = buffer.sample(0)
    plain = returns(make("DQN"), buffer, indices)
    algorithm = bsrs.tianshou.shape(make("DQN"), eta=1.0)
    algorithm = bsrs.tianshou.shape(algorithm, eta=PerState(lambda obs: obs[:, 0].abs()))  # again: eta is replaced
    shaped = returns(algorithm, buffer, indices)
    batch = buffer[indices]
    phi, next_phi = (np.abs(obs[:, 0]) * reference_value(algorithm, obs).numpy() for obs in (batch.obs, batch.obs_next))
    expected = plain.numpy() + GAMMA * ~batch.terminated * next_phi - phi
    np.testing.assert_allclose(shaped.numpy(), expected, atol=1e-5)


def test_what_cannot_be_shaped_is_refused() -> None:
    with pytest.raises(BadInput, match="expected one of DDPG, DQN, SAC, TD3"):
        bsrs.tianshou.shape(C51)
    policy = make("DQN").policy
    with pytest.raises(BadInput, match="needs a target network"):
        bsrs.tianshou.shape(DQN(policy=policy, optim=ADAM, target_update_freq=0), eta="auto")


def test_cartpole_learns_by_the_docs_code_and_reports_raw_returns() -> None:
    np.random.seed(0)  # noqa: NPY002 (what Tianshou draws from)
    torch.manual_seed(0)
    score = run_page_code("Tianshou", steps="2_000")["result"].best_reward
    assert 50 < score <= 500  # a random policy scores 22; returns are sums of the env's rewards, all 1
