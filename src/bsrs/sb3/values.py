"""Where each algorithm keeps its value estimate V(s): one short function per algorithm.

A reader gets the model, a batch of observations as the model's own `train()` sees them, which network to ask, and a
random generator for algorithms whose V is an expectation over sampled actions. It returns V, one number per state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from bsrs.errors import BadInput, unknown

Observations = Any  # a tensor, or a dict of tensors
ReadValue = Callable[[Any, Observations, str, np.random.Generator], torch.Tensor]


@dataclass(frozen=True)
class Reader:
    """How to read V from one algorithm, and from which of its networks that can be done."""

    read: ReadValue
    networks: tuple[str, ...] = ("online", "target")
    read_flat: ReadValue | None = None
    """The same past SB3's preprocessing, for models in which it leaves the observations as they are."""


def reader_for(model: Any, network: str) -> ReadValue:
    """That of the model's algorithm: of the nearest known class that it inherits from."""
    if network not in ("online", "target"):
        raise unknown("network", network, ["online", "target"])
    for cls in type(model).__mro__:
        reader = _readers(cls.__module__.partition(".")[0]).get(cls.__name__)
        if reader is not None:
            if network not in reader.networks:
                raise BadInput(f"{cls.__name__} has no {network} network: expected network={reader.networks[0]!r}")
            return reader.read_flat if reader.read_flat and _has_flat_observations(model) else reader.read
    raise BadInput(
        f"shape does not know where {type(model).__name__} keeps its value estimate:"
        " pass value_fn, a function of (model, obs) that returns one value per observation"
    )


def _readers(library: str) -> dict[str, Reader]:
    """A library's readers by the name of the algorithm: names, because classes would import what is not in use."""
    if library == "sbx":
        from bsrs.sb3.values_jax import READERS

        return READERS
    return {"stable_baselines3": SB3_READERS, "sb3_contrib": CONTRIB_READERS}.get(library, {})


def greedy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """DQN: `max_a Q(s, a)`."""
    q_net = _q_net(model, network)
    with evaluating(q_net):
        q: torch.Tensor = q_net(obs)  # (B, A)
    return q.amax(dim=1)


