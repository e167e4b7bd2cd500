"""Batches and values inside compiled updates."""
# mypy: disable-error-code="no-untyped-def"

import numpy as np
from numba import njit


@njit
def gather(
    replay, p, rows, added, n_step, n_envs, gamma, keep_terminal, scale, x, reward, discount, potential_discount
):
    """Copy one member's transitions out of the replay: s into the first half of `x`, s' into the second.

    With n-step returns the next n transitions are one, fewer at an episode's end and at the newest. `discount` is that
    of the bootstrap, `potential_discount` that of the potential, which may be kept in terminal states.
    """
    obs, next_obs, _, rewards, terminated, truncated = replay
    B, size, capacity = len(rows), obs.shape[2], obs.shape[1]
    for b in range(B):
        row = last = rows[b]
        total, power = rewards[p, row], gamma
        if n_step > 1:
            later = (added - 1 - row) % capacity
            total, power = np.float32(0), np.float32(1)
            for k in range(n_step):
                if k and (terminated[p, last] or truncated[p, last] or later < k * n_envs):
                    break
                last = (row + k * n_envs) % capacity
                total += power * rewards[p, last]
                power *= gamma
        here, there = obs[p, row], next_obs[p, last]
        for k in range(size):
            x[b * size + k], x[(B + b) * size + k] = here[k], there[k]
        if scale != 1:
            for k in range(size):
                x[b * size + k] *= scale
                x[(B + b) * size + k] *= scale
        ended = terminated[p, last]
        discount[b] = np.float32(0) if ended else power
        potential_discount[b] = power if keep_terminal else discount[b]
        reward[b] = total


@njit
def take(work, at, size):
    """Cut the next `size` numbers out of a workspace; also return where the rest begins, at a cache line."""
    return work[at : at + size], at + (size + 15) // 16 * 16


@njit
def best_action(q, at, n_actions):
    """The first of the largest of the Q values that begin at `at`."""
    best = 0
    for k in range(1, n_actions):
        if q[at + k] > q[at + best] or q[at + k] != q[at + k]:
            best = k
    return best


@njit
def state_value(q, at, n_actions, temperature):
    """V of the state whose Q values begin at `at`: the largest, or tau * logsumexp(Q / tau)."""
    largest = q[at + best_action(q, at, n_actions)]
    if temperature == 0:
        return largest
    total = np.float32(0)
    for k in range(at, at + n_actions):
        total += np.exp((q[k] - largest) / temperature)
    return largest + temperature * np.log(total)
