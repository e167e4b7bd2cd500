"""The adapter to Tianshou 2: `algorithm = bsrs.tianshou.shape(algorithm, eta=0.5)`, for DQN, DDPG, TD3 and SAC.

The shaping term is added to the n-step returns that the algorithm computes for each batch, with the true number of
steps at the end of an episode. Buffers, collectors and test rewards stay as they are. `algorithm.state_dict()` holds
what eta has learned.
"""

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bsrs.adapting import BatchShaper, ShapingModule, reader_for, separate_rng, shaped_class
from bsrs.errors import BadInput, optional

optional("tianshou", "bsrs.tianshou", "tianshou")

from tianshou.algorithm import DDPG, DQN, SAC, TD3  # noqa: E402
from tianshou.algorithm.algorithm_base import OffPolicyAlgorithm, TrainingStatsWrapper  # noqa: E402
from tianshou.data import Batch  # noqa: E402


def shape(algorithm: Any, eta: Any = "auto") -> Any:
    """Shape the returns of `algorithm` from now on. Call it again to change eta.

    Returns the algorithm. `eta` is a number, "auto", a schedule or a function of the state (`bsrs.shaping`). Schedules
    count env steps under a Tianshou trainer, and gradient steps in your own loop. Training statistics gain
    `shaping_eta` and `shaping_mean`, so the library's loggers record them.
    """
    value = reader_for(algorithm, READERS, "tianshou")
    shaping = AlgorithmShaping(algorithm, value, BatchShaper(eta, has_target=_period(algorithm) > 0))
    algorithm.__class__ = shaped_class(Shaped, type(algorithm))
    algorithm.shaping = shaping
    return algorithm


class Shaped(OffPolicyAlgorithm):  # type: ignore[misc]
    """In front of an algorithm class: adds the shaping term to its returns."""

    shaping: "AlgorithmShaping"

    def create_trainer(self, params: Any) -> Any:
        trainer = super().create_trainer(params)
        self.shaping.follow(trainer.params.training_collector)
        return trainer

    def _target_q(self, buffer: Any, indices: Any) -> Tensor:
        target: Tensor = super()._target_q(buffer, indices)
        self.shaping.bootstrap = indices, target  # at the last transition of each n-step return
        return target

    def _preprocess_batch(self, batch: Any, buffer: Any, indices: Any) -> Any:
        batch = super()._preprocess_batch(batch, buffer, indices)
        self.shaping.shape_returns(batch, buffer, indices)
        return batch

    def _update_with_batch(self, batch: Any) -> Any:
        return ShapedStats(super()._update_with_batch(batch), self.shaping.batches.metrics())


class ShapedStats(TrainingStatsWrapper):  # type: ignore[misc]
    """The statistics of an update, with eta and the mean shaping term."""

    def __init__(self, wrapped: Any, metrics: dict[str, Any]) -> None:
        for name, number in metrics.items():
            setattr(self, f"shaping_{name}", float(number))
        super().__init__(wrapped)


class AlgorithmShaping(ShapingModule):
    """A child of the algorithm, so that `algorithm.state_dict()` holds what eta has learned."""

    bootstrap: Any = None
    _collector: Any = None
    _collected = 0

    def follow(self, collector: Any) -> None:
        """Count the env steps of `collector` from now on."""
        self._collector, self._collected = weakref.ref(collector), 0

    def _count_step(self) -> None:
        collector = self._collector and self._collector()
        if collector is None:
            self.batches.step += 1
            return
        collected = collector.collect_step  # starts again from 0 when the collector is reset
        self.batches.step += collected - self._collected if collected >= self._collected else collected
        self._collected = collected

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_collector": None}

    @torch.no_grad()
    def shape_returns(self, batch: Any, buffer: Any, indices: np.ndarray) -> None:
        """Add the shaping term to `batch.returns`."""
        batches, algorithm = self.batches, self._parent[0]
        self._count_step()
        (last, bootstrap), self.bootstrap = self.bootstrap, None
        if not batches.is_active(batches.step):
            return
        obs, next_obs = batch.obs, buffer[last].obs_next
        with separate_rng(batches.updates + 1):
            value, next_value = self.value(obs), self.value(next_obs)
        reward, gamma = n_step_rewards(buffer, indices, _horizon(algorithm), algorithm.gamma)
        term = batches.term(
            value,
            next_value,
            reward=torch.as_tensor(reward).to(value),
            gamma=torch.as_tensor(gamma).to(value),
            terminated=torch.as_tensor(buffer.terminated[last], device=value.device),
            bootstrap=bootstrap.reshape(-1),
            state=_tensors(obs, value),
            next_state=_tensors(next_obs, value),
        )
        batch.returns = batch.returns + term.to(batch.returns).reshape(batch.returns.shape)
        batches.watch(obs, len(indices), self.value, batches.updates, _period(algorithm))

    def value(self, obs: Any) -> Tensor:
        return super().value(Batch(obs=obs, info=[None] * len(obs)))


