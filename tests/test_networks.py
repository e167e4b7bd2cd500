"""Stacked perceptrons against ordinary ones, and Adam against PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bsrs.agents.adam import Adam
from bsrs.agents.members import adam_state, load_adam_state, load_network_state, network_state
from bsrs.agents.nature import MINATAR, PatchConv, StackedConv
from bsrs.agents.networks import StackedMLP, mlp, record


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def ordinary(stack: StackedMLP, member: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for linear in stack.to_linears(member):
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("grad", [False, True])
def test_values_and_gradients_are_those_of_ordinary_networks(members: int, outputs: int, grad: bool) -> None:
    stack = StackedMLP((5, 16, 8, outputs), generators(*range(members)))
    x = torch.randn(members, 7, 5, generator=generators(9)[0])
    grad_output = torch.randn(members, 7, outputs, generator=generators(8)[0])
    x.requires_grad_(grad)
    if grad:
        y = stack(x)
        grad_input, *of_parameters = torch.autograd.grad(y, [x, *stack.parameters()], grad_output)
    else:
        with torch.inference_mode():
            tape = record(x, stack.layers)
            y, grad_input, of_parameters = tape.output, tape.input_gradient(grad_output), tape.gradients(grad_output)
    for member in range(members):
        network = ordinary(stack, member)
        x_one = x.detach()[member].clone().requires_grad_()
        y_one = network(x_one)
        torch.testing.assert_close(y[member], y_one)
        expected_input, *expected = torch.autograd.grad(y_one, [x_one, *network.parameters()], grad_output[member])
        torch.testing.assert_close(grad_input[member], expected_input)
        for i, of_linear in enumerate(expected):
            ours = of_parameters[i][member].mT if i % 2 == 0 else of_parameters[i][member, 0]
            torch.testing.assert_close(ours, of_linear)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("channels", [4, 10])
def test_patches_and_products_are_the_ordinary_convolution(members: int, channels: int) -> None:
    """Values and gradients, in 64 bits, against `torch.nn` layers with the same start and autograd."""
    obs_shape = (channels, 10, 10)
    patched = PatchConv(MINATAR, obs_shape, 6, generators(*range(members))).double()
    ordinary_ones = StackedConv(MINATAR, obs_shape, 6, generators(*range(members))).double()
    obs = torch.randint(0, 2, (members, 7, *obs_shape), generator=generators(9)[0]).double()
    grad_output = torch.randn(members, 7, 6, generator=generators(8)[0], dtype=torch.float64)
    expected = ordinary_ones.record(obs)
    prepared = patched.prepare(obs)
    with torch.inference_mode():
        tape = patched.record(prepared)
        gradients = dict(zip(dict(patched.named_parameters()), tape.gradients(grad_output), strict=True))
    torch.testing.assert_close(tape.output, expected.output, atol=1e-12, rtol=0)
    torch.testing.assert_close(patched(obs), tape.output)
    each = len(list(ordinary_ones.members[0].parameters()))
    flat = expected.gradients(grad_output)
    for member, network in enumerate(ordinary_ones.members):
        mine = dict(zip(dict(network.named_parameters()), flat[member * each :], strict=False))
        for name, gradient in patched.converted(mine).items():
            torch.testing.assert_close(gradients[name][member], gradient, atol=1e-12, rtol=0)


def test_gradients_in_32_bits_are_those_of_autograd() -> None:
    patched = PatchConv(MINATAR, (6, 10, 10), 5, generators(0, 1))
    obs = torch.randint(0, 2, (2, 32, 6, 10, 10), generator=generators(9)[0]).float()
    grad_output = torch.randn(2, 32, 5, generator=generators(8)[0]) / 32  # as the mean over a batch makes it
    expected = torch.autograd.grad(patched(obs), list(patched.parameters()), grad_output)
    with torch.no_grad():
        gradients = patched.record(obs).gradients(grad_output)
    for mine, autograds in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, autograds, atol=1e-6, rtol=0)


@torch.no_grad()
def test_a_convolution_saved_in_the_layout_of_ordinary_layers_is_loaded() -> None:
    """Runs saved before there were patches: their weights and Adam's memory of them."""
    old = StackedConv(MINATAR, (4, 10, 10), 3, generators(1))
    new = PatchConv(MINATAR, (4, 10, 10), 3, generators(2, 3))
    old_adam, new_adam = (Adam(network.parameters(), 1e-2) for network in (old, new))
    obs, grad_output = torch.rand(1, 5, 4, 10, 10), torch.randn(1, 5, 3)
    old_adam.descend(old.record(obs).gradients(grad_output))
    load_network_state(new, 1, network_state(old, 0))
    load_adam_state(new, 1, new_adam, adam_state(old, 0, old_adam))
    both = obs.expand(2, -1, -1, -1, -1)
    torch.testing.assert_close(new(both)[1], old(obs)[0])
    old_adam.descend(old.record(obs).gradients(grad_output))
    new_adam.descend(new.record(both).gradients(grad_output.expand(2, -1, -1)))
    torch.testing.assert_close(new(both)[1], old(obs)[0], atol=1e-5, rtol=0)
    again = PatchConv(MINATAR, (4, 10, 10), 3, generators(4))
    load_network_state(again, 0, network_state(new, 1))
    torch.testing.assert_close(again(obs)[0], new(both)[1])


def test_a_members_weights_do_not_depend_on_its_company() -> None:
    alone, together = StackedMLP((3, 8, 2), generators(5)), StackedMLP((3, 8, 2), generators(4, 5, 6))
    for one, all_ in zip(alone.parameters(), together.parameters(), strict=True):
        assert torch.equal(one[0], all_[1])
        assert not torch.equal(all_[0], all_[1])


def test_weights_start_as_those_of_linear_layers() -> None:
    stack = StackedMLP((100, 400, 1), generators(0))
    for (weight, bias), fan_in in zip(stack.layers, (100, 400), strict=True):
        bound = fan_in**-0.5
        assert weight.abs().max() <= bound
        assert bias.abs().max() <= bound
        assert weight.detach().std() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_weights_go_to_linear_layers_and_back() -> None:
    stack, other = StackedMLP((3, 8, 2), generators(0, 1)), StackedMLP((3, 8, 2), generators(2, 3))
    other.copy_from(0, stack.to_linears(1))
    x = torch.randn(1, 4, 3)
    torch.testing.assert_close(other(x.expand(2, -1, -1))[0], stack(x.expand(2, -1, -1))[1])


def test_every_other_network() -> None:
    stack = StackedMLP((3, 8, 1), generators(0, 1, 2, 3))
    x = torch.randn(2, 4, 3)
    torch.testing.assert_close(
        mlp(x, stack.rows(slice(None, None, 2))), torch.stack([ordinary(stack, i)(x[i // 2]) for i in (0, 2)])
    )


def test_descend_is_pytorchs_adam() -> None:
    ours, theirs = (nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    adam, reference = Adam([ours], [1e-2]), torch.optim.Adam([theirs], 1e-2)
    for seed in range(5):
        gradient = torch.randn(3, 2, generator=generators(seed)[0])
        adam.descend([gradient])
        theirs.grad = gradient
        reference.step()
        torch.testing.assert_close(ours, theirs)
    for name, memory in reference.state[theirs].items():
        torch.testing.assert_close(adam.state[ours][name], memory, check_device=False)
