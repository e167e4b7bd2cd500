from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bsrs
from bsrs.errors import BadInput
from bsrs.shaping import Constant, Cosine, Linear, PerState, Piecewise, RandomDynamic, Shaping, Static, as_scale

REWARD, VALUE, NEXT_VALUE = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]
TERMINATED = [False, True, False]
# eta = 0.5, gamma = 0.9, by hand: 1 + 0.5 (6.3 - 4), 2 + 0.5 (0 - 5), 3 + 0.5 (8.1 - 6)
EXPECTED = [2.15, -0.5, 4.05]


def kinds():
    """What makes an array from a list: floats become float32 where the kind says so, the rest keeps its type."""
    import jax.numpy

    def float32(numbers):
        array = np.array(numbers)
        return array.astype(np.float32) if array.dtype == np.float64 else array

    return {"numpy": np.array, "numpy float32": float32, "torch": torch.tensor, "jax": jax.numpy.array}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in kinds().items()])
class TestArrays:
    def test_by_hand(self, make):
        shaped = bsrs.shaped_reward(
            make(REWARD), make(VALUE), make(NEXT_VALUE), eta=0.5, gamma=0.9, terminated=make(TERMINATED)
        )
        assert type(shaped) is type(make(REWARD))
        assert shaped.dtype == make(REWARD).dtype  # a float32 batch stays float32
        np.testing.assert_allclose(np.asarray(shaped), EXPECTED, rtol=1e-6)

    def test_termination_as_numbers(self, make):
        flags = make([0.0, 1.0, 0.0])
        shaped = bsrs.shaped_reward(make(REWARD), make(VALUE), make(NEXT_VALUE), eta=0.5, gamma=0.9, terminated=flags)
        np.testing.assert_allclose(np.asarray(shaped), EXPECTED, rtol=1e-6)

    def test_inputs_stay_as_they_were(self, make):
        arrays = [make(REWARD), make(VALUE), make(NEXT_VALUE), make(TERMINATED)]
        bsrs.shaped_reward(*arrays[:3], eta=0.5, gamma=0.9, terminated=arrays[3])
        for array, original in zip(arrays, (REWARD, VALUE, NEXT_VALUE, TERMINATED), strict=True):
            np.testing.assert_array_equal(np.asarray(array), np.asarray(make(original)))

    def test_one_eta_per_member(self, make):
        two = [make([row, row]) for row in (REWARD, VALUE, NEXT_VALUE)]
        shaped = np.asarray(bsrs.shaped_reward(*two, eta=make([[0.0], [0.5]]), gamma=0.9))
        np.testing.assert_allclose(shaped[0], REWARD)
        np.testing.assert_allclose(shaped[1], [2.15, 3.1, 4.05], rtol=1e-6)

    def test_potentials_by_state(self, make):
        state, table = make([2, 0, 1]), [10.0, 20.0, 30.0]
        np.testing.assert_allclose(np.asarray(Static(table)(state, make(VALUE), 0)), [30, 10, 20])
        noise = RandomDynamic(seed=1, n_states=3)(state, make(VALUE), 0)
        assert type(noise) is type(make(VALUE))
        assert noise.dtype == make(VALUE).dtype


def test_under_jit():
    import jax

    shaping = Shaping(0.5, Static([10.0, 20.0, 30.0]))
    jitted = jax.jit(lambda r, v, s: shaping(r, v, v, gamma=0.9, state=s, next_state=s))
    shaped = jitted(np.zeros(2, np.float32), np.zeros(2, np.float32), np.array([0, 2]))
    np.testing.assert_allclose(shaped, [0.5 * (9 - 10), 0.5 * (27 - 30)], rtol=1e-6)


def test_python_floats():
    assert bsrs.shaped_reward(1.0, 4.0, 7.0, eta=0.5, gamma=0.9) == pytest.approx(2.15)
    assert bsrs.shaped_reward(1.0, 4.0, 7.0, eta=0.5, gamma=0.9, terminated=True) == -1.0
    assert bsrs.shaped_reward(1.0, 4.0, 7.0, eta=0.5, gamma=0.9, terminated=False) == pytest.approx(2.15)


def test_gradients_flow_through_torch_values():
    value = torch.tensor([1.0], requires_grad=True)
    bsrs.shaped_reward(torch.zeros(1), value, torch.ones(1), eta=2.0, gamma=0.9).sum().backward()
    assert value.grad.item() == -2.0


