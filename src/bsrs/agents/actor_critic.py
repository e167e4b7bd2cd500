"""What TD3 and SAC share: networks of actors and critics, the range of actions, and V at the policy's action.

Inside an agent actions span -1 to 1, in its networks and in its replay; `act` and `greedy` return the env's units.
"""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from bsrs.agents.agent import Array, Batch, Transition
from bsrs.agents.networks import Critics, Factory, MLPCritic, cnn, fits, mlp, own_factory, seeded
from bsrs.agents.off_policy import OffPolicyAgent
from bsrs.config.agents import ActorCriticConfig
from bsrs.envs import EnvSpec, require_continuous

Config = TypeVar("Config", bound=ActorCriticConfig)
FEATURES = 64
"""What an encoder makes of an image."""


class ActorCriticAgent(OffPolicyAgent[Config]):
    """Actors, critics and, for images, an encoder that the critics' loss trains (as DrQ-v2 has it)."""

    streams = ("exploration", "batches", "noise")
    outputs_per_action: ClassVar[int] = 1
    """How many numbers the actor returns for each action."""

    def build(self, configs: Sequence[Config]) -> None:
        config, shape = self.config, self.spec.obs_shape
        self.actions = ActionRange(self.spec)
        self.encoder = None
        if self.spec.is_image and not (config.actor and config.critic):
            name = "small" if fits(shape, "small") else "minatar"
            encoder = functools.partial(cnn, shape, FEATURES, name)
            self.encoder = self.add_network("encoder", [seeded(encoder, s, "init", "encoder") for s in self.seeds])
            shape = (FEATURES,)
        make_actor, make_critic = self._factories()
        outputs, size = self.outputs_per_action * self.actions.size, self.actions.size
        actors = [seeded(lambda: make_actor(shape, outputs), seed, "init", "actor") for seed in self.seeds]

        def critics() -> Critics:
            return Critics([make_critic(shape, size) for _ in range(config.n_critics)])

        self.actor = self.add_network("policy", actors)
        self.critics = self.add_network("critics", [seeded(critics, seed, "init", "critics") for seed in self.seeds])
        self.target_critics = self.add_target("target_critics", of="critics")
        self.actor_optimizer, self.critic_optimizer = self.optimizers["policy"], self.optimizers["critics"]

    def _factories(self) -> tuple[Factory, Factory]:
        """Return what makes an actor (observation shape, outputs) and a critic (observation shape, actions)."""
        config = self.config
        make = functools.partial(mlp, hidden=config.hidden, activation=config.activation, layer_norm=config.layer_norm)
        actor: Factory = lambda shape, outputs: make(shape[0], outputs)  # noqa: E731
        critic: Factory = lambda shape, actions: MLPCritic(make(shape[0] + actions, 1))  # noqa: E731
        return (
            own_factory(config.actor) if config.actor else actor,
            own_factory(config.critic) if config.critic else critic,
        )

    @property
    def period(self) -> int:
        """Env steps in which the target networks cover most of the distance: 1 / tau updates."""
        per_step = self.gradient_steps / self.config.train_freq
        return max(1, round(1 / (max(self.config.tau, 1e-6) * per_step)))

    # ---- acting

    def act(self, obs: Array, step: int) -> Array:
        """Act at random before learning starts, then with the policy's exploration."""
        shape = (self.members, obs.shape[1], self.actions.size)
        if step < self.config.learning_starts:
            action = np.empty(shape, np.float32)
            for rng, own in zip(self.rngs["exploration"], action, strict=True):
                own[:] = rng.uniform(-1, 1, own.shape)
            return self.actions.to_env(action)
        return self.actions.to_env(self.explore(obs, self.noise("exploration", *shape[1:])))

    def explore(self, obs: Array, noise: Array) -> Array:
        """Choose actions with exploration, given standard normal noise: (P, n, *obs), (P, n, A) -> (P, n, A)."""
        raise NotImplementedError

    def mean_action(self, obs: Tensor) -> Tensor:
        """The actors' actions without exploration: (P, B, *obs) -> (P, B, A)."""
        raise NotImplementedError

    @torch.no_grad()
    def greedy(self, obs: Array) -> Array:
        if self.kernel is not None:
            return self.actions.to_env(self.kernel.mean_action(obs))
        return self.actions.to_env(self.mean_action(self.features(self.as_input(obs))).cpu().numpy())

    def noise(self, name: str, *shape: int) -> Array:
        """Draw standard normal noise from each member's stream: (P, *shape)."""
        noise = np.empty((self.members, *shape), np.float32)
        for rng, own in zip(self.rngs[name], noise, strict=True):
            rng.standard_normal(out=own, dtype=np.float32)
        return noise

    def observe(self, transition: Transition) -> None:
        super().observe(transition._replace(action=self.actions.from_env(transition.action)))

    # ---- values

    def features(self, obs: Tensor) -> Tensor:
        """Return what actors and critics take: observations, or the encoder's features of images."""
        return obs if self.encoder is None else self.encoder(obs)

    def encoded(self, batch: Batch) -> Batch:
        """Return the batch with features in place of images; gradients reach the encoder through `obs` only."""
        if self.encoder is None:
            return batch
        with torch.no_grad():
            next_obs = self.encoder(batch.next_obs)
        return batch._replace(obs=self.encoder(batch.obs), next_obs=next_obs)

    def step_critics(self, loss: Tensor) -> None:
        """Take one gradient step of the critics, and of the encoder where there is one."""
        optimizers = [self.critic_optimizer, *([] if self.encoder is None else [self.optimizers["encoder"]])]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    def min_q(self, obs: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        """The smallest of the critics: (P, B, O), (P, B, A) -> (P, B)."""
        critics = self.target_critics if target else self.critics
        q: Tensor = critics(obs, action).amin(dim=1)
        return q

    def first_q(self, obs: Tensor, action: Tensor) -> Tensor:
        """The first critic alone: (P, B, O), (P, B, A) -> (P, B)."""
        firsts: list[Any] = [critics.each[0] for critics in self.critics]  # type: ignore[index]
        return torch.stack([critic(*own).flatten() for critic, *own in zip(firsts, obs, action, strict=True)])

    @torch.no_grad()
    def q_values(self, obs: Array, action: Array) -> Array:
        """Q of every critic at actions in the env's units: (P, n, *obs), (P, n, A) -> (P, critics, n)."""
        inside = self.as_tensor(self.actions.from_env(action))
        q: Array = self.critics(self.features(self.as_input(obs)), inside).cpu().numpy()
        return q

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        features = self.features(obs)
        return self.min_q(features, self.mean_action(features))

    def potential(
        self, batch: Batch, action: Tensor, next_action: Tensor, q: Tensor, smoothed: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V(s) and V(s') as the potential takes them, (P, B) each.

        With the potential `policy` at the policy's actions; with `replay` Q at the replayed action for s, where `q` of
        the online critics (P, n, B) is already there, and at the target's `smoothed` action for s'.
        """
        target = self.config.potential_network == "target"
        if self.config.potential == "replay":
            here = self.min_q(batch.obs, batch.action, target=True) if target else q.amin(dim=1)
            return here, self.min_q(batch.next_obs, smoothed, target=target)
        return self.min_q(batch.obs, action, target=target), self.min_q(batch.next_obs, next_action, target=target)


class ActionRange:
    """The env's actions and the networks', which span -1 to 1."""

    def __init__(self, spec: EnvSpec) -> None:
        low, high = (np.array(bound, np.float32) for bound in require_continuous(spec))
        self._centre, self._reach = (high + low) / 2, (high - low) / 2
        self._divisor = np.where(self._reach > 0, self._reach, np.float32(1))  # an action may have low == high
        self.size = len(low)

    def to_env(self, action: Array) -> Array:
        return action * self._reach + self._centre  # (P, n, A)

    def from_env(self, action: Array) -> Array:
        return (action - self._centre) / self._divisor
