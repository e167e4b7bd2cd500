"""Variants of DQN and TD3 that single studies need: agents of their own, each of which overrides one method.

Importing this module registers them; `bsrs --plugin experiments.variants` does so for the command line.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import bsrs
from bsrs.agents.agent import Batch, Transition
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.off_policy import OffPolicyAgent, polyak_update
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import DQNConfig, TD3Config
from bsrs.config.settings import RunSettings
from bsrs.store.read import RunRecord
from experiments import comparators
from experiments.parts import DQNParts, TD3Parts
from experiments.variant_configs import DQNTargetConfig, DQNVariantConfig, TD3VariantConfig

PLUGIN = "experiments.variants"


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


KINDS: dict[str, tuple[Any, ...]] = {
    "dqn-variant": (DQNConfig, DQNAgent, DQNScaledReward, DQNParts, comparators.DQN),
    "td3-variant": (TD3Config, TD3Agent, TD3ScaledReward, TD3Parts, comparators.TD3),
}
"""Algorithm -> its plain config and agent, and the agents with scaled rewards, with parts and with comparators."""


def variant(configs: Sequence[DQNVariantConfig | TD3VariantConfig], *arguments: Any, **options: Any) -> Any:
    """Make the agent. A control that only has other numbers is DQN or TD3 itself, and so has its kernel."""
    config = configs[0]
    plain_config, plain, scaled, with_parts, with_comparator = KINDS[config.algorithm]
    if config.control == "none":
        return with_comparator.get(config.comparator, with_parts)(configs, *arguments, **options)
    controls = [each.without_shaping(plain_config) for each in configs]
    if config.reward_scale == 1:
        return plain(controls, *arguments, **options)
    return scaled(config.reward_scale, controls, *arguments, **options)


bsrs.register(DQNVariantConfig, like="dqn", member_fields=("seed",))(variant)
bsrs.register(TD3VariantConfig, like="td3", member_fields=("seed",))(variant)


@bsrs.register(DQNTargetConfig, like="dqn")
class DQNTarget(DQNAgent):
    config: DQNTargetConfig

    def train_on(self, batch: Batch, step: int) -> None:
        super().train_on(batch, step)
        if self.updates % self.config.target_every == 0:
            polyak_update(self.online, self.target, tau=1.0)


def as_options(settings: RunSettings) -> RunSettings:
    """Return a variant's settings as version 0.1 wrote them: options of DQN or TD3.

    Then its runs are of the same task as the baseline, and stored runs need no translation.
    """
    algorithm, _, variant = settings.algorithm.partition("-")
    return dataclasses.replace(settings, algorithm=algorithm) if variant in ("variant", "target") else settings


def with_options(run: RunRecord) -> RunRecord:
    """Return a run with its settings in that form."""
    return dataclasses.replace(run, config=as_options(run.config))
