"""Where SBX, Stable-Baselines3 in JAX, keeps V(s): the same formulas as in `values`, compiled, on train states.

SBX samples CPU tensors and turns them to NumPy itself, so tensors come in and go out here too. Only a model of SBX
leads to this module: it alone imports JAX.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bsrs.sb3.values import Clock, Observations, Reader, gradient_clock

# A formula's arguments: how each network is applied, its parameters, the observations, a seed, quantiles to keep.
Formula = Callable[[Any, Any, Any, Any, int], Any]


def _greedy(apply: Any, params: Any, obs: Any, seed: Any, kept: int) -> Any:
    """DQN: `max_a Q(s, a)`."""
    return apply[0](params[0], obs).max(axis=1)


def _at_policy(apply: Any, params: Any, obs: Any, seed: Any, kept: int) -> Any:
    """TD3, DDPG: `min_i Q_i(s, pi(s))`."""
    action = apply[0](params[0], obs)  # (B, A)
    return _min_over_critics(apply[1], params[1], obs, action, jax.random.PRNGKey(seed))


def _soft(apply: Any, params: Any, obs: Any, seed: Any, kept: int) -> Any:
    """SAC, CrossQ: `min_i Q_i(s, a) - alpha log pi(a|s)` at one action drawn from the policy."""
    action, log_prob, key = _draw(apply[0], params[0], obs, seed)
    return _min_over_critics(apply[1], params[1], obs, action, key) - apply[2](params[2]) * log_prob


def _truncated(apply: Any, params: Any, obs: Any, seed: Any, kept: int) -> Any:
    """TQC: the mean of the pooled quantiles without the highest ones, minus `alpha log pi(a|s)`."""
    action, log_prob, key = _draw(apply[0], params[0], obs, seed)
    critics = zip(apply[1:3], params[1:3], strict=True)
    each = [critic(its_params, obs, action, rngs={"dropout": key}) for critic, its_params in critics]
    quantiles = jnp.sort(jnp.concatenate(each, axis=1))  # (B, critics * quantiles)
    return quantiles[:, :kept].mean(axis=1) - apply[3](params[3]) * log_prob


def _draw(apply: Any, params: Any, obs: Any, seed: Any) -> tuple[Any, Any, Any]:
    """One action per state from the policy, its log probability, and a key for the critics' dropout."""
    action_key, dropout_key = jax.random.split(jax.random.PRNGKey(seed))
    policy = apply(params, obs)
    action = policy.sample(seed=action_key)  # (B, A)
    return action, policy.log_prob(action), dropout_key


def _min_over_critics(apply: Any, params: Any, obs: Any, action: Any, dropout_key: Any) -> Any:
    q = apply(params, obs, action, rngs={"dropout": dropout_key})  # (critics, B, 1)
    return q.min(axis=0)[:, 0]


def _copy_clock(model: Any, updates: float) -> tuple[float, float]:
    """As `copy_clock`; SBX has divided the interval by the number of envs itself."""
    return model._n_calls, model.target_update_interval / max(model.tau, 1e-12)


def _reader(
    formula: Formula, *parts: str, clock: Clock | None = gradient_clock, distributional: bool = False
) -> Reader:
    """Return the reader of the algorithm whose train states are called `parts`."""
    compiled = jax.jit(formula, static_argnames=("apply", "kept"))

    def read(model: Any, obs: Observations, network: str, rng: np.random.Generator) -> torch.Tensor:
        if isinstance(obs, dict):  # joined in the order in which SBX joins them
            obs = torch.cat([obs[key] for key in model.observation_space], dim=1)
        states = [getattr(model if part == "ent_coef_state" else model.policy, part) for part in parts]
        apply = tuple(state.apply_fn for state in states)
        params = [_params(state, network) for state in states]
        kept = vars(model.policy).get("n_target_quantiles", 0)
        values = compiled(apply, params, obs.numpy(), int(rng.integers(2**31)), kept)
        return torch.from_numpy(np.array(values))  # a copy: what JAX shares is read-only, which PyTorch warns of

    return Reader(read, clock, distributional)


def _params(state: Any, network: str) -> Any:
    """A train state's parameters as `apply` takes them. CrossQ's batch-norm statistics are read and left alone."""
    fields = vars(state)
    params = fields.get("target_params", state.params) if network == "target" else state.params
    stats = {"batch_stats": fields["batch_stats"]} if "batch_stats" in fields else {}
    return params if "params" in params else {"params": params, **stats}


READERS = {
    "DQN": _reader(_greedy, "qf_state", clock=_copy_clock),
    "TD3": _reader(_at_policy, "actor_state", "qf_state"),
    "DDPG": _reader(_at_policy, "actor_state", "qf_state"),
    "SAC": _reader(_soft, "actor_state", "qf_state", "ent_coef_state"),
    "TQC": _reader(_truncated, "actor_state", "qf1_state", "qf2_state", "ent_coef_state", distributional=True),
    "CrossQ": _reader(_soft, "actor_state", "qf_state", "ent_coef_state", clock=None),
}
