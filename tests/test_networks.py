"""Stacked perceptrons against ordinary ones, and Adam against PyTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import nn

from bsrs.agents.adam import Adam
from bsrs.agents.nature import MINATAR, PatchConv, StackedConv
from bsrs.agents.networks import StackedMLP
from bsrs.agents.stack import Stack
from bsrs.agents.tapes import CompiledTape, RecordedTape, Tape


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def ordinary(stack: StackedMLP, member: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for linear in stack.to_linears(member):
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def gradients_of(network: StackedMLP | PatchConv, tape: Tape, grad_output: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of all networks' parameters: what a first step of Adam remembers is a tenth of the gradient."""
    stack = Stack.trained(copy.deepcopy(network), [0.0] * network.networks)
    stack.adam.learn(tape, grad_output)
    numbers = stack.adam.state[stack.parameters[0]]["exp_avg"] * 10
    return {name: network.weights.view(name, numbers) for name in network.weights.names}


@pytest.fixture(params=[CompiledTape, RecordedTape])
def kind_of_tape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Tape]:
    """Both ways to differentiate: compiled, and recorded as on other devices."""
    if request.param is RecordedTape:
        monkeypatch.setattr("bsrs.agents.private_torch.sgemm", lambda: 0)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


LARGE = (300, 256)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("hidden", "outputs"), [((16, 8), 1), ((16, 8), 4), ((16, 8), 20), (LARGE, 1), (LARGE, 3)])
@pytest.mark.parametrize("joined", [False, True])
@torch.no_grad()
def test_values_and_gradients_are_those_of_ordinary_networks(
    members: int, hidden: tuple[int, int], outputs: int, joined: bool, kind_of_tape: type[Tape]
) -> None:
    """In 32 bits, against `torch.nn` layers and autograd; also where the pass has other rows behind these."""
    stack = StackedMLP((5, *hidden, outputs), generators(*range(members)))
    rows = 7 if hidden != LARGE else 256  # so many that a layer and its ReLU are one operation
    x = torch.randn(members, rows, 5, generator=generators(9)[0])
    grad_output = torch.randn(members, rows, outputs, generator=generators(8)[0]) / rows  # as a mean makes it
    tape = stack.record(x, x + 1 if joined else None)
    assert (tape.more is not None) == joined
    if tape.more is not None:
        torch.testing.assert_close(tape.more, stack(x + 1))
    assert type(tape) is kind_of_tape
    grad_input, gradients = tape.input_gradient(grad_output), list(gradients_of(stack, tape, grad_output).values())
    for member in range(members):
        network = ordinary(stack, member)
        with torch.enable_grad():
            x_one = x[member].clone().requires_grad_()
            y_one = network(x_one)
        expected_input, *expected = torch.autograd.grad(y_one, [x_one, *network.parameters()], grad_output[member])
        torch.testing.assert_close(tape.output[member], y_one, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(grad_input[member], expected_input, atol=1e-6, rtol=0)
        for i, of_linear in enumerate(expected):
            ours = gradients[i][member].mT if i % 2 == 0 else gradients[i][member, 0]
            torch.testing.assert_close(ours, of_linear, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("members", "channels"), [(1, 4), (3, 4), (3, 10)])
@torch.no_grad()
def test_patches_and_products_are_the_ordinary_convolution(members: int, channels: int, double_precision: None) -> None:
    """Values and gradients, in 64 bits, against `torch.nn` layers with the same start and autograd."""
    assert_ordinary_convolution(members, (channels, 10, 10), atol=1e-12)


@torch.no_grad()
def test_gradients_in_32_bits_are_those_of_autograd(kind_of_tape: type[Tape]) -> None:
    assert_ordinary_convolution(2, (6, 10, 10), atol=1e-6)


def assert_ordinary_convolution(members: int, obs_shape: tuple[int, int, int], atol: float) -> None:
    patched = PatchConv(MINATAR, obs_shape, 6, generators(*range(members)))
    ordinary_ones = StackedConv(MINATAR, obs_shape, 6, generators(*range(members)))
    obs = torch.randint(0, 2, (members, 32, *obs_shape), generator=generators(9)[0]).to(torch.get_default_dtype())
    grad_output = torch.randn(members, 32, 6, generator=generators(8)[0]) / 32
    expected = ordinary_ones.record(obs)
    tape = patched.record(patched.prepare(obs))
    gradients = gradients_of(patched, tape, grad_output)
    torch.testing.assert_close(tape.output, expected.output, atol=atol, rtol=0)
    torch.testing.assert_close(patched(obs), tape.output)
    flat = iter(expected.gradients(grad_output))
    for member, network in enumerate(ordinary_ones.members):
        mine = {name: next(flat) for name, _ in network.named_parameters()}
        for name, gradient in patched.converted(mine).items():
            torch.testing.assert_close(gradients[name][member], gradient, atol=atol, rtol=0)


@torch.no_grad()
def test_a_convolution_saved_in_the_layout_of_ordinary_layers_is_loaded() -> None:
    """Runs saved before there were patches: their weights and Adam's memory of them."""
    old = Stack.trained(StackedConv(MINATAR, (4, 10, 10), 3, generators(1)), [1e-2])
    new = Stack.trained(PatchConv(MINATAR, (4, 10, 10), 3, generators(2, 3)), [1e-2] * 2)
    obs, grad_output = torch.rand(1, 5, 4, 10, 10), torch.randn(1, 5, 3)
    both = obs.expand(2, -1, -1, -1, -1)
    old.adam.learn(old.network.record(obs), grad_output)
    new.load_weights(1, old.weights(0))
    new.load_adam_state(1, old.adam_state(0))
    torch.testing.assert_close(new.network(both)[1], old.network(obs)[0])
    old.adam.learn(old.network.record(obs), grad_output)
    new.adam.learn(new.network.record(both), grad_output.expand(2, -1, -1))
    torch.testing.assert_close(new.network(both)[1], old.network(obs)[0], atol=1e-5, rtol=0)
    again = Stack(PatchConv(MINATAR, (4, 10, 10), 3, generators(4)), 1)
    again.load_weights(0, new.weights(1))
    torch.testing.assert_close(again.network(obs)[0], new.network(both)[1])


@pytest.mark.parametrize("per_member", [1, 2])
@torch.no_grad()
def test_members_with_rates_of_their_own_learn_as_each_does_alone(per_member: int, kind_of_tape: type[Tape]) -> None:
    rates, x = [1e-2, 1e-2, 1e-3], torch.rand(3, 4, 3)

    def trained(seeds: Sequence[int], rates: Sequence[float], x: torch.Tensor) -> Stack:
        stack = Stack.trained(StackedMLP((3, 4, 1), generators(*seeds)), rates, per_member)
        for _ in range(3):
            tape = stack.network.record(x)
            stack.adam.learn(tape, torch.ones_like(tape.output), max_norm=0.5)
        return stack

    together = trained(range(3 * per_member), rates, x)
    for member, rate in enumerate(rates):
        alone = trained(range(member * per_member, (member + 1) * per_member), [rate], x[member : member + 1])
        for kind in ("weights", "adam_state"):
            mine, expected = (getattr(stack, kind)(p).tensors for stack, p in ((together, member), (alone, 0)))
            assert mine.keys() == expected.keys()
            for name in mine:
                torch.testing.assert_close(mine[name], expected[name], atol=1e-7, rtol=1e-5)


def test_a_members_weights_do_not_depend_on_its_company() -> None:
    alone, together = StackedMLP((3, 8, 2), generators(5)), StackedMLP((3, 8, 2), generators(4, 5, 6))
    one, three = alone.weights.numbers, together.weights.numbers
    assert torch.equal(one[0], three[1])
    assert not torch.equal(three[0], three[1])


def test_weights_start_as_those_of_linear_layers() -> None:
    stack = StackedMLP((100, 400, 1), generators(0))
    for (weight, bias), fan_in in zip(stack.layers, (100, 400), strict=True):
        bound = fan_in**-0.5
        assert weight.abs().max() <= bound
        assert bias.abs().max() <= bound
        assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_weights_go_to_linear_layers_and_back() -> None:
    stack, other = StackedMLP((3, 8, 2), generators(0, 1)), StackedMLP((3, 8, 2), generators(2, 3))
    other.copy_from(0, stack.to_linears(1))
    x = torch.randn(1, 4, 3)
    torch.testing.assert_close(other(x.expand(2, -1, -1))[0], stack(x.expand(2, -1, -1))[1])


def test_every_other_network() -> None:
    stack = StackedMLP((3, 8, 1), generators(0, 1, 2, 3))
    x = torch.randn(2, 4, 3)
    torch.testing.assert_close(
        stack.part(slice(None, None, 2))(x), torch.stack([ordinary(stack, i)(x[i // 2]) for i in (0, 2)])
    )


@pytest.mark.parametrize("max_norm", [math.inf, 0.5])
@pytest.mark.parametrize("outputs", [1, 20])
@torch.no_grad()
def test_learning_is_autograd_with_pytorchs_clipping_and_adam(
    outputs: int, max_norm: float, kind_of_tape: type[Tape]
) -> None:
    """Each network clipped by itself, as `clip_grad_norm_` does it."""
    stack = Stack.trained(StackedMLP((5, 30, 20, outputs), generators(0, 1, 2)), [1e-2] * 3)
    theirs = [ordinary(stack.network, member) for member in range(3)]
    references = [torch.optim.Adam(network.parameters(), 1e-2) for network in theirs]
    for seed in range(5):
        x = torch.randn(3, 16, 5, generator=generators(seed)[0])
        grad_output = torch.randn(3, 16, outputs, generator=generators(seed + 100)[0])
        stack.adam.learn(stack.network.record(x), grad_output, max_norm)
        for network, reference, x_one, grad_one in zip(theirs, references, x, grad_output, strict=True):
            reference.zero_grad()
            with torch.enable_grad():
                network(x_one).backward(grad_one)
            nn.utils.clip_grad_norm_(network.parameters(), max_norm)
            reference.step()
    for member, network in enumerate(theirs):
        linears = zip(stack.network.to_linears(member), network[::2], strict=True)
        for ours, expected in linears:
            torch.testing.assert_close(ours.weight, expected.weight, atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(ours.bias, expected.bias, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("max_norm", [math.inf, 0.5])
def test_descend_is_pytorchs_adam(max_norm: float) -> None:
    """For gradients at hand."""
    ours, theirs = nn.Parameter(torch.ones(3, 2)), [nn.Parameter(torch.ones(2)) for _ in range(3)]
    adam, reference = Adam([ours], [1e-2] * 3), torch.optim.Adam(theirs, 1e-2)
    for seed in range(5):
        gradient = torch.randn(3, 2, generator=generators(seed)[0])
        for row, of_row in zip(theirs, gradient.clone(), strict=True):
            row.grad = of_row
            nn.utils.clip_grad_norm_(row, max_norm)
        reference.step()
        adam.descend([gradient], max_norm)
        torch.testing.assert_close(ours, torch.stack(theirs))
    for i, row in enumerate(theirs):
        for name, memory in reference.state[row].items():
            mine = adam.state[ours][name]
            torch.testing.assert_close(mine[i] if mine.ndim else mine, memory, check_device=False, atol=1e-8, rtol=1e-5)
