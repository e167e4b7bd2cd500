"""SBX, the JAX twin of Stable-Baselines3: the same promises as in `test_sb3_step`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from bsrs.errors import BadInput
from bsrs.sb3 import load, shape, value
from sb3_twins import JAX, build, feed_by_hand, filled, parameters, potential_seed, train

# Tiny networks for a few steps: most of the time goes into compiling, which need not be thorough.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
jax = pytest.importorskip("jax", reason="SBX needs JAX")
sbx = pytest.importorskip("sbx", reason="SBX is not installed")


@pytest.fixture(scope="module", autouse=True)
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A shaped model is another class to JAX, with the same program: let it be compiled once for both."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    yield
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def apply(state: Any, *args: Any, **kwargs: Any) -> Any:
    return state.apply_fn(state.params, *args, **kwargs)


def value_by_hand(name: str) -> Any:
    def value(model: Any, obs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.array(BY_HAND[name](model, obs.numpy())))

    return value


def max_q(model: Any, obs: Any) -> Any:
    return apply(model.policy.qf_state, obs).max(axis=1)


def min_q_at_policy(model: Any, obs: Any) -> Any:
    return apply(model.policy.qf_state, obs, apply(model.policy.actor_state, obs)).min(axis=0)[:, 0]


def _draw(model: Any, obs: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    """One action per state, its log probability, and the temperature."""
    key, _ = jax.random.split(jax.random.PRNGKey(potential_seed(model)))
    state = model.policy.actor_state
    policy = state.apply_fn(kwargs.get("variables", state.params), obs)
    action = policy.sample(seed=key)
    temperature = model.ent_coef_state.apply_fn({"params": model.ent_coef_state.params})
    return action, policy.log_prob(action), temperature


def min_q_with_entropy(model: Any, obs: Any) -> Any:
    action, log_prob, alpha = _draw(model, obs)
    return apply(model.policy.qf_state, obs, action).min(axis=0)[:, 0] - alpha * log_prob


def truncated_with_entropy(model: Any, obs: Any) -> Any:
    action, log_prob, alpha = _draw(model, obs)
    critics = [apply(state, obs, action) for state in (model.policy.qf1_state, model.policy.qf2_state)]
    pooled = np.sort(np.concatenate(critics, axis=1), axis=1)  # 2 critics of 25 quantiles, 2 of each dropped
    return pooled[:, :46].mean(axis=1) - alpha * log_prob


def batch_norm_with_entropy(model: Any, obs: Any) -> Any:
    def variables(state: Any) -> dict[str, Any]:
        return {"params": state.params, "batch_stats": state.batch_stats}

    action, log_prob, alpha = _draw(model, obs, variables=variables(model.policy.actor_state))
    critic = model.policy.qf_state
    return critic.apply_fn(variables(critic), obs, action, train=False).min(axis=0)[:, 0] - alpha * log_prob


BY_HAND = {
    "sbx DQN": max_q,
    "sbx TD3": min_q_at_policy,
    "sbx DDPG": min_q_at_policy,
    "sbx SAC": min_q_with_entropy,
    "sbx TQC": truncated_with_entropy,
    "sbx CrossQ": batch_norm_with_entropy,
}


def one_program(name: str) -> dict[str, Any]:
    """An actor update with every critic update: SBX compiles another program for each phase of a delay."""
    return {} if name in ("sbx DQN", "sbx DDPG") else {"policy_delay": 1}


def sgd(name: str) -> dict[str, Any]:
    """By SGD, because Adam's first step hardly depends on the size of the gradient."""
    import optax

    policy_kwargs = {"net_arch": [16, 16], "optimizer_class": optax.sgd}
    return {"policy_kwargs": policy_kwargs, "learning_rate": 0.1, "gamma": 0.5, **one_program(name)}


@pytest.mark.parametrize("name", JAX)
def test_one_shaped_gradient_step_equals_a_plain_one_on_rewards_shaped_by_hand(name: str) -> None:
    shaped, twin, plain = (filled(name, **sgd(name)) for _ in range(3))
    shape(shaped, eta=20.0)
    feed_by_hand(twin, value_by_hand(name), eta=20.0)
    for model in (shaped, twin, plain):
        train(model)
    for ours, by_hand in zip(parameters(shaped), parameters(twin), strict=True):
        np.testing.assert_allclose(ours, by_hand, rtol=0, atol=2e-6)
    moved = [np.abs(ours - theirs).max() for ours, theirs in zip(parameters(shaped), parameters(plain), strict=True)]
    assert max(moved) > 1e-4


@pytest.mark.parametrize("name", JAX)
def test_eta_zero_is_the_plain_model_bit_for_bit_over_1000_steps(name: str) -> None:
    plain = build(name, **sgd(name)).learn(1_000)
    shaped = shape(build(name, **sgd(name)), eta=0.0).learn(1_000)
    for ours, theirs in zip(parameters(shaped), parameters(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_save_load_continue(tmp_path: Any) -> None:
    model = shape(build("sbx DQN"), eta=2.0).learn(100)
    model.save(tmp_path / "model.zip")
    assert type(sbx.DQN.load(tmp_path / "model.zip")) is sbx.DQN
    with pytest.raises(BadInput, match="SB3's format can execute code"):
        load(tmp_path / "model.zip", sbx.DQN)  # SBX pickles functions of JAX
    loaded = load(tmp_path / "model.zip", sbx.DQN, env=model.get_env(), trust=True)
    assert loaded.bsrs_shaper.settings == model.bsrs_shaper.settings
    loaded.learn(100, reset_num_timesteps=False)
    assert loaded.num_timesteps == 200


def test_target_networks_of_sbx() -> None:
    model = shape(build("sbx DQN"), eta=2.0, network="target").learn(100)
    assert model.num_timesteps == 100
    with pytest.raises(BadInput, match="CrossQ has no target network"):
        shape(build("sbx CrossQ"), network="target")


@pytest.mark.parametrize("name", ["sbx DQN", "sbx TQC"])
def test_auto_watches_the_movement_of_values(name: str) -> None:
    period = {"target_update_interval": 25} if name.endswith("DQN") else {"tau": 0.2}
    model = shape(build(name, train_freq=20, gradient_steps=10, **period), eta="auto").learn(700)
    state = model.bsrs_shaper.state()
    assert state["size"] >= 256
    assert state["looks"] > 2
    assert len(state["scale"]["memory"]["value"]) == 256


def test_value_reads_the_networks_of_sbx() -> None:
    model = filled("sbx DQN")
    obs = np.stack([model.observation_space.sample() for _ in range(3)])
    by_hand = max_q(model, obs)
    np.testing.assert_allclose(value(model, obs), by_hand, rtol=1e-5)
    assert value(model, obs[0]) == pytest.approx(float(by_hand[0]), rel=1e-5)
