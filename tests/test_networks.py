"""Stacked perceptrons against ordinary ones, and Adam against PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bsrs.agents.adam import Adam
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
    torch.testing.assert_close(mlp(x, stack.every(2)), torch.stack([ordinary(stack, i)(x[i // 2]) for i in (0, 2)]))


def test_descend_is_pytorchs_adam() -> None:
    ours, theirs = (nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    adam, reference = Adam([ours], 1e-2), torch.optim.Adam([theirs], 1e-2)
    for seed in range(5):
        gradient = torch.randn(3, 2, generator=generators(seed)[0])
        adam.descend([gradient])
        theirs.grad = gradient
        reference.step()
        torch.testing.assert_close(ours, theirs)
    for name, memory in reference.state[theirs].items():
        torch.testing.assert_close(adam.state[ours][name], memory, check_device=False)
