"""`eta="auto"` on Stable-Baselines3: the mixed target, what it watches and when, and where it asks for a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from bsrs.auto import Movement
from bsrs.errors import BadInput
from bsrs.sb3 import shape
from bsrs.shaping import ShapeScale
from sb3_twins import BY_HAND, algorithm, build, filled, sampled


@dataclass(frozen=True)
class Fixed(ShapeScale):
    """A share of the online network that does not move."""

    depends_on_state = False
    mixes = True

    part: float
    eta: float = 1.5

    def at(self, memory: Any, step: int, state: Any = None) -> float:
        return self.eta

    def mix(self, memory: Any, step: int) -> tuple[float, float]:
        return self.part, 1.0


def with_another_target(name: str) -> Any:
    """A small model whose target network differs from the online one."""
    model = filled(name)
    target = model.q_net_target if name == "sb3 DQN" else model.quantile_net_target
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.mul_(1.5)
    return model


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0, 1.5])
def test_the_target_is_that_of_the_formula_with_both_networks(share: float) -> None:
    """The TD target that SB3 makes of the samples, against the formula with V(s') mixed by hand."""
    twin = with_another_target("sb3 DQN")
    plain, shaped = sampled(twin, 32), sampled(shape(with_another_target("sb3 DQN"), Fixed(share)), 32)
    with torch.no_grad():
        value, online, target = (
            net(obs).amax(dim=1, keepdim=True)
            for net, obs in (
                (twin.q_net, plain.observations),
                (twin.q_net, plain.next_observations),
                (twin.q_net_target, plain.next_observations),
            )
        )
    learnt = shaped.rewards + (1 - shaped.dones) * shaped.discounts * target  # as in DQN.train
    mixed = share * online + (1 - share) * target
    reward = plain.rewards + 1.5 * (twin.gamma * mixed * (1 - plain.dones) - value)
    torch.testing.assert_close(learnt, reward + (1 - plain.dones) * twin.gamma * target)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_quantiles_are_shifted_by_the_mean_and_not_spread(share: float) -> None:
    twin = with_another_target("contrib QRDQN")
    plain, shaped = sampled(twin, 32), sampled(shape(with_another_target("contrib QRDQN"), Fixed(share)), 32)
    assert shaped.discounts is None
    with torch.no_grad():
        value = twin.quantile_net(plain.observations).mean(dim=1).amax(dim=1, keepdim=True)
        online, target = (
            net(plain.next_observations).mean(dim=1).amax(dim=1, keepdim=True)
            for net in (twin.quantile_net, twin.quantile_net_target)
        )
    mixed = share * online + (1 - share) * target
    expected = plain.rewards + 1.5 * (twin.gamma * mixed * (1 - plain.dones) - value)
    torch.testing.assert_close(shaped.rewards, expected)


def spread(model: Any) -> float:
    with torch.no_grad():
        quantiles = model.quantile_net(sampled(model, 64).observations)
    return float(quantiles.std(dim=1).mean())


def test_the_spread_of_quantiles_does_not_grow_on_a_fixed_buffer() -> None:
    """With the share at 0, as at the start of "auto": larger discounts for every quantile made it grow without end."""
    few = {"net_arch": [32], "n_quantiles": 8}
    model, twin = (filled("contrib QRDQN", gamma=0.98, learning_rate=3e-3, policy_kwargs=few) for _ in range(2))
    shape(model, Fixed(0.0, eta=1.0))
    for each in (model, twin):
        torch.manual_seed(0)
        for _ in range(12):
            each.train(gradient_steps=15, batch_size=32)
            each.quantile_net_target.load_state_dict(each.quantile_net.state_dict())
    assert spread(model) < 2 * spread(twin)


@pytest.mark.parametrize("name", ["sb3 DQN", "contrib QRDQN", "sb3 TD3", "contrib TQC"])
def test_v_of_the_same_observations_is_looked_at_once_in_a_period(name: str) -> None:
    copies = name.endswith("DQN")
    period: dict[str, Any] = {"target_update_interval": 50} if copies else {"tau": 0.05}
    model = shape(build(name, batch_size=64, train_freq=5 if copies else 2, **period), eta="auto")
    model.learn(80 if copies else 120)
    shaper = model.bsrs_shaper
    probes = [part.clone() for part in shaper._watched]
    model.learn(200, reset_num_timesteps=False)
    assert all(torch.equal(*pair) for pair in zip(probes, shaper._watched, strict=False))
    looks = 200 / 50 if copies else 100 / 20
    assert abs(shaper.state()["looks"] - looks) <= 2
    by_hand = BY_HAND.get(name) if copies else None
    if by_hand is not None:
        shaper._next_look = 0.0
        shaper.watch_model(model, probes[0], 64)
        with torch.no_grad():
            expected = by_hand(model, torch.cat(shaper._watched))[:256]
        np.testing.assert_allclose(shaper.state()["scale"]["memory"]["value"], expected, rtol=1e-5)


def as_dict(env: Any) -> Any:
    space = gym.spaces.Dict({"all": env.observation_space})
    return gym.wrappers.TransformObservation(env, lambda obs: {"all": obs}, space)


@pytest.mark.parametrize("kind", ["optimize_memory_usage", "VecNormalize", "dict", "n_steps"])
def test_it_works_with_every_kind_of_buffer(kind: str) -> None:
    env: Any = make_vec_env("CartPole-v1", 2, seed=1, wrapper_class=as_dict if kind == "dict" else None)
    env = VecNormalize(env) if kind == "VecNormalize" else env
    options: dict[str, Any] = {"learning_starts": 60, "target_update_interval": 20, "seed": 1, "device": "cpu"}
    if kind == "optimize_memory_usage":
        options |= {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    if kind == "n_steps":
        options["n_steps"] = 3
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = shape(algorithm("sb3 DQN")(policy, env, buffer_size=150, **options), eta="auto").learn(500)
    memory = model.bsrs_shaper.state()["scale"]["memory"]
    assert model.bsrs_shaper.state()["looks"] > 5
    assert np.isfinite(memory["value"]).all()
    assert memory["square"] > 0


def test_it_is_the_default() -> None:
    assert isinstance(shape(build("sb3 DQN")).bsrs_shaper.scale, Movement)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (lambda: PPO("MlpPolicy", "CartPole-v1", device="cpu"), {}, "PPO has none: choose a number"),
        (lambda: build("contrib CrossQ"), {}, "CrossQ has none: choose a number"),
        (lambda: build("sb3 DQN"), {"network": "target"}, "as by default: choose a number"),
        (lambda: build("sb3 DQN"), {"potential": lambda obs: obs[:, 0]}, "as by default: choose a number"),
        (lambda: SAC("MlpPolicy", "Pendulum-v1", tau=0.0), {}, "tau is 0: choose a number"),
    ],
)
def test_it_asks_for_a_number_where_it_does_not_work(make: Any, arguments: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        shape(make(), **arguments)


def test_a_target_network_that_is_stopped_later_is_not_divided_by() -> None:
    model = shape(build("sb3 SAC"), eta="auto")
    model.tau = 0.0
    model.learn(150)
    assert model.bsrs_shaper.state()["looks"] <= 1
