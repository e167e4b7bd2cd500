"""skrl: rewards equal the formula from the agent's own networks, eta = 0 changes nothing, state is saved."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

pytest.importorskip("skrl")

from skrl.agents.torch.cem import CEM
from skrl.agents.torch.ddpg import DDPG
from skrl.agents.torch.ddqn import DDQN
from skrl.agents.torch.dqn import DQN
from skrl.agents.torch.sac import SAC
from skrl.agents.torch.td3 import TD3
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler

import bsrs.skrl
from bsrs import BadInput, Linear, PerState
from bsrs.adapting import separate_rng
from support import run_page_code

pytestmark = pytest.mark.filterwarnings("ignore")  # skrl's warnings about Gymnasium and PyTorch

GAMMA, SIZE = 0.97, 64
CLASSES = {"DQN": DQN, "DDQN": DDQN, "DDPG": DDPG, "TD3": TD3, "SAC": SAC}
MODELS = {
    "DQN": ["q_network", "target_q_network"],
    "DDQN": ["q_network", "target_q_network"],
    "DDPG": ["policy", "target_policy", "critic", "target_critic"],
    "TD3": ["policy", "target_policy", "critic_1", "critic_2", "target_critic_1", "target_critic_2"],
    "SAC": ["policy", "critic_1", "critic_2", "target_critic_1", "target_critic_2"],
}


def network(inputs: int, outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(inputs, 32), torch.nn.ReLU(), torch.nn.Linear(32, outputs))


class Network(DeterministicMixin, Model):
    """Q(s, .), pi(s) or Q(s, a)."""

    def __init__(self, env: Any, name: str) -> None:
        Model.__init__(self, observation_space=env.single_observation_space, action_space=env.single_action_space)
        DeterministicMixin.__init__(self)
        self.is_critic = "critic" in name
        self.net = network(self.num_observations + self.is_critic, 1 if self.is_critic else self.num_actions)

    def compute(self, inputs: Any, role: str) -> Any:
        obs = inputs["observations"]
        return self.net(torch.cat([obs, inputs["taken_actions"]], dim=1) if self.is_critic else obs), {}


class Gaussian(GaussianMixin, Model):
    def __init__(self, env: Any) -> None:
        Model.__init__(self, observation_space=env.single_observation_space, action_space=env.single_action_space)
        GaussianMixin.__init__(self)
        self.net = network(self.num_observations, self.num_actions)
        self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs: Any, role: str) -> Any:
        return self.net(inputs["observations"]), {"log_std": self.log_std}


def make_env(name: str) -> Any:
    return gym.make_vec("CartPole-v1" if "DQN" in name else "Pendulum-v1", num_envs=2, max_episode_steps=15)


def make(name: str, seed: int = 0, **cfg: Any) -> Any:
    """An agent with normalised observations and a memory of two envs, with terminal and truncated transitions."""
    env = make_env(name)
    torch.manual_seed(seed)
    models = {part: Gaussian(env) if (name, part) == ("SAC", "policy") else Network(env, part) for part in MODELS[name]}
    memory = RandomMemory(memory_size=100, num_envs=2)
    scaler = {"size": env.single_observation_space}
    options = {
        "batch_size": SIZE,
        "discount_factor": GAMMA,
        "polyak": 0.1,
        "observation_preprocessor": RunningStandardScaler,
        "observation_preprocessor_kwargs": scaler,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }
    spaces = {"observation_space": env.single_observation_space, "action_space": env.single_action_space}
    agent = CLASSES[name](models=models, memory=memory, cfg={**options, **cfg}, **spaces)
    agent.init()
    for part, model in models.items():
        for parameter in model.parameters() if part.startswith("target") else ():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    fill(agent, env, name)
    return agent


def fill(agent: Any, env: Any, name: str) -> None:
    agent.enable_training_mode()
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    for step in range(100):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        if name not in ("DQN", "DDQN"):  # Pendulum never terminates by itself
            terminated = truncated & (step % 30 < 15)
        as_column = {"rewards": reward, "terminated": terminated, "truncated": truncated, "actions": action}
        columns = {key: torch.as_tensor(value).reshape(2, -1) for key, value in as_column.items()}
        columns["rewards"] = columns["rewards"].float()
        states = {"observations": torch.as_tensor(obs), "next_observations": torch.as_tensor(next_obs)}
        agent.record_transition(
            **columns, **states, states=None, next_states=None, infos={}, timestep=step, timesteps=1000
        )
        obs = next_obs


def sampled(agent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """One batch as the agent's memory has it, and as an update gets it."""
    names = agent._tensors_names
    both = []
    for sample in (agent.memory.sample, partial(agent.shaping.sample, agent.memory)):
        torch.manual_seed(3)
        both.append(dict(zip(names, sample(names, batch_size=SIZE)[0], strict=True)))
    return both[0], both[1]


def reference_value(name: str, agent: Any, obs: torch.Tensor, which: str = "") -> torch.Tensor:
    """V(s), (B, 1), written out with the agent's networks."""
    obs = agent._observation_preprocessor(obs)

    def q(critic: str, action: torch.Tensor) -> torch.Tensor:
        return getattr(agent, which + critic).net(torch.cat([obs, action], dim=1))

    with torch.no_grad():
        if name == "DQN" or (name == "DDQN" and not which):
            return getattr(agent, f"{which}q_network").net(obs).amax(dim=1, keepdim=True)
        if name == "DDQN":
            return agent.target_q_network.net(obs).gather(1, agent.q_network.net(obs).argmax(1, keepdim=True))
        if name == "DDPG":
            return q("critic", getattr(agent, f"{which}policy").net(obs))
        if name == "TD3":
            action = getattr(agent, f"{which}policy").net(obs)
            return torch.minimum(q("critic_1", action), q("critic_2", action))
        dist = torch.distributions.Normal(agent.policy.net(obs), agent.policy.log_std.exp())
        action = dist.rsample()
        log_prob = dist.log_prob(action).sum(1, keepdim=True)
        return torch.minimum(q("critic_1", action), q("critic_2", action)) - agent._entropy_coefficient * log_prob


