"""Small Stable-Baselines3 models for the tests: built twice from one seed, they are the same to the last bit.

`BY_HAND` holds V(s) of each algorithm, written out from its paper once more, independently of `bsrs.sb3`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import sb3_contrib
import stable_baselines3
import torch

from bsrs.rng import stream
from bsrs.sb3.replay import sample_shaped

SMALL = {"buffer_size": 1_000, "learning_starts": 60, "batch_size": 16, "train_freq": 10, "seed": 3, "device": "cpu"}
LIBRARIES: dict[str, Any] = {"sb3": stable_baselines3, "contrib": sb3_contrib}
TORCH = ["sb3 DQN", "sb3 TD3", "sb3 DDPG", "sb3 SAC", "contrib QRDQN", "contrib TQC", "contrib CrossQ"]
JAX = ["sbx DQN", "sbx TD3", "sbx DDPG", "sbx SAC", "sbx TQC", "sbx CrossQ"]


def algorithm(name: str) -> Any:
    library, _, cls = name.partition(" ")
    if library == "sbx":
        import sbx

        return getattr(sbx, cls)
    return getattr(LIBRARIES[library], cls)


def build(name: str, **changes: Any) -> Any:
    """A small model that has not been trained."""
    discrete = name.endswith("DQN")
    env = "CartPole-v1" if discrete else "MountainCarContinuous-v0"  # small rewards: quantile losses clip large errors
    kwargs: dict[str, Any] = {"policy_kwargs": {"net_arch": [16, 16]}, **SMALL, **changes}
    return algorithm(name)("MlpPolicy", kwargs.pop("env", env), **kwargs)


def filled(name: str, **changes: Any) -> Any:
    """A small model with a few steps in its buffer and no update yet."""
    return build(name, **changes).learn(60)


def parameters(model: Any) -> list[np.ndarray]:
    """Every number that training changes, from PyTorch or JAX."""
    if type(model).__module__.startswith("sbx"):
        import jax

        states = [part for name, part in vars(model.policy).items() if name.endswith("_state")]
        states += [vars(model)["ent_coef_state"]] if "ent_coef_state" in vars(model) else []
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(states)]
    tensors = list(model.policy.state_dict().values())
    if vars(model).get("log_ent_coef") is not None:
        tensors.append(model.log_ent_coef.detach())
    return [tensor.numpy() for tensor in tensors]


def train(model: Any, gradient_steps: int = 1) -> None:
    """Gradient steps on batches and noise that depend on nothing but this call."""
    np.random.seed(11)  # noqa: NPY002 (what SB3 samples with)
    torch.manual_seed(11)
    model.train(gradient_steps=gradient_steps, batch_size=16)


def sampled(model: Any, size: int = 64, *, seed: int = 0, env: Any = None) -> Any:
    """A batch as the model's `train` gets it: shaped, if the model is."""
    np.random.seed(seed)  # noqa: NPY002 (what SB3 samples with)
    torch.manual_seed(seed)
    shaped = "bsrs_shaper" in vars(model)
    return (partial(sample_shaped, model, model.replay_buffer) if shaped else model.replay_buffer.sample)(size, env=env)


def rewards(model: Any) -> torch.Tensor:
    batch: torch.Tensor = sampled(model, 32).rewards
    return batch


def potential_seed(model: Any) -> int:
    """The first draw of the stream that a shaped model's value noise comes from."""
    return int(stream(SMALL["seed"], "sb3 potential", model.num_timesteps).integers(2**31))  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------
# V(s) by hand.


def max_q(model: Any, obs: Any) -> torch.Tensor:
    return model.q_net(obs).max(dim=1).values


def max_mean_quantile(model: Any, obs: Any) -> torch.Tensor:
    return model.quantile_net(obs).mean(dim=1).max(dim=1).values


def min_q_at_policy(model: Any, obs: Any) -> torch.Tensor:
    return torch.stack(model.critic(obs, model.actor(obs))).min(dim=0).values[:, 0]


def min_q_with_entropy(model: Any, obs: Any) -> torch.Tensor:
    action, log_prob = _draw(model, obs)
    return torch.stack(model.critic(obs, action)).min(dim=0).values[:, 0] - model.log_ent_coef.exp() * log_prob


def truncated_with_entropy(model: Any, obs: Any) -> torch.Tensor:
    action, log_prob = _draw(model, obs)
    pooled = model.critic(obs, action).reshape(len(action), -1).sort(dim=1).values  # 2 critics of 25 quantiles
    return pooled[:, : 2 * 25 - 2 * 2].mean(dim=1) - model.log_ent_coef.exp() * log_prob  # 2 dropped of each


def _draw(model: Any, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    model.policy.set_training_mode(False)  # CrossQ: running statistics
    with torch.random.fork_rng():
        torch.manual_seed(potential_seed(model))
        action, log_prob = model.actor.action_log_prob(obs)
    return action, log_prob


BY_HAND = {
    "sb3 DQN": max_q,
    "sb3 TD3": min_q_at_policy,
    "sb3 DDPG": min_q_at_policy,
    "sb3 SAC": min_q_with_entropy,
    "contrib QRDQN": max_mean_quantile,
    "contrib TQC": truncated_with_entropy,
    "contrib CrossQ": min_q_with_entropy,
}


def feed_by_hand(model: Any, value_by_hand: Any, eta: float) -> None:
    """Make a plain model train on rewards shaped by hand."""
    sample = model.replay_buffer.sample

    def shaped_sample(*args: Any, **kwargs: Any) -> Any:
        samples = sample(*args, **kwargs)
        with torch.no_grad():
            both = value_by_hand(model, torch.cat((samples.observations, samples.next_observations)))
        value, next_value = both.reshape(2, -1, 1)
        bonus = eta * (model.gamma * (1 - samples.dones) * next_value - value)
        return samples._replace(rewards=samples.rewards + bonus)

    model.replay_buffer.sample = shaped_sample