def greedy_value_flat(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    return _through(_q_net(model, network).q_net, obs).amax(dim=1)


def quantile_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """QR-DQN: `max_a` of the mean over quantiles."""
    quantile_net = model.quantile_net if network == "online" else model.quantile_net_target
    with evaluating(quantile_net):
        quantiles: torch.Tensor = quantile_net(obs)  # (B, quantiles, A)
    return quantiles.mean(dim=1).amax(dim=1)


def policy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TD3, DDPG: `min_i Q_i(s, pi(s))`."""
    actor, critic = _actor_and_critic(model, network)
    with evaluating(actor, critic):
        q: torch.Tensor = torch.cat(critic(obs, actor(obs)), dim=1)  # (B, critics)
    return q.amin(dim=1)


def policy_value_flat(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    actor, critic = _actor_and_critic(model, network)
    at_policy = torch.cat((obs, _through(actor.mu, obs)), dim=1)
    q = torch.cat([_through(q_net, at_policy) for q_net in critic.q_networks], dim=1)  # (B, critics)
    return q.amin(dim=1)


def soft_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """SAC, CrossQ: `min_i Q_i(s, a) - alpha log pi(a|s)` at one action drawn from the policy."""
    critic = model.critic if network == "online" else model.critic_target
    with evaluating(model.actor, critic), own_noise(model.device, rng):
        action, log_prob = model.actor.action_log_prob(obs)  # (B, A), (B,)
        q: torch.Tensor = torch.cat(critic(obs, action), dim=1)  # (B, critics)
    entropy: torch.Tensor = -_temperature(model) * log_prob.reshape(-1)
    return q.amin(dim=1) + entropy


def truncated_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TQC: the mean of the pooled quantiles without the highest ones, minus `alpha log pi(a|s)`."""
    critic = model.critic if network == "online" else model.critic_target
    with evaluating(model.actor, critic), own_noise(model.device, rng):
        action, log_prob = model.actor.action_log_prob(obs)  # (B, A), (B,)
        quantiles = critic(obs, action).flatten(start_dim=1)  # (B, critics * quantiles)
    kept = critic.quantiles_total - model.top_quantiles_to_drop_per_net * critic.n_critics
    lowest: torch.Tensor = quantiles.sort(dim=1).values[:, :kept]
    entropy: torch.Tensor = -_temperature(model) * log_prob.reshape(-1)
    return lowest.mean(dim=1) + entropy


def critic_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """PPO, A2C: the critic."""
    values: torch.Tensor = model.policy.predict_values(obs)  # (B, 1)
    return values.reshape(-1)


ONLINE_ONLY = ("online",)
SB3_READERS = {
    "DQN": Reader(greedy_value, read_flat=greedy_value_flat),
    "TD3": Reader(policy_value, read_flat=policy_value_flat),
    "DDPG": Reader(policy_value, read_flat=policy_value_flat),
    "SAC": Reader(soft_value),
    "PPO": Reader(critic_value, ONLINE_ONLY),
    "A2C": Reader(critic_value, ONLINE_ONLY),
}
CONTRIB_READERS = {
    "QRDQN": Reader(quantile_value),
    "TQC": Reader(truncated_value),
    "CrossQ": Reader(soft_value, ONLINE_ONLY),
    "TRPO": Reader(critic_value, ONLINE_ONLY),
    "MaskablePPO": Reader(critic_value, ONLINE_ONLY),
}


def _q_net(model: Any, network: str) -> Any:
    return model.q_net if network == "online" else model.q_net_target


def _actor_and_critic(model: Any, network: str) -> tuple[Any, Any]:
    return (model.actor, model.critic) if network == "online" else (model.actor_target, model.critic_target)


def _temperature(model: Any) -> torch.Tensor:
    """SAC's alpha, learned or fixed."""
    fixed = model.ent_coef_optimizer is None
    alpha: torch.Tensor = model.ent_coef_tensor if fixed else model.log_ent_coef.detach().exp()
    return alpha


class evaluating:
    """Evaluation mode (no dropout, batch-norm statistics left alone), then every module's own mode again.

    Written for speed: by `Module.train()` this would take as long as the forward pass of a small network.
    """

    def __init__(self, *networks: torch.nn.Module) -> None:
        self._networks = networks

    def __enter__(self) -> None:
        self._training: list[dict[str, Any]] = []
        for network in self._networks:
            for attributes in _attributes(network):
                if attributes["training"]:
                    attributes["training"] = False
                    self._training.append(attributes)

    def __exit__(self, *error: object) -> None:
        for attributes in self._training:
            attributes["training"] = True


# Modules for which the mode makes no difference; and those that SB3 itself defines only hold others.
MODELESS = {nn.Sequential, nn.ModuleList, nn.Linear, nn.Conv2d, nn.Flatten, nn.ReLU, nn.Tanh, nn.ELU, nn.LeakyReLU}
_known: WeakKeyDictionary[torch.nn.Module, list[dict[str, Any]]] = WeakKeyDictionary()


def _attributes(network: torch.nn.Module) -> list[dict[str, Any]]:
    """Those of its modules for which the mode may matter, looked for once: a network that learns keeps its modules."""
    found = _known.get(network)
    if found is None:
        found = _known[network] = [vars(module) for module in network.modules() if not _modeless(type(module))]
    return found


def _through(layers: nn.Sequential, given: torch.Tensor) -> torch.Tensor:
    """`layers(given)` without the calls of its modules, and without new memory for what a ReLU gives."""
    x = given
    for layer in layers:
        if type(layer) is nn.Linear:
            x = functional.linear(x, layer.weight, layer.bias)
        elif type(layer) is nn.ReLU and x is not given:
            torch.relu_(x)
        else:
            x = layer(x)
    return x


def _has_flat_observations(model: Any) -> bool:
    """Whether they reach the layers as they are, and the mode of none of these matters.

    In a small network the preprocessing and the check for modes take a third of the time of a forward pass.
    """
    space = model.observation_space
    flat = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.dtype == np.float32
    return flat and all(_modeless(type(module)) for module in model.policy.modules())


def _modeless(kind: type) -> bool:
    return kind in MODELESS or kind.__module__.startswith("stable_baselines3.")


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
