"""Off-policy algorithms: the rewards of every batch that `train()` samples are shaped by the model's own networks."""

from typing import Any

import torch

from bsrs.sb3.shaper import ModelShaper, Transitions
from bsrs.sb3.values import map_obs, reader_for

# Batches up to this size are evaluated at s and s' together: the calls take longer than the arithmetic.
JOINED_UP_TO = 128


def shape_samples(shaper: ModelShaper, model: Any, samples: Any) -> Any:
    """Return what the replay buffer sampled with shaped rewards; `samples` is left as it is."""
    if not shaper.is_active_for(model):
        return samples
    obs, next_obs, size = samples.observations, samples.next_observations, samples.rewards.shape[0]
    if size <= JOINED_UP_TO:
        joined = map_obs(lambda *both: torch.cat(both), obs, next_obs)
        value, next_value = shaper.value(model, joined, 2 * size).view(2, size).unbind()
    else:
        value, next_value = (shaper.value(model, each, size) for each in (obs, next_obs))
    gamma = model.gamma if samples.discounts is None else samples.discounts.reshape(-1)  # gamma^n of an n-step buffer
    # The buffer leaves time limits out of `dones`, unless it was told to count them.
    batch = Transitions(obs, next_obs, samples.rewards.reshape(-1), value, next_value, samples.dones.reshape(-1), gamma)
    if shaper.shaper.mixes:
        batch, samples = _mix_in_target(shaper, model, batch, samples)
    rewards = samples.rewards + shaper.terms(model, batch).reshape(-1, 1)
    shaper.watch_model(model, obs, size)
    return samples._replace(rewards=rewards)


def _mix_in_target(shaper: ModelShaper, model: Any, batch: Transitions, samples: Any) -> tuple[Transitions, Any]:
    """For scales that mix: V(s') is partly the target network's.

    SB3's own bootstrap has that part already, so a larger discount counts it again without a forward pass. Quantiles
    would be spread out by it: they are shifted by the mean instead.
    """
    if reader_for(model).distributional:
        bootstrap = shaper.value(model, batch.next_obs, len(batch.reward), network="target")
        return batch._replace(bootstrap=bootstrap), samples
    (eta,), (share,) = shaper.shaper.etas(shaper.step), shaper.shaper.shares(shaper.step)
    factor = 1 + eta * (1 - share)
    if samples.discounts is None:
        discounts = torch.full_like(samples.rewards, model.gamma * factor)
    else:
        discounts = samples.discounts * factor
    return batch._replace(next_value=share * batch.next_value), samples._replace(discounts=discounts)