def n_step_rewards(buffer: Any, indices: np.ndarray, horizon: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rewards that each n-step return sums, discounted, and the discount of its bootstrap.

    There are fewer than `horizon` rewards where the episode ends before.
    """
    end = buffer.done.copy()
    end[buffer.unfinished_index()] = True
    rewards, discounts = buffer.rew[indices].astype(float), np.full(len(indices), gamma)
    goes_on = ~end[indices]
    for _ in range(horizon - 1):
        indices = buffer.next(indices)
        rewards += goes_on * discounts * buffer.rew[indices]
        discounts = np.where(goes_on, gamma * discounts, discounts)
        goes_on = goes_on & ~end[indices]
    return rewards, discounts


def _horizon(algorithm: Any) -> int:
    return int(algorithm.n_step if isinstance(algorithm, DQN) else algorithm.n_step_return_horizon)


def _period(algorithm: Any) -> float:
    """Return the target network's period in updates; 0 where there is no target network."""
    if isinstance(algorithm, DQN):
        return float(algorithm.target_update_freq)
    if not 0 < algorithm.tau <= 1:
        raise BadInput(f"tau is {algorithm.tau}; bsrs.tianshou needs a target network that follows, 0 < tau <= 1")
    return float(getattr(algorithm, "update_actor_freq", 1) / algorithm.tau)


def _tensors(obs: Any, like: Tensor) -> Any:
    """Return observations as a state-dependent eta gets them: as a tensor, except for those with several parts."""
    return torch.as_tensor(obs, device=like.device) if isinstance(obs, np.ndarray) else obs


# V by the algorithm's online networks.


def _dqn_value(algorithm: Any, batch: Any) -> Tensor:
    """max_a Q(s, a), over the actions that the mask allows."""
    logits = algorithm.policy(batch).logits
    value: Tensor = algorithm.policy.compute_q_value(logits, getattr(batch.obs, "mask", None)).amax(dim=1)
    return value


def _ddpg_value(algorithm: Any, batch: Any) -> Tensor:
    """Q(s, pi(s))."""
    value: Tensor = algorithm.critic(batch.obs, algorithm.policy(batch).act)
    return value


def _td3_value(algorithm: Any, batch: Any) -> Tensor:
    """min_i Q_i(s, pi(s))."""
    action = algorithm.policy(batch).act
    return torch.minimum(algorithm.critic(batch.obs, action), algorithm.critic2(batch.obs, action))


def _sac_value(algorithm: Any, batch: Any) -> Tensor:
    """min_i Q_i(s, a) - alpha log pi(a | s) at one sampled action."""
    out = algorithm.policy(batch)
    q = torch.minimum(algorithm.critic(batch.obs, out.act), algorithm.critic2(batch.obs, out.act))
    value: Tensor = q.reshape(-1) - algorithm.alpha.value * out.log_prob.reshape(-1)
    return value


READERS = {DQN: _dqn_value, DDPG: _ddpg_value, TD3: _td3_value, SAC: _sac_value}
