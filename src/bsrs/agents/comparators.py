"""What the field does to a TD target instead of shaping it, to be put beside BSRS.

Each is a term on the reward or another bootstrap, so that it goes with any part of BSRS and with any agent:

- advantage learning and persistent advantage learning (Bellemare et al., 2016, arXiv:1512.04860);
- Munchausen reinforcement learning (Vieillard et al., 2020, arXiv:2007.14430);
- MINTO, the least of the online and the target network's bootstrap (Hendawy et al., 2025, arXiv:2510.02590);
- reward centering (Naik et al., 2024, arXiv:2405.09999), in episodic tasks as a constant potential.

PopArt and dueling change what a network puts out: see `bsrs.agents.heads`. n-step returns are made by the replay.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bsrs.agents.members import transition_discount
from bsrs.agents.networks import Weights
from bsrs.agents.replay import Batch
from bsrs.agents.stack import Stack
from bsrs.config.training import OffPolicyConfig

MUNCHAUSEN_TEMPERATURE = 0.03
LOWEST_LOG_POLICY = -1.0
CENTERING_RATE = 1e-3
"""Of the reward's mean, per gradient step."""


class Ingredients(NamedTuple):
    """What comparators are made of, (P, B) each; None where no member asks. From the target network unless said."""

    advantage: Tensor | None = None
    """Q(s, a) - V(s)."""
    repeated: Tensor | None = None
    """Q(s', a)."""
    log_policy: Tensor | None = None
    """tau * log pi(a|s)."""
    soft_bootstrap: Tensor | None = None
    """The bootstrap of the soft policy."""
    least: Tensor | None = None
    """The bootstrap from the least of the online and the target network."""


class AverageReward:
    """Each member's mean reward, as its TD errors tell it."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.weights = Weights({"average": torch.zeros(members, 1)}, device)
        self.average = self.weights.numbers  # (P, 1)


class Comparators:
    """The members that learn by one of them."""

    def __init__(self, configs: Sequence[OffPolicyConfig], device: torch.device) -> None:
        names = [config.comparator for config in configs]
        self._is = {
            name: torch.tensor([each == name for each in names], device=device).unsqueeze(1)  # (P, 1)
            for name in dict.fromkeys(names)
            if name not in ("none", "popart")
        }
        self.any = bool(self._is)
        """Whether any member learns by one."""
        self._alpha = torch.tensor([[config.comparator_alpha] for config in configs], device=device)  # (P, 1)
        self._gamma = configs[0].gamma
        self._rewards = AverageReward(len(configs), device)
        self.stacks = {"centering": Stack(self._rewards, len(configs))} if self.has("centering") else {}

    def has(self, *names: str) -> bool:
        """Whether any member learns by one of these."""
        return any(name in self._is for name in names)

    def apply(self, batch: Batch, bootstrap: Tensor, given: Ingredients) -> tuple[Batch, Tensor]:
        """The batch with the members' terms on its rewards, and their bootstraps."""
        discount = transition_discount(batch, self._gamma)
        term, used = torch.zeros_like(bootstrap), bootstrap
        for name, mine in self._is.items():
            if name in ("advantage", "persistent") and given.advantage is not None:
                own = self._alpha * given.advantage
                if name == "persistent" and given.repeated is not None:
                    # the larger one of advantage learning's target and that of repeating the action, Q(s', a)
                    own = torch.maximum(own, discount * (given.repeated - bootstrap))
                term = torch.where(mine, own, term)
            elif name == "munchausen" and given.log_policy is not None:
                clipped = given.log_policy.clamp(LOWEST_LOG_POLICY, 0.0)  # as published
                term = torch.where(mine, self._alpha * clipped, term)
                used = used if given.soft_bootstrap is None else torch.where(mine, given.soft_bootstrap, used)
            elif name == "minto" and given.least is not None:
                used = torch.where(mine, given.least, used)
            elif name == "centering":
                # minus the mean reward, as the constant potential mean / (1 - gamma), which ends with the episode
                term = torch.where(mine, -self._rewards.average * (1 - discount) / (1 - self._gamma), term)
        return batch._replace(reward=batch.reward + term), used

    def learn(self, error: Tensor) -> None:
        """From the TD errors of one gradient step, (P, ..., B): the mean reward moves along their mean."""
        if self.has("centering"):
            move = CENTERING_RATE * error.flatten(1).mean(dim=1, keepdim=True)
            self._rewards.average.add_(move * self._is["centering"])
