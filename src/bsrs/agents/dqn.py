"""DQN with bootstrapped reward shaping. Read `train_on`, then `td_target`: the paper changes nothing else.

P members train at once, each with its own networks, batch and eta. Every tensor has the members on axis 0, and losses
are summed over members, so that one backward pass gives every member its own gradient.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bsrs.agents.agent import Array, Batch, times_due
from bsrs.agents.networks import q_network, seeded
from bsrs.agents.off_policy import OffPolicyAgent, clip_grad_norm_per_member, polyak_update
from bsrs.agents.targets import double_value, q_of_action, state_value
from bsrs.config.agents import DQNConfig
from bsrs.envs import require_discrete


class DQNAgent(OffPolicyAgent[DQNConfig]):
    """DQN (Mnih et al., 2015), Double DQN and soft DQN."""

    def build(self, configs: Sequence[DQNConfig]) -> None:
        config, shape = self.config, self.spec.obs_shape
        self.n_actions = require_discrete(self.spec)
        factory = q_network(config.network, shape, config.hidden, config.activation, config.layer_norm)
        self.online = self.add_network(
            "policy", [seeded(lambda: factory(shape, self.n_actions), seed, "init") for seed in self.seeds]
        )
        self.target = self.add_target("target", of="policy")
        self.optimizer = self.optimizers["policy"]
        self._draws = np.empty((self.members, 2, config.n_envs))

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        """Explore with probability epsilon, otherwise act greedily."""
        for rng, draws in zip(self.rngs["exploration"], self._draws, strict=True):
            rng.random(out=draws)
        explore = self._draws[:, 0] < self.epsilon(step)  # (P, n)
        exploring = np.count_nonzero(explore)
        if not exploring:
            return self.greedy(obs)
        random_action = (self._draws[:, 1] * self.n_actions).astype(np.int64)
        return random_action if exploring == explore.size else np.where(explore, random_action, self.greedy(obs))

    def epsilon(self, step: int) -> float:
        """Return the exploration rate at `step`."""
        config = self.config
        if step < config.learning_starts:
            return 1.0
        fall = config.exploration_fraction * config.steps
        progress = min(step / fall, 1.0) if fall > 0 else 1.0
        first, last = config.exploration_initial_eps, config.exploration_final_eps
        return first + progress * (last - first)

    def greedy(self, obs: Array) -> Array:
        actions: Array = self.q_values(obs).argmax(axis=-1)
        return actions

    def q_values(self, obs: Array) -> Array:
        """Q of every action: (P, n, *obs) -> (P, n, A)."""
        if self.kernel is not None:
            q: Array = self.kernel.q_values(obs)
            return q
        with torch.no_grad():
            return self.online(self.as_input(obs)).cpu().numpy()  # type: ignore[no-any-return]

    # ---- learning

    @property
    def period(self) -> int:
        """Env steps between two copies that gradient steps lie between."""
        return max(self.config.target_update_interval, self.config.train_freq)

    def update(self, step: int) -> None:
        if times_due(step, self.config.n_envs, self.config.target_update_interval):
            polyak_update(self.online, self.target, tau=1.0)
        super().update(step)

    def train_on(self, batch: Batch, step: int) -> None:
        q_all = self.online(batch.obs)  # (P, B, A)
        q = q_of_action(q_all, batch.action)  # (P, B)
        target, shaping = self.td_target(batch, q_all.detach(), step)  # (P, B), (P, B)
        loss = F.smooth_l1_loss(q, target, reduction="none").mean(dim=-1)  # (P,)
        self.optimizer.zero_grad()
        loss.sum().backward()
        clip_grad_norm_per_member(self.online, self.config.max_grad_norm)
        self.optimizer.step()
        value = q_all.detach().amax(dim=-1)  # (P, B)
        self.records.add(value, loss, (value - q.detach()).mean(dim=-1), shaping.mean(dim=-1))

    @torch.no_grad()
    def td_target(self, batch: Batch, q_all: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return the TD target and the part that shaping adds to it. A variant of the method overrides this."""
        config, shaped = self.config, self.is_shaped(step)
        from_target = config.potential_network == "target"
        mixes = any(shaper.scale.mixes for shaper in self.shapers)
        from_online = config.potential_network == "online" or (mixes and not from_target)
        next_q_target = next_q = self.target(batch.next_obs)  # (P, B, A)
        if config.double or (shaped and from_online):
            next_q = self.online(batch.next_obs)
        bootstrap = state_value(next_q_target, config.temperature)  # (P, B)
        if config.double:
            bootstrap = double_value(next_q, next_q_target)
        plain = self.plain_target(batch, bootstrap)
        if not shaped:
            return plain, torch.zeros_like(plain)
        q_here, q_next = (self.target(batch.obs), next_q_target) if from_target else (q_all, next_q)
        value, next_value = state_value(q_here, config.temperature), state_value(q_next, config.temperature)
        target = self.shaped_target(batch, bootstrap, value, next_value, step)
        return target, target - plain

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return state_value(self.online(obs), self.config.temperature)
