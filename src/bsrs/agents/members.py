"""What each member of a population is set to do, and the TD target that follows from it.

Members share their arithmetic; what differs between them (eta, the parts of BSRS they keep, their control, the network
that the potential asks) is a number or a choice per member, (P, 1).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from bsrs.agents import targets
from bsrs.agents.replay import Batch
from bsrs.config.training import OffPolicyConfig
from bsrs.errors import BadInput
from bsrs.shaping import Shaper, Shaping

Config = TypeVar("Config", bound=OffPolicyConfig)

UNSHAPED = ("scaled", "learning-rate", "faster-target", "rescaled")
"""Controls that change something else instead of shaping."""


def members_configs(configs: Sequence[Config], shaping: Shaping | None) -> Sequence[Config]:
    """The members' configs; where a `shaping` is given, without what it takes the place of."""
    if shaping is None:
        return configs
    return [dataclasses.replace(config, control="none", parts="cab") for config in configs]


def shaper_eta(config: OffPolicyConfig) -> float | str:
    """eta as the shaper is given it: zero under a control that does not shape, or with no part to keep."""
    return 0.0 if config.control in UNSHAPED or config.parts == "none" else config.eta


def learning_rate(config: OffPolicyConfig) -> float:
    """The learning rate under the member's control."""
    faster = config.control in ("learning-rate", "rescaled")
    return config.learning_rate * (1 + float(config.eta)) if faster else config.learning_rate


def target_interval(config: OffPolicyConfig, interval: int) -> int:
    """Steps between two updates of the target network; `faster-target` gives the slow mode the pace of shaping.

    In one period the slow mode shrinks by gamma, shaped by gamma / (1 + eta (1 - gamma)): plain Q-learning gets
    there with a period shorter by the factor 1 + ln(1 + eta (1 - gamma)) / -ln gamma.
    """
    if config.control != "faster-target" or not 0 < config.gamma < 1:
        return interval
    faster = 1 + math.log1p(float(config.eta) * (1 - config.gamma)) / -math.log(config.gamma)
    return max(1, round(interval / faster)) if faster > 0 else interval


def polyak_tau(config: OffPolicyConfig, tau: float) -> float:
    """The same for a target network that follows the online one by a share `tau`."""
    if config.control != "faster-target":
        return tau
    eta = float(config.eta)
    return min(1.0, tau * (1 + eta) / (1 + eta * (1 - config.gamma)))


def transition_discount(batch: Batch, gamma: float) -> Tensor:
    """What V(s') counts, (P, B): gamma for each step of the transition, and zero after a true end."""
    if batch.steps is None:
        return torch.where(batch.terminated, 0.0, gamma)
    return torch.where(batch.terminated, 0.0, gamma**batch.steps)


class Values(NamedTuple):
    """V at both ends of a batch, (P, B) each, from the online and the target network; None where nobody asks."""

    here: Tensor | None
    here_target: Tensor | None
    next: Tensor | None
    next_target: Tensor | None


