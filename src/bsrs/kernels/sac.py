"""A whole SAC update as one compiled call. It equals `bsrs.agents.sac.SACAgent.train_on`."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

import math
from typing import Any

import numpy as np
from numba import njit

from bsrs.agents.sac import LOG_STD_RANGE, TINY
from bsrs.kernels.actor_critic import (
    ActorCriticKernel,
    gather_actions,
    join,
    min_q,
    polyak,
    record,
    shaped_targets,
)
from bsrs.kernels.compiling import compiled
from bsrs.kernels.flat import FlatNetworks
from bsrs.kernels.mlp import adam, backward, forward, hidden_units, n_params, widest
from bsrs.kernels.transitions import gather, take

_LOWEST, _HIGHEST = np.float32(LOG_STD_RANGE[0]), np.float32(LOG_STD_RANGE[1])
_TINY = np.float32(TINY)
_HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))


class SACKernel(ActorCriticKernel):
    """The compiled update and acting of a `SACAgent`."""

    name = "SAC"

    def _set_up(self) -> None:
        agent, config = self.agent, self.agent.config
        self._alphas = FlatNetworks(agent.temperatures, agent.alpha_optimizer)
        self._numbers = np.array([config.gamma, config.tau, agent.target_entropy], np.float32)

    def sampled_action(self, obs: Any, noise: Any) -> Any:
        """The actions for that noise: (P, n, n_obs), (P, n, A) -> (P, n, A)."""
        mean, log_std = np.split(self.outputs(obs), 2, axis=-1)
        return np.tanh(mean + np.exp(log_std.clip(*LOG_STD_RANGE)) * noise)

    def _step(self, rows: Any, *, compile_only: bool = False) -> None:
        agent, actor, critics, alphas = self.agent, self._actor, self._critics, self._alphas
        learn_alpha = not agent.config.fixed_alpha
        networks = actor, critics, alphas
        if compile_only:
            noise = np.zeros((agent.members, 2, 1, agent.actions.size), np.float32)
            settings = tuple(each.settings.copy() for each in networks)
        else:
            noise = agent.noise("noise", 2, agent.config.batch_size, agent.actions.size)
            counted = (each if learn_alpha or each is not alphas else None for each in networks)
            settings = tuple(alphas.settings if each is None else each.adam_settings() for each in counted)
            agent.records.count += 1
        sac_step(
            self._sizes, self._critic_sizes, self._replay, agent.replay.added, rows, noise, learn_alpha,
            (actor.params, actor.exp_avg, actor.exp_avg_sq),
            (critics.params, critics.exp_avg, critics.exp_avg_sq, self._target_critics.params),
            (alphas.params, alphas.exp_avg, alphas.exp_avg_sq),
            actor.learning_rate, settings, self._coefficients, self._numbers, self._options,
            self._records, self._work,
        )  # fmt: skip


@njit
def _sample(outputs, noise, A, action, log_prob):
    """Actions of a Gaussian squashed by tanh, and the logarithm of their density."""
    for b in range(len(noise)):
        total = np.float32(0)
        for k in range(A):
            mean, log_std = outputs[b * 2 * A + k], outputs[b * 2 * A + A + k]
            log_std = min(max(log_std, _LOWEST), _HIGHEST)
            chosen = np.tanh(mean + np.exp(log_std) * noise[b, k])
            action[b * A + k] = chosen
            gaussian = np.float32(-0.5) * noise[b, k] * noise[b, k] - log_std - _HALF_LOG_TWO_PI
            total += gaussian - np.log(np.float32(1) - chosen * chosen + _TINY)
        log_prob[b] = total


@njit
def _policy_gradient(outputs, noise, A, action, grad_action, width, offset, grad_log_prob, out):
    """The gradient in what the actor returns, given that of the actions and of each log-density."""
    for b in range(len(noise)):
        for k in range(A):
            log_std, chosen = outputs[b * 2 * A + A + k], action[b * A + k]
            inside = log_std >= _LOWEST and log_std <= _HIGHEST
            log_std = min(max(log_std, _LOWEST), _HIGHEST)
            slope = np.float32(1) - chosen * chosen
            uphill = grad_action[b * width + offset + k] + grad_log_prob * 2 * chosen / (slope + _TINY)
            out[b * 2 * A + k] = uphill * slope
            spread = np.exp(log_std) * noise[b, k]
            out[b * 2 * A + A + k] = out[b * 2 * A + k] * spread - grad_log_prob if inside else np.float32(0)


@compiled(nogil=True, error_model="numpy")
def sac_step(
    sizes, critic_sizes, replay, added, rows, noise, learn_alpha, actor_arrays, critic_arrays, alpha_arrays,
    learning_rate, settings, coefficients, numbers, options, records, work,
):  # fmt: skip
    """Take one gradient step for every member; `rows` (P, B) are those of the replay to learn from."""
    members, B = rows.shape
    n_obs, A, width = sizes[0], sizes[-1] // 2, critic_sizes[0]
    n_actor, n_critic = n_params(sizes), n_params(critic_sizes)
    gamma, tau, target_entropy = numbers
    from_target, replayed, keep_terminal, n_step, n_envs, n = options
    actors, actor_avg, actor_avg_sq = actor_arrays
    critics, critic_avg, critic_avg_sq, target_critics = critic_arrays
    alphas, alpha_avg, alpha_avg_sq = alpha_arrays
    one, units, nothing = np.float32(1), B * hidden_units(critic_sizes), work[:0]
    x, at = take(work, 0, 2 * B * n_obs)
    pairs, at = take(work, at, B * width)  # of s and the replayed action
    policy_pairs, at = take(work, at, 2 * B * width)  # of s and s' and the policy's actions
    hidden, at = take(work, at, 2 * B * hidden_units(sizes))
    critic_hidden, at = take(work, at, n * units)
    spare, at = take(work, at, 2 * units)
    scratch, at = take(work, at, 2 * B * max(widest(sizes), widest(critic_sizes)))
    gradient, at = take(work, at, max(n_actor, n_critic))
    action, at = take(work, at, B * A)
    outputs, at = take(work, at, 4 * B * A)
    policy, at = take(work, at, 2 * B * A)
    grad_outputs, at = take(work, at, 2 * B * A)
    grad_pairs, at = take(work, at, B * width)
    grad_own, at = take(work, at, B * width)
    log_prob, at = take(work, at, 2 * B)
    q, at = take(work, at, n * B)
    q_policy, at = take(work, at, n * B)
    q_spare, at = take(work, at, 2 * B)
    bootstrap, at = take(work, at, B)
    values, at = take(work, at, 2 * B)
    target, at = take(work, at, B)
    grad, at = take(work, at, B)
    reward, at = take(work, at, B)
    discount, at = take(work, at, B)
    potential_discount, at = take(work, at, B)
    for p in range(members):
        eta, share, factor, first = coefficients[p, 0], coefficients[p, 1], coefficients[p, 2], p * n
        shaped, alpha = eta != 0 or factor != 1, np.exp(alphas[p, 0])
        gather(replay, p, rows[p], added, n_step, n_envs, gamma, keep_terminal, one,
               x, reward, discount, potential_discount)  # fmt: skip
        gather_actions(replay[2], p, rows[p], action)

        # The policy's actions at s and s'.
        forward(x, 2 * B, actors[p], sizes, hidden, outputs)
        _sample(outputs, noise[p, 0, :B], A, policy, log_prob)
        _sample(outputs[2 * B * A :], noise[p, 1, :B], A, policy[B * A :], log_prob[B:])
        join(x, policy, 2 * B, n_obs, A, policy_pairs)
        if learn_alpha and B:
            mean = np.float32(0)
            for b in range(B):
                mean += log_prob[b] + target_entropy
            gradient[0] = -mean / B
            adam(alphas[p][:1], gradient[:1], alpha_avg[p], alpha_avg_sq[p], learning_rate, settings[2])

        # The target: the least target critic and the entropy at s'.
        next_pairs = policy_pairs[B * width :]
        min_q(target_critics, first, n, next_pairs, B, critic_sizes, spare, q_spare, bootstrap)
        for b in range(B):
            bootstrap[b] -= alpha * log_prob[B + b]
        join(x, action, B, n_obs, A, pairs)
        for i in range(n):
            own = critic_hidden[i * units : (i + 1) * units]
            forward(pairs, B, critics[first + i], critic_sizes, own, q[i * B : (i + 1) * B])
        if shaped:
            networks, needs_next = target_critics if from_target else critics, share != 0 or from_target
            if replayed:
                min_q(networks, first, n, pairs, B, critic_sizes, spare, q_spare, values)
                if needs_next:
                    min_q(networks, first, n, next_pairs, B, critic_sizes, spare, q_spare, values[B:])
            else:
                policy_rows = 2 * B if needs_next else B
                min_q(networks, first, n, policy_pairs, policy_rows, critic_sizes, spare, q_spare, values)
                for b in range(policy_rows):
                    values[b] -= alpha * log_prob[b]
        shaping = shaped_targets(reward, discount, potential_discount, bootstrap, values, values[B:], eta, share,
                                 factor, from_target, target)  # fmt: skip

        loss = 0.0
        for i in range(n):
            for b in range(B):
                error = q[i * B + b] - target[b]
                grad[b] = error / B
                loss += 0.5 * error * error / B
            own, row = critic_hidden[i * units : (i + 1) * units], first + i
            backward(pairs, B, own, B, critics[row], critic_sizes, grad, gradient[:n_critic], nothing, scratch)
            adam(critics[row][:n_critic], gradient[:n_critic], critic_avg[row], critic_avg_sq[row], learning_rate,
                 settings[1])  # fmt: skip

        # The actor: one step uphill on the soft value.
        for i in range(n):
            own = critic_hidden[i * units : (i + 1) * units]
            forward(policy_pairs, B, critics[first + i], critic_sizes, own, q_policy[i * B : (i + 1) * B])
        for b in range(B):
            q_spare[b], values[b] = q[b], q_policy[b]
            for i in range(1, n):
                q_spare[b] = min(q_spare[b], q[i * B + b])
                values[b] = min(values[b], q_policy[i * B + b])
        for k in range(B * width):
            grad_pairs[k] = 0
        for i in range(n):
            for b in range(B):
                is_least = q_policy[i * B + b] == values[b]
                for j in range(i):
                    is_least = is_least and q_policy[j * B + b] != values[b]
                grad[b] = -one / B if is_least else np.float32(0)
            own, row = critic_hidden[i * units : (i + 1) * units], first + i
            backward(policy_pairs, B, own, B, critics[row], critic_sizes, grad, nothing, grad_own, scratch)
            for k in range(B * width):
                grad_pairs[k] += grad_own[k]
        _policy_gradient(outputs, noise[p, 0, :B], A, policy, grad_pairs, width, n_obs, alpha / max(B, 1), grad_outputs)
        backward(x, B, hidden, 2 * B, actors[p], sizes, grad_outputs, gradient[:n_actor], nothing, scratch)
        adam(actors[p][:n_actor], gradient[:n_actor], actor_avg[p], actor_avg_sq[p], learning_rate, settings[0])
        for i in range(n):
            polyak(critics[first + i], target_critics[first + i], tau)
        for b in range(B):
            values[b] -= alpha * log_prob[b]
        record(records[0], records[1], p, loss, values[:B], q_spare, shaping)
        records[0][p, 4] += alpha
