"""Off-policy algorithms: the rewards of every batch that `train()` samples are shaped by the model's own networks."""

from typing import Any

import torch

from bsrs.sb3.values import map_obs

# Batches up to this size are evaluated at s and s' together: the calls take longer than the arithmetic.
JOINED_UP_TO = 128


def sample_shaped(model: Any, buffer: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what `buffer.sample` returns, with shaped rewards; the buffer is left as it is."""
    samples, shaper = buffer.sample(*args, **kwargs), model.bsrs_shaper
    shaper.step = model.num_timesteps
    if not shaper.is_active(shaper.step):
        return samples
    obs, next_obs, size = samples.observations, samples.next_observations, len(samples.rewards)
    if size <= JOINED_UP_TO:
        joined = map_obs(lambda *both: torch.cat(both), obs, next_obs)
        value, next_value = shaper.value(model, joined, 2 * size).view(2, size).unbind()
    else:
        value, next_value = (shaper.value(model, each, size) for each in (obs, next_obs))
    discounts = samples.discounts  # gamma^n of an n-step buffer
    bootstrap, mixed_discounts = _mix_in_target(model, samples) if shaper.scale.mixes else (None, discounts)
    term = shaper.term(
        value,
        next_value,
        reward=samples.rewards.reshape(-1),
        gamma=model.gamma if discounts is None else discounts.reshape(-1),
        terminated=samples.dones.reshape(-1),  # without time limits, unless the buffer was told to count them
        bootstrap=bootstrap,
        **shaper.states(model, obs, next_obs),
    )
    if shaper.scale.probes:
        shaper.watch_model(model, obs, size)
    return samples._replace(rewards=samples.rewards + term.reshape(-1, 1), discounts=mixed_discounts)


def _mix_in_target(model: Any, samples: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return V(s') of the target network, for scales that mix it in, and the discounts of SB3's own bootstrap.

    SB3's own bootstrap has the target network's V(s') already. So a larger discount counts it again without a forward
    pass, and zero is left to mix in. Quantiles would be spread out by it: they are shifted by the mean instead.
    """
    shaper, size = model.bsrs_shaper, len(samples.rewards)
    if shaper.reader.distributional:
        return shaper.value(model, samples.next_observations, size, network="target"), samples.discounts
    eta, share, _ = shaper.coefficients(shaper.step)
    plain = torch.full_like(samples.rewards, model.gamma) if samples.discounts is None else samples.discounts
    return samples.rewards.new_zeros(size), plain * (1 + eta * (1 - share))