def test_shapes_that_would_broadcast_by_accident_are_refused():
    with pytest.raises(BadInput, match=r"value \(3, 1\)"):
        bsrs.shaped_reward(np.zeros(3), np.zeros((3, 1)), np.zeros((3, 1)), eta=1.0, gamma=0.9)


@given(st.floats(-10, 10), st.floats(0, 1), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_eta_zero_changes_nothing(reward, gamma, values):
    assert bsrs.shaped_reward(reward, values[0], values[1], eta=0.0, gamma=gamma) == reward


def test_schedules():
    assert [Linear(0.0, 2.0, 10)(step) for step in (0, 5, 10, 99)] == [0.0, 1.0, 2.0, 2.0]
    assert [Cosine(2.0, 0.0, 10)(step) for step in (0, 5, 10, 99)] == pytest.approx([2.0, 1.0, 0.0, 0.0])
    assert Cosine(2.0, 0.0, 10)(1) > Linear(2.0, 0.0, 10)(1)  # slow at first
    assert [Piecewise(((0, 1.0), (5, 0.5)))(step) for step in (0, 4, 5, 99)] == [1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("2", Constant(2.0)),
        ("-0.5", Constant(-0.5)),
        ("linear:0:2:1000", Linear(0.0, 2.0, 1000)),
        ("cosine:2:0:1000", Cosine(2.0, 0.0, 1000)),
        ("piecewise:0=1,500=0.5", Piecewise(((0, 1.0), (500, 0.5)))),
    ],
)
def test_scales_as_text(text, scale):
    assert as_scale(text) == scale


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fast", "eta 'fast' cannot be read"),
        ("liner:0:1:2", "did you mean linear"),
        ("linear:0:1", "linear:START:END:STEPS"),
        ("nan", "expected a finite number"),
        ("piecewise:5=1", "start at 0"),
    ],
)
def test_bad_scales(text, says):
    with pytest.raises(BadInput, match=says):
        as_scale(text)


def test_state_dependent_scale_from_a_function():
    shaping = Shaping(PerState(lambda state: state / 10))
    shaped = shaping(np.zeros(1), np.ones(1), np.ones(1), gamma=1.0, state=np.array([1.0]), next_state=np.array([5.0]))
    assert shaped == pytest.approx(0.5 - 0.1)
    with pytest.raises(BadInput, match="needs the states"):
        shaping(np.zeros(1), np.ones(1), np.ones(1), gamma=1.0)


def test_manhattan_distance_is_a_static_potential():
    goal = np.array([3, 4])
    towards = Shaping(1.0, Static(lambda cell: -np.abs(cell - goal).sum(axis=-1)))
    cell, nearer = np.array([[0, 0]]), np.array([[0, 1]])
    shaped = towards(np.zeros(1), np.zeros(1), np.zeros(1), gamma=1.0, state=cell, next_state=nearer)
    assert shaped == 1


class TestRandomDynamic:
    def test_redrawn_every_period_and_repeatable(self):
        noise = RandomDynamic(seed=3, period=10, n_states=5)
        states, value = np.arange(5), np.zeros(5)
        assert np.array_equal(noise(states, value, 0), noise(states, value, 9))
        assert not np.array_equal(noise(states, value, 0), noise(states, value, 10))
        assert not np.array_equal(noise(states, value, 0), RandomDynamic(seed=4, n_states=5)(states, value, 0))

    @pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
    def test_a_function_of_observations(self, kind):
        images = np.random.default_rng(0).integers(0, 255, (6, 2, 3, 3)).astype(np.uint8)
        noise = RandomDynamic(seed=0, scale=2.0)(kind(images), kind(np.zeros(6, dtype=np.float32)), 0)
        assert noise.shape == (6,)
        assert np.asarray(noise).dtype == np.float32
        assert np.abs(np.asarray(noise)).max() <= 2.0
        assert len(set(np.asarray(noise).tolist())) == 6


def test_importing_bsrs_is_light():
    """No torch, no numba, no matplotlib: only what `shaped_reward` needs."""
    heavy = ("torch", "numba", "matplotlib", "gymnasium", "scipy")
    code = f"import sys, bsrs; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_cosine_is_half_a_cosine():
    assert Cosine(1.0, 0.0, 4)(1) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
