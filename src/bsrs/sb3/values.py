"""Where each algorithm keeps its value estimate V(s): one short function per algorithm.

A reader gets the model, a batch of observations as the model's own `train()` sees them, which network to ask, and a
random generator for algorithms whose V is an expectation over sampled actions. It returns V, one number per state.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.dqn.policies import QNetwork
from stable_baselines3.td3.policies import Actor
from torch import nn
from torch.nn import functional

from bsrs.errors import BadInput, unknown

Observations = Any  # a tensor, or a dict of tensors
ReadValue = Callable[..., torch.Tensor]


def map_obs(change: Callable[..., Any], *obs: Observations) -> Observations:
    """`change(*obs)`, or that of each entry of observations that are dicts."""
    if isinstance(obs[0], dict):
        return {key: change(*(each[key] for each in obs)) for key in obs[0]}
    return change(*obs)


@dataclass(frozen=True)
class Reader:
    """How to read V from one algorithm, and from which of its networks that can be done."""

    read: ReadValue
    networks: tuple[str, ...] = ("online", "target")


def reader_for(model: Any, network: str) -> ReadValue:
    """That of the model's algorithm: of the nearest known class that it inherits from."""
    if network not in ("online", "target"):
        raise unknown("network", network, ["online", "target"])
    for cls in type(model).__mro__:
        library = cls.__module__.partition(".")[0]
        if library == "sbx":
            from bsrs.sb3.values_jax import READERS as readers
        else:
            readers = TORCH_READERS.get(library, {})
        reader = readers.get(cls.__name__)
        if reader is not None:
            if network not in reader.networks:
                raise BadInput(f"{cls.__name__} has no {network} network: expected network={reader.networks[0]!r}")
            return reader.read
    raise BadInput(
        f"shape does not know where {type(model).__name__} keeps its value estimate:"
        " pass value_fn, a function of (model, obs) that returns one value per observation"
    )


def greedy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """DQN: `max_a Q(s, a)`."""
    return forward(getattr(model, f"q_net{SUFFIX[network]}"), obs).amax(dim=1)


def quantile_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """QR-DQN: `max_a` of the mean over quantiles."""
    quantiles = forward(getattr(model, f"quantile_net{SUFFIX[network]}"), obs)  # (B, quantiles, A)
    return quantiles.mean(dim=1).amax(dim=1)


def policy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TD3, DDPG: `min_i Q_i(s, pi(s))`."""
    action = forward(getattr(model, f"actor{SUFFIX[network]}"), obs)
    return forward(getattr(model, f"critic{SUFFIX[network]}"), obs, action).amin(dim=1)


def soft_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """SAC, CrossQ: `min_i Q_i(s, a) - alpha log pi(a|s)` at one action drawn from the policy."""
    action, entropy = _draw(model, obs, rng)
    return forward(getattr(model, f"critic{SUFFIX[network]}"), obs, action).amin(dim=1) + entropy


def truncated_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TQC: the mean of the pooled quantiles without the highest ones, minus `alpha log pi(a|s)`."""
    critic = getattr(model, f"critic{SUFFIX[network]}")
    action, entropy = _draw(model, obs, rng)
    quantiles = forward(critic, obs, action).flatten(start_dim=1)  # (B, critics * quantiles)
    kept = critic.quantiles_total - model.top_quantiles_to_drop_per_net * critic.n_critics
    return quantiles.sort(dim=1).values[:, :kept].mean(dim=1) + entropy


def critic_value(
    model: Any, obs: Observations, network: str, rng: np.random.Generator, *lstm_states: Any
) -> torch.Tensor:
    """PPO, A2C: the critic; RecurrentPPO's is given the states of its LSTM and the starts of episodes as well."""
    values: torch.Tensor = model.policy.predict_values(obs, *lstm_states)  # (B, 1)
    return values.reshape(-1)


