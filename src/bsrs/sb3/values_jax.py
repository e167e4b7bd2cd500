"""Where SBX, Stable-Baselines3 in JAX, keeps V(s): the same readers as `values`, on train states.

SBX samples CPU tensors and turns them to NumPy itself, so tensors come in and go out here too. Only a model of SBX
leads to this module: it alone imports JAX.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bsrs.sb3.values import ONLINE_ONLY, Observations, Reader


def greedy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """DQN: `max_a Q(s, a)`."""
    state = model.policy.qf_state
    return _to_torch(_greedy(state.apply_fn, _params(state, network), _to_numpy(model, obs)))


def policy_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TD3, DDPG: `min_i Q_i(s, pi(s))`."""
    actor, critic = model.policy.actor_state, model.policy.qf_state
    params = _params(actor, network), _params(critic, network)
    return _to_torch(_at_policy((actor.apply_fn, critic.apply_fn), params, _to_numpy(model, obs), _key(rng)))


def soft_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """SAC: `min_i Q_i(s, a) - alpha log pi(a|s)` at one action drawn from the policy."""
    states = model.policy.actor_state, model.policy.qf_state, model.ent_coef_state
    params = states[0].params, _params(states[1], network), {"params": states[2].params}
    return _to_torch(_soft(_applies(*states), params, _to_numpy(model, obs), _key(rng)))


def batch_norm_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """CrossQ: as SAC; its networks read their batch-norm statistics, and leave them alone unless told to train."""
    states = model.policy.actor_state, model.policy.qf_state, model.ent_coef_state
    params = *({"params": s.params, "batch_stats": s.batch_stats} for s in states[:2]), {"params": states[2].params}
    return _to_torch(_soft(_applies(*states), params, _to_numpy(model, obs), _key(rng)))


def truncated_value(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
    """TQC: the mean of the pooled quantiles without the highest ones, minus `alpha log pi(a|s)`."""
    policy = model.policy
    states = policy.actor_state, policy.qf1_state, model.ent_coef_state
    critics = tuple(_params(critic, network) for critic in (policy.qf1_state, policy.qf2_state))
    params = states[0].params, critics, {"params": states[2].params}
    values = _truncated(_applies(*states), params, _to_numpy(model, obs), _key(rng), policy.n_target_quantiles)
    return _to_torch(values)


READERS = {
    "DQN": Reader(greedy_value),
    "TD3": Reader(policy_value),
    "DDPG": Reader(policy_value),
    "SAC": Reader(soft_value),
    "TQC": Reader(truncated_value),
    "CrossQ": Reader(batch_norm_value, ONLINE_ONLY),
}


# --------------------------------------------------------------------------------------------------------------
# The arithmetic, compiled. `apply` is how the networks (actor, critic, temperature) are applied, `params` to what.


def _greedy_body(apply: Any, params: Any, obs: Any) -> Any:
    return apply(params, obs).max(axis=1)


def _at_policy_body(apply: Any, params: Any, obs: Any, key: Any) -> Any:
    action = apply[0](params[0], obs)  # (B, A)
    return _lowest(apply[1], params[1], obs, action, key)


def _soft_body(apply: Any, params: Any, obs: Any, key: Any) -> Any:
    action, log_prob, dropout_key = _draw(apply[0], params[0], obs, key)
    return _lowest(apply[1], params[1], obs, action, dropout_key) - apply[2](params[2]) * log_prob


def _truncated_body(apply: Any, params: Any, obs: Any, key: Any, kept: int) -> Any:
    action, log_prob, dropout_key = _draw(apply[0], params[0], obs, key)
    each = [apply[1](critic, obs, action, rngs={"dropout": dropout_key}) for critic in params[1]]
    quantiles = jnp.sort(jnp.concatenate(each, axis=1))  # (B, critics * quantiles)
    return quantiles[:, :kept].mean(axis=1) - apply[2](params[2]) * log_prob


def _draw(apply: Any, params: Any, obs: Any, key: Any) -> tuple[Any, Any, Any]:
    """One action per state from the policy, its log probability, and a key for the critics' dropout."""
    action_key, dropout_key = jax.random.split(key)
    policy = apply(params, obs)
    action = policy.sample(seed=action_key)  # (B, A)
    return action, policy.log_prob(action), dropout_key


def _lowest(apply: Any, params: Any, obs: Any, action: Any, dropout_key: Any) -> Any:
    q = apply(params, obs, action, rngs={"dropout": dropout_key})  # (critics, B, 1)
    return q.min(axis=0)[:, 0]


_greedy = jax.jit(_greedy_body, static_argnames="apply")
_at_policy = jax.jit(_at_policy_body, static_argnames="apply")
_soft = jax.jit(_soft_body, static_argnames="apply")
_truncated = jax.jit(_truncated_body, static_argnames=("apply", "kept"))


def _applies(*states: Any) -> tuple[Any, ...]:
    return tuple(state.apply_fn for state in states)


def _params(state: Any, network: str) -> Any:
    return state.params if network == "online" else state.target_params


def _key(rng: np.random.Generator) -> Any:
    return jax.random.PRNGKey(int(rng.integers(2**31)))


def _to_numpy(model: Any, obs: Observations) -> Any:
    """Dict observations are joined in the order in which SBX joins them."""
    if isinstance(obs, dict):
        return np.concatenate([obs[key].numpy() for key in model.observation_space], axis=1)
    return obs.numpy()


def _to_torch(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(values))  # a copy: what JAX shares is read-only, which PyTorch warns of
