"""Off-policy algorithms: the rewards of every sampled batch are shaped by the model's own current networks."""

from functools import cache
from typing import Any

import numpy as np
import torch

from bsrs.agents.agent import times_due
from bsrs.agents.returns import WINDOW, RecentReturns, Stretch
from bsrs.sb3.saving import describe
from bsrs.sb3.shaper import ModelShaper, Transitions, become, reduce_as_plain
from bsrs.sb3.values import map_obs

# Batches up to this size are evaluated at s and s' together: the calls take longer than the arithmetic.
JOINED_UP_TO = 128


def shape_samples(shaper: ModelShaper, samples: Any) -> Any:
    """What a replay buffer sampled, with shaped rewards; `samples` is left as it is."""
    eta = shaper.eta()
    if not eta and not shaper.is_always_active:
        return samples
    obs, next_obs, size = samples.observations, samples.next_observations, samples.rewards.shape[0]
    share = shaper.share() if shaper.mixes else 1.0  # of the online network in V(s')
    if share and size <= JOINED_UP_TO:
        joined = torch.cat((obs, next_obs)) if torch.is_tensor(obs) else map_obs(lambda *b: torch.cat(b), obs, next_obs)
        value, next_value = shaper.value(joined, 2 * size).view(2, size, 1).unbind()
    else:
        value = shaper.value(obs, size).view(size, 1)
        next_value = shaper.value(next_obs, size).view(size, 1) if share else torch.zeros_like(value)
    next_value = next_value if share == 1 else next_value * share
    discounts = getattr(samples, "discounts", None)  # gamma^n of an n-step buffer; older SB3 does not know them
    gamma = shaper.model.gamma if discounts is None else discounts.reshape(-1)
    # All (B, 1). The buffer leaves time limits out of `dones`, unless it was told to count them.
    batch = Transitions(obs, next_obs, samples.rewards, value, next_value, samples.dones, gamma)
    if shaper.plain and discounts is None:
        rewards = _shape_plainly(shaper, batch, eta)
    else:
        rewards = shaper.shaped_reward(batch.flat()).reshape(-1, 1)
    if not shaper.mixes:
        return samples._replace(rewards=rewards)
    # The target network's part of V(s') costs no pass: SB3's own bootstrap has it, and counts for more.
    factor = 1 + eta * (1 - share)
    gammas = torch.full_like(rewards, shaper.model.gamma) if discounts is None else discounts
    return samples._replace(rewards=rewards, discounts=gammas * factor)


def _shape_plainly(shaper: ModelShaper, batch: Transitions, eta: float) -> torch.Tensor:
    """Fast path: `bsrs.shaped_reward` by three calls of PyTorch, because beside a small network every call counts.

    `test_in_few_operations_it_is_the_same_line` holds it equal to the one formula.
    """
    next_value = batch.next_value
    if shaper.settings.terminal == "zero":
        next_value = torch.addcmul(next_value, next_value, batch.terminated, value=-1)  # `1 - terminated` takes longer
    shaped = torch.add(batch.reward, next_value, alpha=eta * shaper.model.gamma).add_(batch.value, alpha=-eta)
    shaper.last = batch, shaped
    if shaper.learns:
        shaper.update(batch)
    return shaped


def is_review_due(model: Any) -> bool:
    """Once in a period of the target network."""
    period = max(round(vars(model).get("target_update_interval", 1) / model.tau), 1)
    due = times_due(model.num_timesteps, model.n_envs, period) > 0
    return due and model.num_timesteps > model.learning_starts


def review_returns(shaper: ModelShaper) -> None:
    """Show recent returns, and what both networks predict there, to the scale."""
    model, buffer = shaper.model, shaper.model.replay_buffer
    normalizer = model._vec_normalize_env
    recent = RecentReturns(latest(buffer, normalizer), model.gamma)
    both = _observations(buffer, recent.states, next=False), _observations(buffer, recent.ends, next=True)
    obs = buffer._normalize_obs(map_obs(lambda *parts: np.concatenate(parts), *both), normalizer)
    tensors, count = map_obs(buffer.to_torch, obs), len(recent.states) + len(recent.ends)
    online, target = (shaper.value(tensors, count, network=name).double().cpu() for name in ("online", "target"))
    shaper.review(recent.judged(model.num_timesteps, online.numpy(), target.numpy()))


def latest(buffer: Any, normalizer: Any = None) -> list[Stretch]:
    """The latest transitions of each env of a buffer; a row stands for (position, env)."""
    size = buffer.buffer_size if buffer.full else buffer.pos
    at = np.arange(buffer.pos - min(size, WINDOW), buffer.pos) % buffer.buffer_size
    found = []
    for env in range(buffer.n_envs):
        ended = buffer.dones[at, env] > 0
        terminated = ended & (buffer.timeouts[at, env] == 0)
        ended[-1:] = True
        reward = buffer._normalize_reward(buffer.rewards[at, env], normalizer)
        found.append(Stretch(at * buffer.n_envs + env, reward, terminated, ended))
    return found


def _observations(buffer: Any, rows: np.ndarray, *, next: bool) -> Any:
    """The observations of rows, or those after them."""
    at, env = np.divmod(rows, buffer.n_envs)
    if next and buffer.optimize_memory_usage:
        return map_obs(lambda part: part[(at + 1) % buffer.buffer_size, env], buffer.observations)
    return map_obs(lambda part: part[at, env], buffer.next_observations if next else buffer.observations)


@cache
def shaped_replay(plain: Any) -> Any:
    """The class of a replay buffer whose `sample` is shaped by its `shaper`."""

    class ShapedReplay(plain):  # type: ignore[misc]
        __reduce_ex__ = reduce_as_plain

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            return shape_samples(self.shaper, super().sample(*args, **kwargs))

    ShapedReplay.__name__ = ShapedReplay.__qualname__ = f"Shaped{plain.__name__}"
    return ShapedReplay


@cache
def shaped_off_policy(plain: Any) -> Any:
    """The class of a model whose replay buffer is shaped, whichever buffer it is given.

    So `load_replay_buffer`, which replaces the buffer, does not silently end the shaping.
    """

    class ShapedOffPolicy(plain):  # type: ignore[misc]
        @property
        def replay_buffer(self) -> Any:
            return self.__dict__["replay_buffer"]

        @replay_buffer.setter
        def replay_buffer(self, buffer: Any) -> None:
            become(buffer, shaped_replay)
            buffer.shaper = self.replay_buffer.shaper
            self.__dict__["replay_buffer"] = buffer

        def _on_step(self) -> None:
            """Before SB3 copies into the target network: that is when the two differ most."""
            if self.replay_buffer.shaper.reviews and is_review_due(self):
                review_returns(self.replay_buffer.shaper)
            super()._on_step()

        def save(self, *args: Any, **kwargs: Any) -> None:
            self.bsrs_shaping = describe(self.replay_buffer.shaper)
            super().save(*args, **kwargs)

        def dump_logs(self) -> None:
            """Logging waits until the logger writes: for every batch it would cost as much as the shaping."""
            self.replay_buffer.shaper.log()
            super().dump_logs()

    ShapedOffPolicy.__name__ = ShapedOffPolicy.__qualname__ = f"Shaped{plain.__name__}"
    return ShapedOffPolicy
