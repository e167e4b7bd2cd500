"""Every algorithm: a shaped gradient step is a plain one on rewards shaped by hand, and eta = 0 is the plain model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bsrs.sb3 import shape
from sb3_twins import BY_HAND, TORCH, build, feed_by_hand, filled, parameters, sampled, train


@pytest.mark.parametrize("name", TORCH)
def test_one_shaped_gradient_step_equals_a_plain_one_on_rewards_shaped_by_hand(name: str) -> None:
    # By SGD, because Adam's first step hardly depends on the size of the gradient.
    sgd = {"policy_kwargs": {"net_arch": [16, 16], "optimizer_class": torch.optim.SGD}, "learning_rate": 0.1}
    shaped, twin, plain = (filled(name, **sgd) for _ in range(3))
    assert shape(shaped, eta=20.0) is shaped
    feed_by_hand(twin, BY_HAND[name], eta=20.0)
    for model in (shaped, twin, plain):
        train(model)
    for ours, by_hand in zip(parameters(shaped), parameters(twin), strict=True):
        np.testing.assert_allclose(ours, by_hand, rtol=0, atol=1e-6)
    moved = [np.abs(ours - theirs).max() for ours, theirs in zip(parameters(shaped), parameters(plain), strict=True)]
    assert max(moved) > 1e-4  # a hundred times the tolerance


@pytest.mark.parametrize("name", TORCH)
def test_eta_zero_is_the_plain_model_bit_for_bit_over_1000_steps(name: str) -> None:
    plain = build(name).learn(1_000)
    shaped = shape(build(name), eta=0.0).learn(1_000)
    assert shaped._n_updates > 80
    for ours, theirs in zip(parameters(shaped), parameters(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(shaped.replay_buffer.actions, plain.replay_buffer.actions)


@pytest.mark.parametrize("name", TORCH)
def test_reading_v_leaves_modes_statistics_and_random_streams_alone(name: str) -> None:
    model = filled(name)
    model.policy.set_training_mode(True)
    before = _state_of(model)
    plain = sampled(model, 16, seed=5)
    after_plain = torch.random.get_rng_state()
    shape(model, eta=1.5)
    shaped = sampled(model, 16, seed=5)
    assert torch.equal(torch.random.get_rng_state(), after_plain)
    assert _state_of(model) == before
    assert not torch.equal(shaped.rewards, plain.rewards)
    for field in ("observations", "actions", "next_observations", "dones"):
        assert torch.equal(getattr(shaped, field), getattr(plain, field))
    assert not shaped.rewards.requires_grad
    assert shaped.rewards.dtype == torch.float32


def _state_of(model: Any) -> tuple[list[bool], list[list[float]]]:
    modes = [module.training for module in model.policy.modules()]
    return modes, [tensor.flatten().tolist() for tensor in model.policy.state_dict().values()]


@pytest.mark.parametrize("name", ["sb3 DQN", "contrib QRDQN", "sb3 TD3", "sb3 SAC", "contrib TQC"])
def test_v_can_be_read_from_the_target_networks(name: str) -> None:
    """Right after a hard copy both networks agree; once the online one has moved they do not."""
    model = filled(name, learning_rate=0.05)
    _copy_online_to_target(model)
    online, target = (_rewards(model, network) for network in ("online", "target"))
    torch.testing.assert_close(online, target)
    train(model)
    online, target = (_rewards(model, network) for network in ("online", "target"))
    assert (online - target).abs().max() > 1e-4


def _rewards(model: Any, network: str) -> torch.Tensor:
    from bsrs.sb3 import unshape

    shape(model, eta=1.0, network=network)
    rewards = sampled(model, 16, seed=5).rewards
    unshape(model)
    return rewards


def _copy_online_to_target(model: Any) -> None:
    for name, module in list(model.policy.named_children()):
        if name.endswith("_target"):
            module.load_state_dict(getattr(model.policy, name.removesuffix("_target")).state_dict())


def test_two_seeds_draw_different_actions_for_v_and_one_seed_repeats() -> None:
    def rewards(seed: int) -> torch.Tensor:
        return sampled(shape(filled("sb3 SAC"), eta=1.0, seed=seed), 16, seed=5).rewards

    torch.testing.assert_close(rewards(0), rewards(0), rtol=0, atol=0)
    assert not torch.equal(rewards(0), rewards(1))