class MemberTargets:
    """The TD targets of P members: plain, shaped, or some of its parts."""

    def __init__(self, configs: Sequence[OffPolicyConfig], shaper: Shaper, device: torch.device) -> None:
        def column(numbers: Sequence[float | bool]) -> Tensor:
            return torch.tensor(numbers, device=device).unsqueeze(1)  # (P, 1)

        self.shaper = shaper
        self._gamma, self._keeps_terminal = configs[0].gamma, configs[0].terminal == "keep"
        kept = ["cb" if c.control == "exact" else "" if c.parts == "none" else c.parts for c in configs]
        self.partial = any(parts not in ("cab", "") for parts in kept)
        if self.partial and shaper.depends_on_state:
            raise BadInput("eta depends on the state and some parts are left out; expected all parts or another eta")
        self._keeps = [column([name in parts for parts in kept]) for name in "cab"]
        networks = ["mixing" if mixes else c.potential_network for c, mixes in zip(configs, shaper.mixes, strict=True)]
        self.asks_online = shaper.needs_value and ("online" in networks or "mixing" in networks)
        self.asks_target = shaper.needs_value and "target" in networks
        self.asks_split = shaper.needs_value and "split" in networks
        self._network = networks[0] if len(set(networks)) == 1 else "mixed"
        self._is = {name: column([network == name for network in networks]) for name in ("online", "target", "mixing")}
        scales = [1 / (1 + float(c.eta)) if c.control in ("scaled", "rescaled") else 1.0 for c in configs]
        self._reward_scale = None if set(scales) == {1.0} else column(scales)
        self._zero = column([0.0])

    def plain(self, batch: Batch, bootstrap: Tensor) -> tuple[Tensor, Tensor]:
        """The TD target without shaping, and the zero that shaping added to it: (P, B) each."""
        reward = batch.reward if self._reward_scale is None else batch.reward * self._reward_scale
        target = reward + transition_discount(batch, self._gamma) * bootstrap
        return target, self._zero.expand_as(target)

    def shaped(self, batch: Batch, q: Tensor, bootstrap: Tensor, values: Values, step: int) -> tuple[Tensor, Tensor]:
        """The TD target and what shaping added to it, (P, B) each, or (P, n, B) where parts of n critics' `q` are left.

        `bootstrap` is Vt(s') as plain learning takes it, `q` the Q(s, a) that learns: needed where `partial`.
        """
        reward = batch.reward if self._reward_scale is None else batch.reward * self._reward_scale
        discount = transition_discount(batch, self._gamma)
        potential_discount: Tensor | float = discount
        if self._keeps_terminal:
            potential_discount = self._gamma if batch.steps is None else self._gamma**batch.steps
        value, next_value = self._ends(values, bootstrap, step)
        if self.partial:
            given = {"reward": reward, "bootstrap": bootstrap, "discount": discount}
            target = self._partly_shaped(
                batch, q, value, next_value, step, potential_discount=discount * 0 + potential_discount, **given
            )
            plain = reward + discount * bootstrap
            added = target - (plain if q.ndim == 2 else plain.unsqueeze(1))
        else:
            shaped = self.shaper(
                reward,
                value,
                next_value,
                gamma=potential_discount,
                state=batch.obs,
                next_state=batch.next_obs,
                step=step,
            )
            target = shaped + discount * bootstrap
            added = shaped - reward
        if self.shaper.learns:
            self.shaper.update(reward, value, next_value, terminated=batch.terminated, step=step)
        return target, added

    def _partly_shaped(
        self, batch: Batch, q: Tensor, value: Tensor, next_value: Tensor, step: int, **given: Tensor
    ) -> Tensor:
        eta = torch.as_tensor(self.shaper.eta(step, batch.obs, value), device=value.device, dtype=value.dtype)
        given |= targets.part_coefficients(eta.reshape(-1, 1), *self._keeps)
        given["value"] = self.shaper.potential(batch.obs, value, step)
        given["next_value"] = self.shaper.potential(batch.next_obs, next_value, step)
        if q.ndim == 3:
            given = {name: tensor.unsqueeze(1) for name, tensor in given.items()}
        return targets.parts_target(q=q, **given)

    def _ends(self, values: Values, bootstrap: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """V(s) and V(s') from the networks that each member's potential asks."""
        here, here_target, online, target = (bootstrap if value is None else value for value in values)
        if self._network == "mixed":
            next_value = torch.where(self._is["online"], online, torch.where(self._is["target"], target, bootstrap))
            if any(self.shaper.mixes):
                next_value = torch.where(self._is["mixing"], self._mixture(bootstrap, online, step), next_value)
            return torch.where(self._is["target"], here_target, here), next_value
        if self._network == "mixing":
            return here, self._mixture(bootstrap, online, step)
        return {"online": (here, online), "target": (here_target, target), "split": (here, bootstrap)}[self._network]

    def _mixture(self, bootstrap: Tensor, online: Tensor, step: int) -> Tensor:
        mixture: Tensor = bootstrap + self.shaper.share(step, online) * (online - bootstrap)
        return mixture
