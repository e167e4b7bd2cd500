"""Controls at the same eta: DQN and TD3 with something else in the place of shaping, mostly other numbers."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import bsrs
from bsrs.agents.agent import Batch, Transition
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.off_policy import OffPolicyAgent, polyak_update
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.config.base import to_dict
from bsrs.config.training import OffPolicyConfig, TrainingConfig, check_range
from bsrs.errors import BadInput

Config = TypeVar("Config", bound=OffPolicyConfig)
Control = Literal["scaled", "learning-rate", "faster-target", "rescaled"]


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
class _ControlConfig(OffPolicyConfig):
    control: Control = "scaled"
    """At the same eta. scaled: reward / (1+eta); learning-rate: times 1+eta; rescaled: both; faster-target: a target
    network as fast as shaping would make it, about 1+eta times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.eta, float) or self.eta <= -1:
            raise BadInput(f"eta is {self.eta}; {self.algorithm} needs a constant number above -1")

    @property
    def reward_scale(self) -> float:
        return 1 / (1 + float(self.eta)) if self.control in ("scaled", "rescaled") else 1.0

    def without_shaping(self, kind: type[Config]) -> Config:
        """Return the settings that the control learns by."""
        eta = float(self.eta)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(kind)}
        if self.control in ("learning-rate", "rescaled"):
            fields["learning_rate"] *= 1 + eta
        if self.control == "faster-target" and "tau" in fields:
            fields["tau"] = faster_tau(fields["tau"], eta, self.gamma)
        elif self.control == "faster-target":
            fields["target_update_interval"] = faster_interval(fields["target_update_interval"], eta, self.gamma)
        return kind(**{**fields, "eta": 0.0})


@dataclass(frozen=True, kw_only=True)
class DQNControlConfig(DQNConfig, _ControlConfig):
    """DQN with something else in the place of shaping."""

    algorithm: ClassVar[str] = "dqn-control"


@dataclass(frozen=True, kw_only=True)
class TD3ControlConfig(TD3Config, _ControlConfig):
    """TD3 with something else in the place of shaping."""

    algorithm: ClassVar[str] = "td3-control"


class _ScaledReward(OffPolicyAgent[Any]):
    def __init__(self, reward_scale: float, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.reward_scale = reward_scale

    def observe(self, transition: Transition) -> None:
        super().observe(transition._replace(reward=transition.reward * self.reward_scale))


class DQNScaledReward(_ScaledReward, DQNAgent):
    """DQN that sees its rewards scaled."""


class TD3ScaledReward(_ScaledReward, TD3Agent):
    """TD3 that sees its rewards scaled."""


@bsrs.register(DQNControlConfig, like="dqn", member_fields=("seed",))
def dqn_control(configs: Sequence[DQNControlConfig], *arguments: Any, **options: Any) -> DQNAgent:
    """Make the agent: DQN itself, unless its rewards are scaled."""
    plain = [config.without_shaping(DQNConfig) for config in configs]
    agent = DQNAgent if configs[0].reward_scale == 1 else partial(DQNScaledReward, configs[0].reward_scale)
    return agent(plain, *arguments, **options)


@bsrs.register(TD3ControlConfig, like="td3", member_fields=("seed",))
def td3_control(configs: Sequence[TD3ControlConfig], *arguments: Any, **options: Any) -> TD3Agent:
    """Make the agent: TD3 itself, unless its rewards are scaled."""
    plain = [config.without_shaping(TD3Config) for config in configs]
    agent = TD3Agent if configs[0].reward_scale == 1 else partial(TD3ScaledReward, configs[0].reward_scale)
    return agent(plain, *arguments, **options)


def with_rescaled_controls(configs: Sequence[TrainingConfig]) -> list[TrainingConfig]:
    """Add the control to each shaped DQN run: no shaping, learning rate * (1 + eta), reward / (1 + eta)."""
    controls = [DQNControlConfig(**to_dict(config), control="rescaled") for config in configs if config.eta]
    return [*configs, *controls]


@dataclass(frozen=True, kw_only=True)
class DQNTargetConfig(DQNConfig):
    """DQN that copies its target network between the gradient steps of one round, where there are many."""

    algorithm: ClassVar[str] = "dqn-target"

    target_every: int = 1
    """Gradient steps between two copies of the online network into the target network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, "target_every")


@bsrs.register(DQNTargetConfig, like="dqn")
class DQNTarget(DQNAgent):
    config: DQNTargetConfig

    def train_on(self, batch: Batch, step: int) -> None:
        super().train_on(batch, step)
        if self.updates % self.config.target_every == 0:
            polyak_update(self.online, self.target, tau=1.0)
