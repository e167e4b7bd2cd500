"""Where each algorithm keeps its value estimate V(s): one short function per algorithm.

A reader gets the model, a batch of observations as the model's own `train()` sees them, the network to use, and a
random generator for algorithms whose V is an expectation over sampled actions. It returns V, one number per state,
of the networks that the model has at that moment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bsrs.adapting import separate_rng
from bsrs.errors import BadInput

Observations = Any  # a tensor, or a dict of tensors
ReadValue = Callable[..., torch.Tensor]
Clock = Callable[[Any, float], tuple[float, float]]


def map_obs(change: Callable[..., Any], *obs: Observations) -> Observations:
    """Return `change(*obs)`, or that of each entry of observations that are dicts."""
    if isinstance(obs[0], dict):
        return {key: change(*(each[key] for each in obs)) for key in obs[0]}
    return change(*obs)


def gradient_clock(model: Any, updates: float) -> tuple[float, float]:
    """Return the time and the period of a target network that moves by tau after gradient steps."""
    return updates, vars(model).get("target_update_interval", 1) / max(model.tau, 1e-12)


def copy_clock(model: Any, updates: float) -> tuple[float, float]:
    """Return the time and the period of a target network that is copied every so many calls of `env.step`."""
    return model._n_calls, max(model.target_update_interval // model.n_envs, 1) / max(model.tau, 1e-12)


@dataclass(frozen=True)
class Reader:
    """How to read V from one algorithm, from which networks, and the clock of its target network."""

    read: ReadValue
    clock: Clock | None = gradient_clock
    """None if the algorithm has no target network."""
    distributional: bool = False
    """Whether the critic learns quantiles."""


def reader_for(model: Any) -> Reader:
    """Return the reader of the model's algorithm, or of the nearest known class that it inherits from."""
    for cls in type(model).__mro__:
        library = cls.__module__.partition(".")[0]
        if library == "sbx":
            from bsrs.sb3.values_jax import READERS as readers
        else:
            readers = TORCH_READERS.get(library, {})
        if cls.__name__ in readers:
            return readers[cls.__name__]
    raise BadInput(
        f"shape does not know where {type(model).__name__} keeps its value estimate:"
        " pass value_fn, a function of (model, obs) that returns one value per observation"
    )


def greedy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """DQN: `max_a Q(s, a)`."""
    q: torch.Tensor = forward(getattr(model, f"q_net{SUFFIX[network]}"), obs)  # (B, A)
    return q.amax(dim=1)


def quantile_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """QR-DQN: `max_a` of the mean over quantiles."""
    quantiles: torch.Tensor = forward(getattr(model, f"quantile_net{SUFFIX[network]}"), obs)  # (B, quantiles, A)
    return quantiles.mean(dim=1).amax(dim=1)


def policy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TD3, DDPG: `min_i Q_i(s, pi(s))`."""
    action = forward(getattr(model, f"actor{SUFFIX[network]}"), obs)
    return _smallest(forward(getattr(model, f"critic{SUFFIX[network]}"), obs, action))


def soft_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """SAC, CrossQ: `min_i Q_i(s, a) - alpha log pi(a|s)` at one action drawn from the policy."""
    action, entropy = _draw(model, obs, rng)
    return _smallest(forward(getattr(model, f"critic{SUFFIX[network]}"), obs, action)) + entropy


def truncated_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TQC: the mean of the pooled quantiles without the highest ones, minus `alpha log pi(a|s)`."""
    critic = getattr(model, f"critic{SUFFIX[network]}")
    action, entropy = _draw(model, obs, rng)
    quantiles: torch.Tensor = forward(critic, obs, action).flatten(start_dim=1)  # (B, critics * quantiles)
    kept = critic.quantiles_total - model.top_quantiles_to_drop_per_net * critic.n_critics
    return quantiles.sort(dim=1).values[:, :kept].mean(dim=1) + entropy


def critic_value(
    model: Any, obs: Observations, network: str, rng: np.random.Generator, *lstm_states: Any
) -> torch.Tensor:
    """PPO, A2C: the critic; RecurrentPPO's is given the states of its LSTM and the starts of episodes as well."""
    values: torch.Tensor = model.policy.predict_values(obs, *lstm_states)  # (B, 1)
    return values.reshape(-1)


# library -> algorithm -> its reader: by names, because classes would import what is not in use
TORCH_READERS = {
    "stable_baselines3": {
        "DQN": Reader(greedy_value, copy_clock),
        "TD3": Reader(policy_value),
        "DDPG": Reader(policy_value),
        "SAC": Reader(soft_value),
        "PPO": Reader(critic_value, None),
        "A2C": Reader(critic_value, None),
    },
    "sb3_contrib": {
        "QRDQN": Reader(quantile_value, copy_clock, distributional=True),
        "TQC": Reader(truncated_value, distributional=True),
        "CrossQ": Reader(soft_value, None),
        "TRPO": Reader(critic_value, None),
        "MaskablePPO": Reader(critic_value, None),
        "RecurrentPPO": Reader(critic_value, None),
    },
}
SUFFIX = {"online": "", "target": "_target"}  # of the networks' names in a model


def forward(network: nn.Module, *inputs: Any, method: str = "__call__") -> Any:
    """Return `network(*inputs)`, or what another method returns, in evaluation mode; then restore each module's mode.

    Without dropout, and batch-norm statistics are left alone. `Module.eval()` takes as long as a small network.
    """
    training = [attributes for attributes in map(vars, network.modules()) if attributes["training"]]
    for attributes in training:
        attributes["training"] = False
    try:
        return getattr(network, method)(*inputs)
    finally:
        for attributes in training:
            attributes["training"] = True


def _smallest(q: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the smallest of the critics' outputs, each (B, 1), as (B,)."""
    return torch.cat(q, dim=1).amin(dim=1)


def _draw(model: Any, obs: Observations, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one action per state from the policy, (B, A), and its `-alpha log pi(a|s)`, (B,)."""
    with separate_rng(int(rng.integers(2**31))):
        action, log_prob = forward(model.actor, obs, method="action_log_prob")
    fixed = model.ent_coef_optimizer is None
    alpha = model.ent_coef_tensor if fixed else model.log_ent_coef.detach().exp()
    return action, -alpha * log_prob.reshape(-1)
