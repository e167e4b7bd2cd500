"""The settings of the variants of DQN and TD3 that single studies train."""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.config.training import OffPolicyConfig, check_default, check_range
from bsrs.errors import BadInput

Config = TypeVar("Config", bound=OffPolicyConfig)
LACKS = {
    "none": ("double", "temperature", "potential_network", "potential"),  # the parts
    "advantage": (),
    "centering": (),
    "popart": ("network",),
    **dict.fromkeys(("persistent", "munchausen", "minto"), ("eta", "double", "temperature")),
}
"""Comparator -> the options that it does not have."""


@dataclass(frozen=True, kw_only=True)
class _VariantConfig(OffPolicyConfig):
    parts: Literal["c", "a", "b", "ca", "cb", "ab", "cab"] = "cab"
    """c scales the reward by 1/(1+eta), a is advantage learning, b mixes the online network into the bootstrap."""
    control: Literal["none", "scaled", "learning-rate", "faster-target", "rescaled"] = "none"
    """Instead of shaping, at the same eta. scaled: reward / (1+eta); learning-rate: times 1+eta; rescaled: both;
    faster-target: a target network as fast as shaping would make it, about 1+eta times."""
    comparator: Literal["none", "advantage", "persistent", "munchausen", "minto", "centering", "popart"] = "none"
    """Related method in the place of shaping or, for advantage, centering and popart, next to it."""
    comparator_alpha: float = 0.9
    """Weight of the action gap: as published; eta/(1+eta) matches shaping."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "comparator_alpha", high=1.0)
        if self.control == "none":
            check_default(self, *LACKS[self.comparator])
        elif not isinstance(self.eta, float) or self.eta <= -1:
            raise BadInput(f"eta is {self.eta}; {self.algorithm} needs a constant number above -1")
        if self.comparator == "centering" and self.gamma >= 1:
            raise BadInput(f"gamma is {self.gamma}; centering needs gamma below 1")

    @property
    def reward_scale(self) -> float:
        return 1 / (1 + float(self.eta)) if self.control in ("scaled", "rescaled") else 1.0

    def without_shaping(self, kind: type[Config]) -> Config:
        """Return the settings that a control learns by."""
        eta = float(self.eta)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(kind)}
        if self.control in ("learning-rate", "rescaled"):
            fields["learning_rate"] *= 1 + eta
        if self.control == "faster-target" and "tau" in fields:
            fields["tau"] = faster_tau(fields["tau"], eta, self.gamma)
        elif self.control == "faster-target":
            fields["target_update_interval"] = faster_interval(fields["target_update_interval"], eta, self.gamma)
        return kind(**{**fields, "eta": 0.0})


def faster_interval(interval: int, eta: float, gamma: float) -> int:
    """Return the steps between two copies of the network that give the slow mode the pace of shaping.

    In one period the slow mode shrinks by gamma, with shaping by gamma / (1 + eta (1 - gamma)): Q-learning gets there
    with a period shorter by the factor 1 + ln(1 + eta (1 - gamma)) / -ln gamma.
    """
    if not 0 < gamma < 1:
        return interval
    return max(1, round(interval / (1 + math.log1p(eta * (1 - gamma)) / -math.log(gamma))))


def faster_tau(tau: float, eta: float, gamma: float) -> float:
    """Return the same for a target network that follows the online one by a share `tau`."""
    return min(1.0, tau * (1 + eta) / (1 + eta * (1 - gamma)))


@dataclass(frozen=True, kw_only=True)
class DQNVariantConfig(DQNConfig, _VariantConfig):
    """DQN with some of the parts of BSRS, or with a control or a related method instead."""

    algorithm: ClassVar[str] = "dqn-variant"


@dataclass(frozen=True, kw_only=True)
class TD3VariantConfig(TD3Config, _VariantConfig):
    """TD3 with some of the parts of BSRS, or with a control or a related method instead."""

    algorithm: ClassVar[str] = "td3-variant"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.comparator in ("munchausen", "popart"):
            raise BadInput(f"comparator is {self.comparator}, which only DQN has")


@dataclass(frozen=True, kw_only=True)
class DQNTargetConfig(DQNConfig):
    """DQN that copies its target network between the gradient steps of one round, where there are many."""

    algorithm: ClassVar[str] = "dqn-target"

    target_every: int = 1
    """Gradient steps between two copies of the online network into the target network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, "target_every")