@pytest.mark.parametrize("name", CLASSES)
def test_rewards_equal_the_formula(name: str) -> None:
    agent = bsrs.skrl.shape(make(name), eta=0.7)
    plain, shaped = sampled(agent)
    with separate_rng(1):
        value = reference_value(name, agent, plain["observations"])
        next_value = reference_value(name, agent, plain["next_observations"])
    terminated = plain["terminated"]
    assert terminated.any()
    assert not terminated.all()
    term = 0.7 * (GAMMA * ~terminated * next_value - value)
    torch.testing.assert_close(shaped["rewards"], plain["rewards"] + term, atol=1e-5, rtol=0)
    assert all(torch.equal(shaped[key], plain[key]) for key in ("observations", "actions", "terminated"))


@pytest.mark.parametrize("name", CLASSES)
def test_auto_halves_the_reward_before_values_have_moved(name: str) -> None:
    plain, shaped = sampled(bsrs.skrl.shape(make(name), eta="auto"))
    torch.testing.assert_close(shaped["rewards"], plain["rewards"] / 2, atol=5e-3, rtol=2e-3)


def train(agent: Any, updates: int = 5, first: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(1)
    for step in range(first, first + updates):
        agent.update(timestep=step, timesteps=1000)
    return [parameter.detach().clone() for model in agent.models.values() for parameter in model.parameters()]


@pytest.mark.parametrize("name", CLASSES)
def test_eta_zero_leaves_training_unchanged(name: str) -> None:
    """At 1e-30 everything is computed and nothing is added: the library's random numbers stay the same too."""
    plain = train(make(name))
    for eta in (0.0, 1e-30):
        assert all(torch.equal(a, b) for a, b in zip(plain, train(bsrs.skrl.shape(make(name), eta=eta)), strict=True))
    other = train(bsrs.skrl.shape(make(name), eta=1.0))
    assert not all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_the_memory_keeps_the_envs_rewards() -> None:
    agent = bsrs.skrl.shape(make("DQN"), eta=1.0)
    memory, rewards = agent.memory, agent.memory.get_tensor_by_name("rewards").clone()
    train(agent)
    assert agent.memory is memory
    assert torch.equal(memory.get_tensor_by_name("rewards"), rewards)


def test_saved_state_continues_with_the_same_eta(tmp_path: Path) -> None:
    agent = bsrs.skrl.shape(make("DQN", target_update_interval=1, learning_rate=1e-2), eta="auto")
    train(agent, updates=60)
    assert agent.tracking_data["Shaping / eta"][-1] > 0
    agent.save(str(tmp_path / "agent.pt"))
    again = bsrs.skrl.shape(make("DQN", seed=5, target_update_interval=1, learning_rate=1e-2), eta="auto")
    again.load(str(tmp_path / "agent.pt"))
    train(agent, updates=1, first=60)
    train(again, updates=1)
    assert again.tracking_data["Shaping / eta"][-1] == agent.tracking_data["Shaping / eta"][-1]
    assert again.shaping.batches.updates == agent.shaping.batches.updates == 61
    assert again.shaping.batches.step == agent.shaping.batches.step == 60


def test_schedules_and_state_dependent_eta() -> None:
    agent = bsrs.skrl.shape(make("DQN"), eta=Linear(1.0, 0.0, 10))
    train(agent, updates=3)
    assert agent.tracking_data["Shaping / eta"] == pytest.approx([1.0, 0.9, 0.8])
    agent = bsrs.skrl.shape(make("DQN"), eta=1.0)
    agent = bsrs.skrl.shape(agent, eta=PerState(lambda obs: obs[:, 0].abs()))  # again: eta is replaced
    plain, shaped = sampled(agent)
    scaled = [agent._observation_preprocessor(plain[key]) for key in ("observations", "next_observations")]
    phi, next_phi = (
        each[:, :1].abs() * reference_value("DQN", agent, plain[key])
        for each, key in zip(scaled, ("observations", "next_observations"), strict=True)
    )
    expected = plain["rewards"] + GAMMA * ~plain["terminated"] * next_phi - phi
    torch.testing.assert_close(shaped["rewards"], expected, atol=1e-5, rtol=0)


def test_what_cannot_be_shaped_is_refused() -> None:
    with pytest.raises(BadInput, match="expected one of DDPG, DDQN, DQN, SAC, TD3"):
        bsrs.skrl.shape(CEM)
    agent = make("DQN")
    agent.memory = None
    with pytest.raises(BadInput, match="without a memory"):
        bsrs.skrl.shape(agent)


def test_pendulum_learns_by_the_docs_code_and_reports_raw_returns(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # skrl writes a folder of logs
    finished: list[float] = []

    def record(self: Any, *, timestep: int, timesteps: int, write: Any = bsrs.skrl.Agent.write_tracking_data) -> None:
        finished.extend(episode_return for (episode_return,) in self._track_rewards)
        write(self, timestep=timestep, timesteps=timesteps)

    monkeypatch.setattr(bsrs.skrl.Agent, "write_tracking_data", record)
    torch.manual_seed(0)
    run_page_code("skrl", steps="3_000")
    assert -900 < sum(finished[-4:]) / 4 <= 0  # a random policy scores about -1200