ONLINE_ONLY = ("online",)
# library -> algorithm -> its reader: by names, because classes would import what is not in use
TORCH_READERS = {
    "stable_baselines3": {
        "DQN": Reader(greedy_value),
        "TD3": Reader(policy_value),
        "DDPG": Reader(policy_value),
        "SAC": Reader(soft_value),
        "PPO": Reader(critic_value, ONLINE_ONLY),
        "A2C": Reader(critic_value, ONLINE_ONLY),
    },
    "sb3_contrib": {
        "QRDQN": Reader(quantile_value),
        "TQC": Reader(truncated_value),
        "CrossQ": Reader(soft_value, ONLINE_ONLY),
        "TRPO": Reader(critic_value, ONLINE_ONLY),
        "MaskablePPO": Reader(critic_value, ONLINE_ONLY),
        "RecurrentPPO": Reader(critic_value, ONLINE_ONLY),
    },
}
SUFFIX = {"online": "", "target": "_target"}  # of the networks' names in a model


def _draw(model: Any, obs: Observations, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """One action per state from the policy, (B, A), and its `-alpha log pi(a|s)`, (B,)."""
    with evaluating(model.actor), own_noise(model.device, rng):
        action, log_prob = model.actor.action_log_prob(obs)
    fixed = model.ent_coef_optimizer is None
    alpha = model.ent_coef_tensor if fixed else model.log_ent_coef.detach().exp()
    return action, -alpha * log_prob.reshape(-1)


# --------------------------------------------------------------------------------------------------------------
# A network's forward pass: in evaluation mode, and past SB3's preprocessing where that leaves the observations alone.


def forward(network: nn.Module, *inputs: Any) -> torch.Tensor:
    """`network(*inputs)` in evaluation mode; what several critics give is joined as (B, critics).

    Fast path: an MLP on flat observations is applied layer by layer, because in a small network the preprocessing and
    the calls of its modules take a third of the time of a forward pass. A test holds it equal to the other.
    """
    if network not in _known:
        _known[network] = _flat_layers(network)
    layers = _known[network]
    if layers is None:
        with evaluating(network):
            output = network(*inputs)
        return torch.cat(output, dim=1) if isinstance(output, tuple) else output
    joined = torch.cat(inputs, dim=1) if len(inputs) > 1 else inputs[0]
    outputs = []
    for each in layers:
        x = joined
        for layer in each:
            if type(layer) is nn.Linear:
                x = functional.linear(x, layer.weight, layer.bias)
            elif type(layer) is nn.ReLU and x is not joined:  # no new memory for what it gives
                torch.relu_(x)
            else:
                x = layer(x)
        outputs.append(x)
    return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]


# Modules for which the mode makes no difference; and those that SB3 itself defines only hold others.
MODELESS = {nn.Sequential, nn.ModuleList, nn.Linear, nn.Flatten, nn.ReLU, nn.Tanh, nn.ELU, nn.LeakyReLU}
MLPS: dict[type, Callable[[Any], Sequence[nn.Sequential]]] = {
    QNetwork: lambda network: [network.q_net],
    Actor: lambda network: [network.mu],
    ContinuousCritic: lambda network: network.q_networks,
}
_known: WeakKeyDictionary[nn.Module, Sequence[nn.Sequential] | None] = WeakKeyDictionary()


def _flat_layers(network: Any) -> Sequence[nn.Sequential] | None:
    """The layers of an MLP that observations reach as they are, looked for once: a network keeps its modules."""
    kinds = {type(module) for module in network.modules()}
    modeless = all(kind in MODELESS or kind.__module__.startswith("stable_baselines3.") for kind in kinds)
    plain = type(network) in MLPS and type(network.features_extractor) is FlattenExtractor and modeless
    space = network.observation_space if plain else None
    flat = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype == np.float32
    return MLPS[type(network)](network) if flat else None


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout, batch-norm statistics left alone), then every module's own mode again.

    By `Module.train()` this would take as long as the forward pass of a small network.
    """
    training = [attributes for attributes in map(vars, network.modules()) if attributes["training"]]
    for attributes in training:
        attributes["training"] = False
    try:
        yield
    finally:
        for attributes in training:
            attributes["training"] = True


@contextmanager
def own_noise(device: torch.device, rng: np.random.Generator) -> Iterator[None]:
    """PyTorch's global noise replaced by draws of `rng`, so that the model's own stream is not shifted."""
    on_gpu = device.type == "cuda"
    seed = int(rng.integers(2**31))
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed(seed)
        yield
