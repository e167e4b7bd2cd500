"""A whole TD3 update as one compiled call. It equals `bsrs.agents.td3.TD3Agent.train_on`."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from typing import Any

import numpy as np

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


class TD3Kernel(ActorCriticKernel):
    """The compiled update and acting of a `TD3Agent`."""

    name = "TD3"

    def _set_up(self) -> None:
        config = self.agent.config
        self._target_actor = FlatNetworks(self.agent.target_actor, None)
        self._numbers = np.array(
            [config.gamma, config.tau, config.target_policy_noise, config.target_noise_clip], np.float32
        )

    def _step(self, rows: Any, *, compile_only: bool = False) -> None:
        agent, actor, critics, config = self.agent, self._actor, self._critics, self.agent.config
        actor_due = not compile_only and agent.updates % config.policy_delay == 0
        if compile_only:
            noise = np.zeros((agent.members, 1, agent.actions.size), np.float32)
            settings = actor.settings.copy(), critics.settings.copy()
        else:
            noise = agent.noise("noise", config.batch_size, agent.actions.size)
            settings = actor.adam_settings() if actor_due else actor.settings, critics.adam_settings()
            agent.records.count += actor_due
        td3_step(
            self._sizes, self._critic_sizes, self._replay, agent.replay.added, rows, noise, actor_due,
            (actor.params, actor.exp_avg, actor.exp_avg_sq, self._target_actor.params),
            (critics.params, critics.exp_avg, critics.exp_avg_sq, self._target_critics.params),
            actor.learning_rate, settings, self._coefficients, self._numbers, self._options,
            self._records, self._work,
        )  # fmt: skip


@compiled(nogil=True, error_model="numpy")
def td3_step(
    sizes, critic_sizes, replay, added, rows, noise, actor_due, actor_arrays, critic_arrays, learning_rate,
    settings, coefficients, numbers, options, records, work,
):  # fmt: skip
    """Take one gradient step for every member; `rows` (P, B) are those of the replay to learn from."""
    members, B = rows.shape
    n_obs, A, width, n_actor, n_critic = sizes[0], sizes[-1], critic_sizes[0], n_params(sizes), n_params(critic_sizes)
    gamma, tau, target_noise, noise_clip = numbers
    from_target, replayed, keep_terminal, n_step, n_envs, n = options
    actors, actor_avg, actor_avg_sq, target_actors = actor_arrays
    critics, critic_avg, critic_avg_sq, target_critics = critic_arrays
    one, units, nothing = np.float32(1), B * hidden_units(critic_sizes), work[:0]
    x, at = take(work, 0, 2 * B * n_obs)
    pairs, at = take(work, at, B * width)  # of s and the replayed action
    policy_pairs, at = take(work, at, 2 * B * width)  # of s and s' and the policy's actions
    next_pairs, at = take(work, at, B * width)  # of s' and the target's action
    hidden, at = take(work, at, 2 * B * hidden_units(sizes))
    critic_hidden, at = take(work, at, n * units)
    spare, at = take(work, at, 2 * units)
    scratch, at = take(work, at, 2 * B * max(widest(sizes), widest(critic_sizes)))
    gradient, at = take(work, at, max(n_actor, n_critic))
    action, at = take(work, at, B * A)
    next_action, at = take(work, at, B * A)
    policy, at = take(work, at, 2 * B * A)
    grad_policy, at = take(work, at, B * A)
    grad_pairs, at = take(work, at, B * width)
    q, at = take(work, at, n * B)
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
        shaped = eta != 0 or factor != 1
        gather(replay, p, rows[p], added, n_step, n_envs, gamma, keep_terminal, one,
               x, reward, discount, potential_discount)  # fmt: skip
        gather_actions(replay[2], p, rows[p], action)
        there = x[B * n_obs :]

        # The target: the least target critic at the target actor's action, with clipped noise.
        forward(there, B, target_actors[p], sizes, hidden, next_action)
        for b in range(B):
            for k in range(A):
                shift = min(max(noise[p, b, k] * target_noise, -noise_clip), noise_clip)
                next_action[b * A + k] = min(max(np.tanh(next_action[b * A + k]) + shift, -one), one)
        join(there, next_action, B, n_obs, A, next_pairs)
        min_q(target_critics, first, n, next_pairs, B, critic_sizes, spare, q_spare, bootstrap)

        # The online critics at the replayed action, and the policy's actions where they are needed.
        join(x, action, B, n_obs, A, pairs)
        for i in range(n):
            own = critic_hidden[i * units : (i + 1) * units]
            forward(pairs, B, critics[first + i], critic_sizes, own, q[i * B : (i + 1) * B])
        needs_next = share != 0 or from_target
        policy_rows = 2 * B if shaped and not replayed and needs_next else B
        if actor_due or (shaped and not replayed):
            forward(x, policy_rows, actors[p], sizes, hidden, policy)
            for k in range(policy_rows * A):
                policy[k] = np.tanh(policy[k])
            join(x, policy, policy_rows, n_obs, A, policy_pairs)

        if shaped:
            networks = target_critics if from_target else critics
            if not replayed:
                min_q(networks, first, n, policy_pairs, policy_rows, critic_sizes, spare, q_spare, values)
            else:
                min_q(networks, first, n, pairs, B, critic_sizes, spare, q_spare, values)
                if needs_next:
                    min_q(networks, first, n, next_pairs, B, critic_sizes, spare, q_spare, values[B:])
        shaping = shaped_targets(reward, discount, potential_discount, bootstrap, values, values[B:], eta, share,
                                 factor, from_target, target)  # fmt: skip

        loss = 0.0
        for i in range(n):
            for b in range(B):
                error = q[i * B + b] - target[b]
                grad[b] = 2 * error / B
                loss += error * error / B
            own, row = critic_hidden[i * units : (i + 1) * units], first + i
            backward(pairs, B, own, B, critics[row], critic_sizes, grad, gradient[:n_critic], nothing, scratch)
            adam(critics[row][:n_critic], gradient[:n_critic], critic_avg[row], critic_avg_sq[row], learning_rate,
                 settings[1])  # fmt: skip
        if not actor_due:
            continue

        # The actor: one step uphill on the first critic.
        forward(policy_pairs, B, critics[first], critic_sizes, spare, q_spare)
        for b in range(B):
            grad[b] = -one / B
        backward(policy_pairs, B, spare, B, critics[first], critic_sizes, grad, nothing, grad_pairs, scratch)
        for b in range(B):
            for k in range(A):
                own_action = policy[b * A + k]
                grad_policy[b * A + k] = grad_pairs[b * width + n_obs + k] * (one - own_action * own_action)
        backward(x, B, hidden, policy_rows, actors[p], sizes, grad_policy, gradient[:n_actor], nothing, scratch)
        adam(actors[p][:n_actor], gradient[:n_actor], actor_avg[p], actor_avg_sq[p], learning_rate, settings[0])
        polyak(actors[p], target_actors[p], tau)
        for i in range(n):
            polyak(critics[first + i], target_critics[first + i], tau)
        record(records[0], records[1], p, loss, q_spare[:B], q, shaping)
