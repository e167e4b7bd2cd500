"""The built-in networks, networks of your own by name, and members that are independent of each other."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from bsrs.agents.agent import State
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.networks import Dueling, Members, cnn, fits, mlp, network_name, own_factory, q_network, seeded
from bsrs.agents.off_policy import clip_grad_norm_per_member, polyak_update
from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.envs import EnvSpec
from bsrs.errors import BadInput
from bsrs.run import make_agent
from small_agents import made, scale

CARTPOLE = EnvSpec("CartPole-v1", "gym", (4,), "float32", n_actions=3)


def members(count: int = 3) -> Members:
    return Members([seeded(lambda: mlp(5, 2, (8, 8)), seed, "init") for seed in range(count)])


# ---- members


def test_each_member_sees_its_own_rows_and_gets_its_own_gradient() -> None:
    network, x = members(), torch.randn(3, 7, 5)
    out = network(x)
    out.square().mean(dim=(1, 2)).sum().backward()
    for member, own in zip(network, x, strict=True):
        gradients = [parameter.grad for parameter in member.parameters()]
        expected = torch.autograd.grad(member(own).square().mean(), list(member.parameters()))
        for gradient, one in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, one)
    torch.testing.assert_close(out[1], network.each[1](x[1]))


def test_a_members_weights_do_not_depend_on_its_company() -> None:
    alone, together = (DQNAgent([DQNConfig(env="CartPole-v1", seed=seed) for seed in seeds], CARTPOLE)
                       for seeds in ([5], [4, 5, 6]))  # fmt: skip
    one, three = alone.policy(0).tensors, [together.policy(member).tensors for member in range(3)]
    assert all(torch.equal(one[name], three[1][name]) for name in one)
    assert not all(torch.equal(three[0][name], three[1][name]) for name in one)


def test_long_gradients_are_scaled_for_each_member() -> None:
    network = members(2)
    (network(torch.ones(2, 4, 5)) * torch.tensor([100.0, 1e-3])[:, None, None]).sum().backward()
    small = [parameter.grad.clone() for parameter in network.each[1].parameters()]  # type: ignore[union-attr]
    clip_grad_norm_per_member(network, 0.5)
    norms = [torch.cat([p.grad.flatten() for p in member.parameters()]).norm().item() for member in network]  # type: ignore[union-attr]
    assert norms[0] == pytest.approx(0.5, rel=1e-4)
    assert norms[1] < 0.5
    assert all(torch.equal(p.grad, g) for p, g in zip(network.each[1].parameters(), small, strict=True))  # type: ignore[arg-type]


def test_polyak_moves_the_target_and_copies_buffers() -> None:
    online, target = (Members([nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))]) for _ in range(2))
    online(torch.randn(1, 16, 3))  # moves the running mean
    before = [parameter.clone() for parameter in target.parameters()]
    polyak_update(online, target, tau=0.25)
    for old, new, goal in zip(before, target.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * goal)
    torch.testing.assert_close(target.each[0][1].running_mean, online.each[0][1].running_mean)  # type: ignore[index]


# ---- the built-in networks


def test_weights_start_as_those_of_linear_layers() -> None:
    network = seeded(lambda: mlp(100, 1, (400,)), 0, "init")
    for layer, fan_in in zip((network[0], network[2]), (100, 400), strict=True):  # type: ignore[index]
        assert layer.weight.abs().max() <= fan_in**-0.5
        assert layer.weight.std().item() == pytest.approx((3 * fan_in) ** -0.5, rel=0.05)


def test_seeded_networks_leave_pytorchs_stream_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first, again = (seeded(lambda: mlp(3, 2), 7, "init").state_dict() for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_activation_and_layer_norm() -> None:
    network = mlp(4, 2, (8, 6), "tanh", layer_norm=True)
    kinds = [nn.Linear, nn.LayerNorm, nn.Tanh, nn.Linear, nn.LayerNorm, nn.Tanh, nn.Linear]
    assert [type(layer) for layer in network] == kinds
    assert network[4].normalized_shape == (6,)
    agent: Any = make_agent([TD3Config(env="Pendulum-v1", hidden=(8,), activation="elu", layer_norm=True)])
    for mlp_of in (agent.actor.each[0], agent.critics.each[0].each[1].network):
        assert [type(layer) for layer in mlp_of] == [nn.Linear, nn.LayerNorm, nn.ELU, nn.Linear]


@pytest.mark.parametrize("shape", [(4,), (4, 10, 10)])
def test_duelling_advantages_have_mean_zero(shape: tuple[int, ...]) -> None:
    network = q_network("dueling", shape)(shape, 3)
    assert isinstance(network, Dueling)
    x = torch.rand(5, *shape)
    value = network.network(x)[:, 0]
    torch.testing.assert_close(network(x).mean(dim=-1), value)


@pytest.mark.parametrize(
    ("shape", "name", "channels"),
    [((4, 84, 84), "", 32), ((4, 84, 84), "small", 16), ((3, 24, 24), "", 16), ((4, 10, 10), "", 16)],
)
def test_the_convolution_suits_the_image(shape: tuple[int, int, int], name: str, channels: int) -> None:
    network = q_network(name, shape)(shape, 6)
    assert network[0].out_channels == channels  # type: ignore[index]
    assert network(torch.rand(2, *shape)).shape == (2, 6)
    assert fits((4, 20, 20), "small")
    assert not fits((4, 10, 10), "nature")


def test_minatars_convolution_flattens_with_the_channels_last() -> None:
    """As its first version stored the weights, so that models from then can be loaded."""
    network, images = cnn((4, 10, 10), 3, "minatar"), torch.rand(2, 4, 10, 10)
    features = network[1](network[0](images))
    torch.testing.assert_close(network[2](features), features.permute(0, 2, 3, 1).reshape(2, -1))


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("natur", (4, 84, 84), "'natur' does not take images; expected nature, small, minatar, dueling"),
        ("nature", (4,), "'nature' does not take flat observations; expected mlp, dueling"),
    ],
)
def test_a_network_that_does_not_fit_is_named(name: str, shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        q_network(name, shape)


# ---- networks of your own


def tiny(obs_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
    return nn.Linear(obs_shape[0], n_outputs)


@dataclass(frozen=True)
class Sized:
    size: int = 4

    def __call__(self, obs_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        return mlp(obs_shape[0], n_outputs, (self.size,))


def not_a_network(obs_shape: tuple[int, ...], n_outputs: int) -> Any:
    return "a network"


def test_a_factory_is_named_where_it_can_be_imported_again() -> None:
    assert network_name(tiny) == "test_networks:tiny"
    assert own_factory("test_networks:tiny") is tiny
    assert network_name(Sized(8)) == "test_networks:Sized(size=8)"
    assert own_factory("test_networks:Sized(size=8)") == Sized(8)
    first, second = (lambda shape, outputs, bias=b: nn.Linear(shape[0], outputs, bias) for b in (True, False))
    names = network_name(first), network_name(second)
    assert names[0].startswith("python/")
    assert names[0] != names[1]
    assert network_name(first) == names[0]
    assert own_factory(names[1]) is second
    parts = [functools.partial(mlp, hidden=hidden) for hidden in ((8,), (4,))]
    assert len({network_name(part) for part in parts}) == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_networks:nothing", "has no 'nothing' for the network"),
        ("no_such_module:tiny", "no module 'no_such_module'"),
        ("test_networks:CARTPOLE", "CARTPOLE is a EnvSpec; expected a function"),
        ("python/gone", "was a Python object, which is not saved"),
        ("test_networks:not_a_network", "returned a str; expected an nn.Module"),
    ],
)
def test_a_factory_that_cannot_be_used_is_named(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make_agent([DQNConfig(env="CartPole-v1", network=name)])


def test_something_else_is_no_factory() -> None:
    with pytest.raises(BadInput, match="the network is a int; expected a function"):
        network_name(3)  # type: ignore[arg-type]


def test_saved_weights_of_another_network_are_refused_before_any_is_loaded() -> None:
    agent, other = (DQNAgent([DQNConfig(env="CartPole-v1", hidden=(8, size))], CARTPOLE) for size in (8, 4))
    before = {name: tensor.clone() for name, tensor in agent.policy(0).tensors.items()}
    scale(other.online, 2.0)
    with pytest.raises(ValueError, match=r"has shape \(4, 8\); expected \(8, 8\)"):
        agent.load_policy(0, other.policy(0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.policy(0).tensors.items())


@pytest.mark.parametrize("kind", ["dqn", "td3"])
def test_models_of_version_0_1_load(kind: str) -> None:
    """They name a layer's weights `weight_1`, (in, out), and stack those of several critics."""
    agent, other = made(kind, {"seed": 1}), made(kind, {"seed": 2})
    old: dict[str, torch.Tensor] = {}
    stacked: dict[str, list[torch.Tensor]] = {}
    for name, tensor in agent.policy(0).tensors.items():
        layer, what = re.findall(r"(\d+)\.(weight|bias)$", name)[0]
        own = tensor.T if what == "weight" else tensor[None]
        key = f"{what}_{int(layer) // 2}"
        if name.startswith("critics/"):
            stacked.setdefault(f"critics/{key}", []).append(own)
        else:
            old[key] = own
    old |= {name: torch.stack(each) for name, each in stacked.items()}
    other.load_policy(0, State(old))
    for name, tensor in agent.policy(0).tensors.items():
        assert torch.equal(other.policy(0).tensors[name], tensor), name
