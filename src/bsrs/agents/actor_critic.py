"""What TD3 and SAC share, as functions and small parts: stacked critics, the range of actions, their potentials.

Inside an agent actions span -1 to 1, in its networks and in its replay; only `act` and `greedy` speak the env's
units. The critics of all members are one stack: networks n*p ... n*p + n-1 are member p's.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Array
from bsrs.agents.comparators import Comparators, Ingredients
from bsrs.agents.encoder import Encoder
from bsrs.agents.members import MemberTargets, Values, polyak_tau
from bsrs.agents.networks import StackedMLP
from bsrs.agents.population import generators
from bsrs.agents.replay import Batch
from bsrs.config.agents import ActorCriticConfig
from bsrs.envs import EnvSpec, require_continuous
from bsrs.shaping import Bootstrapped, Potential, RandomDynamic, Static


def q_values(critics: StackedMLP, obs: Tensor, action: Tensor) -> Tensor:
    """All critics of every member: (P, B, O), (P, B, A) -> (P, n, B)."""
    members, rows, _ = obs.shape
    return critics(torch.cat((obs, action), dim=-1)).view(members, -1, rows)


def min_over_critics(q: Tensor) -> Tensor:
    """The smallest of the critics: (P, n, B) -> (P, B)."""
    return q.amin(dim=1)


class ActionRange:
    """The env's actions against the networks', which span -1 to 1."""

    def __init__(self, spec: EnvSpec) -> None:
        low, high = (np.array(bound, np.float32) for bound in require_continuous(spec))
        self._centre, self._reach = (high + low) / 2, (high - low) / 2
        self.size = len(low)

    def to_env(self, action: Array) -> Array:
        return action * self._reach + self._centre  # (P, n, A)

    def from_env(self, action: Array) -> Array:
        return (action - self._centre) / self._reach


class Networks:
    """The members' encoders, actors and critics, each drawn from its member's streams, and the target critics."""

    def __init__(
        self,
        configs: Sequence[ActorCriticConfig],
        spec: EnvSpec,
        *,
        outputs_per_action: int,
        device: torch.device,
    ) -> None:
        self.encoder = Encoder(configs, spec, device)
        hidden, n_obs = configs[0].hidden, self.encoder.size
        n_actions = spec.action_shape[0]
        seeds = [config.seed for config in configs]
        self.actor = StackedMLP(
            (n_obs, *hidden, outputs_per_action * n_actions), generators(seeds, "init", "actor"), device=device
        )
        each = [g for g in generators(seeds, "init", "critics") for _ in range(configs[0].n_critics)]
        self.critics = StackedMLP((n_obs + n_actions, *hidden, 1), each, device=device)
        self.target_critics = copy.deepcopy(self.critics)


class PolyakUpdate:
    """Moves target networks towards the online ones, each member by its own share tau."""

    def __init__(self, configs: Sequence[ActorCriticConfig], device: torch.device) -> None:
        taus = [polyak_tau(config, config.tau) for config in configs]
        self._taus = torch.tensor(taus, device=device).unsqueeze(1)  # (P, 1)
        self._tau = taus[0] if len(set(taus)) == 1 else None

    def __call__(self, target: StackedMLP, online: StackedMLP) -> None:
        numbers = target.weights.numbers  # (P, N), or (P * n, N) of n critics
        taus = self._taus.repeat_interleave(len(numbers) // len(self._taus), dim=0) if self._tau is None else self._tau
        numbers.lerp_(online.weights.numbers, taus)


def member_potential(
    member: int, config: ActorCriticConfig, networks: Networks, mean_action: Callable[[StackedMLP, Tensor], Tensor]
) -> Potential:
    """One member's potential."""
    if config.potential == "random":
        return RandomDynamic(config.seed, config.random_period)
    if config.potential != "static":
        return Bootstrapped()
    n = config.n_critics
    actor = copy.deepcopy(networks.actor).part(slice(member, member + 1))
    critics = copy.deepcopy(networks.critics).part(slice(member * n, (member + 1) * n))

    def untrained_value(obs: Tensor) -> Tensor:
        batch = obs.reshape(1, -1, obs.shape[-1])
        return min_over_critics(q_values(critics, batch, mean_action(actor, batch))).reshape(obs.shape[:-1])

    return Static(untrained_value)


def policy_values(
    td: MemberTargets, networks: Networks, batch: Batch, action: Tensor, next_action: Callable[[], Tensor]
) -> Values:
    """The critics at the policy's own actions at both ends, as far as any member's potential asks for them."""
    here = here_target = there = there_target = None
    if td.asks_online or td.asks_target:
        obs = torch.cat((batch.obs, batch.next_obs), dim=1)  # (P, 2B, O)
        actions = torch.cat((action, next_action()), dim=1)  # (P, 2B, A)
    if td.asks_online:
        here, there = min_over_critics(q_values(networks.critics, obs, actions)).chunk(2, dim=-1)
    elif td.asks_split:
        here = min_over_critics(q_values(networks.critics, batch.obs, action))
    if td.asks_target:
        both = min_over_critics(q_values(networks.target_critics, obs, actions))
        here_target, there_target = both.chunk(2, dim=-1)
    return Values(here, here_target, there, there_target)


def replayed_values(
    td: MemberTargets, networks: Networks, batch: Batch, q: Tensor, next_action: Tensor, next_q: Tensor
) -> Values:
    """Q at the replayed action for s and at `next_action` for s', from passes that the loss needs anyway where there
    are any: `q` of the online critics (P, n, B), `next_q` of the target critics (P, B)."""
    online, target = networks.critics, networks.target_critics
    return Values(
        here=min_over_critics(q),
        here_target=min_over_critics(q_values(target, batch.obs, batch.action)) if td.asks_target else None,
        next=min_over_critics(q_values(online, batch.next_obs, next_action)) if td.asks_online else None,
        next_target=next_q,
    )


def ingredients(
    comparators: Comparators,
    networks: Networks,
    batch: Batch,
    next_action: Tensor,
    next_q: Tensor,
    value: Callable[[], Tensor],
) -> Ingredients:
    """What comparators of any actor-critic ask for: `next_q` is the least target critic's, `value` its V(s)."""
    target = networks.target_critics
    gap = repeated = least = None
    if comparators.has("advantage", "persistent"):
        gap = min_over_critics(q_values(target, batch.obs, batch.action)) - value()
    if comparators.has("persistent"):
        repeated = min_over_critics(q_values(target, batch.next_obs, batch.action))
    if comparators.has("minto"):
        least = torch.minimum(next_q, min_over_critics(q_values(networks.critics, batch.next_obs, next_action)))
    return Ingredients(advantage=gap, repeated=repeated, least=least)
