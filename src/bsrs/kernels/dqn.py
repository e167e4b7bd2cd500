"""A whole DQN update as one compiled call: batch, passes, shaped TD target, gradients, clipping, Adam.

It equals `bsrs.agents.dqn.DQNAgent.train_on`; `tests/test_agent_kernels.py` holds it to that.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from typing import Any

import numpy as np
from numba import njit

from bsrs.agents.replay import ArrayReplay
from bsrs.kernels import sparse_conv
from bsrs.kernels.compiling import Announcement, compiled
from bsrs.kernels.flat import FlatNetworks, aligned, minatar_sizes, mlp_sizes, padded
from bsrs.kernels.mlp import adam, backward, forward, hidden_units, n_params, widest
from bsrs.kernels.transitions import best_action, gather, state_value, take

ONLINE, TARGET = 0, 1  # the network that the potential takes V from; `split` is ONLINE with a share of 0


class DQNKernel:
    """The compiled update and acting of a `DQNAgent`."""

    def __init__(self, agent: Any) -> None:
        self.agent, config, spec = agent, agent.config, agent.spec
        stem, sizes = minatar_sizes(agent.online.each[0]) or (0, mlp_sizes(agent.online.each[0]))
        self._stem, self._sizes = stem, np.array(sizes)
        self._spans = sparse_conv.row_spans(spec.obs_shape) if stem else None  # without it, no convolution is compiled
        self._online = FlatNetworks(agent.online, agent.optimizer)
        self._target = FlatNetworks(agent.target, None)
        arrays = agent.replay.arrays
        flat_obs = (array.reshape(*array.shape[:2], -1) for array in (arrays.obs, arrays.next_obs))
        self._replay = (*flat_obs, arrays.action, arrays.reward, arrays.terminated, arrays.truncated)
        self._coefficients = np.zeros((agent.members, 3), np.float32)  # as `Shaper.coefficients` returns them
        self._records = agent.records.sums.numpy(), agent.records.spread.numpy()
        self._work = aligned(workspace(config.batch_size, self._replay[0].shape[2], stem, self._sizes))
        self._numbers = np.array([config.gamma, config.temperature, 1 / spec.obs_scale], np.float32)
        network = TARGET if config.potential_network == "target" else ONLINE
        self._options = np.array([config.double, network, config.terminal == "keep", config.n_step, config.n_envs])
        with Announcement("compiling DQN's update; later runs load it from numba's cache"):
            self._compile()

    @staticmethod
    def supports(agent: Any) -> bool:
        """Whether the agent's networks, replay and shaping are those that the kernel knows."""
        network = agent.online.each[0]
        known = mlp_sizes(network) or (minatar_sizes(network) and agent.spec.obs_shape[1:] == (10, 10))
        return (
            bool(known) and isinstance(agent.replay, ArrayReplay) and all(shaper.is_plain for shaper in agent.shapers)
        )

    def _compile(self) -> None:
        """Call everything once without effect, so that compiling is announced and no run starts half-way."""
        self.q_values(np.zeros((self.agent.members, 1, *self.agent.spec.obs_shape), self.agent.spec.obs_dtype))
        self._step(np.zeros((0, 1), np.int64), np.zeros(5))

    def q_values(self, obs: Any) -> Any:
        """Q of every action: (P, n, *obs) -> (P, n, A)."""
        members, n = obs.shape[:2]
        x = np.ascontiguousarray(obs.reshape(members, n, -1), np.float32)
        if self._numbers[2] != 1:
            x = x * self._numbers[2]
        q = np.empty((members, n, self._sizes[-1]), np.float32)
        run_networks(self._spans, self._stem, self._sizes, self._online.params, x, q)
        return q

    def train(self, step: int) -> None:
        """Take one gradient step for every member."""
        agent = self.agent
        rows = agent.replay.draw_rows(agent.rngs["batches"], agent.config.batch_size)
        self._coefficients[:] = [shaper.coefficients(step) for shaper in agent.shapers]
        self._step(rows, self._online.adam_settings(agent.config.max_grad_norm))
        agent.records.count += 1

    def _step(self, rows: Any, settings: Any) -> None:
        online = self._online
        dqn_step(
            self._spans, self._stem, self._sizes, self._replay, self.agent.replay.added, rows,
            online.params, self._target.params, online.exp_avg, online.exp_avg_sq, online.learning_rate, settings,
            self._coefficients, self._numbers, self._options, self._records, self._work,
        )  # fmt: skip


def workspace(batch: int, inputs: int, stem: int, sizes: Any) -> int:
    """Count the numbers that one member's update needs room for; the order is that of `dqn_step`."""
    units, wide, outputs = int(sizes[1:-1].sum()), int(sizes[:-1].max()), int(sizes[-1])
    features = 2 * batch * int(sizes[0]) if stem else 0
    params = stem + int(((sizes[:-1] + 1) * sizes[1:]).sum())
    return sum(
        map(
            padded,
            (2 * batch * inputs, features, features, 2 * batch * units, 2 * batch * units, 2 * batch * outputs,
             2 * batch * outputs, batch * outputs, params, 2 * batch * wide, batch * int(sizes[0])),
        )
    )  # fmt: skip


@compiled(nogil=True)
def run_networks(spans, stem, sizes, params, x, out):
    """Run every member's network on its own rows: (P, n, inputs) -> (P, n, outputs)."""
    members, rows, _ = x.shape
    hidden = np.empty(rows * hidden_units(sizes), np.float32)
    for p in range(members):
        if spans is not None:
            features = np.empty((rows, sizes[0]), np.float32)
            sparse_conv.convolve(spans, x[p], params[p][:stem], features)
            forward(features.ravel(), rows, params[p][stem:], sizes, hidden, out[p].ravel())
        else:
            forward(x[p].ravel(), rows, params[p], sizes, hidden, out[p].ravel())


@njit
def _features(spans, x, params, stem, out, rows, inputs, size):
    """What the layers take: the convolution's output, or the observations themselves."""
    if spans is None:
        return x
    images = x[: rows * inputs].reshape(rows, inputs)
    sparse_conv.convolve(spans, images, params[:stem], out[: rows * size].reshape(rows, size))
    return out


@compiled(nogil=True, error_model="numpy")
def dqn_step(
    spans, stem, sizes, replay, added, rows, online, target, exp_avg, exp_avg_sq, learning_rate, settings,
    coefficients, numbers, options, records, work,
):  # fmt: skip
    """Take one gradient step for every member; `rows` (P, B) are those of the replay to learn from."""
    members, B = rows.shape
    inputs, A, units = replay[0].shape[2], sizes[-1], hidden_units(sizes)
    gamma, temperature, scale = numbers
    greedy = np.float32(0)
    double, network, keep_terminal, n_step, n_envs = options
    sums, spreads = records
    action, value, reward = np.empty(B, np.int64), np.empty(B, np.float32), np.empty(B, np.float32)
    discount, potential_discount = np.empty(B, np.float32), np.empty(B, np.float32)
    wide = 2 * B * sizes[0] if stem else 0
    x, at = take(work, 0, 2 * B * inputs)
    features, at = take(work, at, wide)
    target_features, at = take(work, at, wide)
    hidden, at = take(work, at, 2 * B * units)
    target_hidden, at = take(work, at, 2 * B * units)
    q, at = take(work, at, 2 * B * A)
    q_target, at = take(work, at, 2 * B * A)
    grad, at = take(work, at, B * A)
    gradient, at = take(work, at, stem + n_params(sizes))
    scratch, at = take(work, at, 2 * B * widest(sizes))
    grad_features, at = take(work, at, B * sizes[0] if stem else 0)
    for p in range(members):
        eta, share, factor = coefficients[p, 0], coefficients[p, 1], coefficients[p, 2]
        own, own_target = online[p][: len(gradient)], target[p]
        shaped = eta != 0 or factor != 1
        from_target = shaped and network == 1
        gather(replay, p, rows[p], added, n_step, n_envs, gamma, keep_terminal, scale,
               x, reward, discount, potential_discount)  # fmt: skip
        for b in range(B):
            action[b] = replay[2][p, rows[p, b]]
        passes = 2 * B if double or (shaped and not from_target and share != 0) else B
        given = _features(spans, x, own, stem, features, passes, inputs, sizes[0])
        forward(given, passes, own[stem:], sizes, hidden, q)
        # The target network's rows: s' alone, or s' and s.
        source = x[B * inputs :] if not from_target else x
        target_rows = B if not from_target else 2 * B
        after = 0 if not from_target else B
        given_target = _features(spans, source, own_target, stem, target_features, target_rows, inputs, sizes[0])
        forward(given_target, target_rows, own_target[stem:], sizes, target_hidden, q_target)

        loss, advantage, added_by_shaping, total, squares = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(B * A):
            grad[k] = 0
        for b in range(B):
            here, there, after_here = b * A, (after + b) * A, (B + b) * A  # where Q of s and of s' begin
            largest, bootstrap = state_value(q, here, A, greedy), state_value(q_target, there, A, temperature)
            if double:
                bootstrap = q_target[there + best_action(q, after_here, A)]
            goal = plain = reward[b] + discount[b] * bootstrap
            if shaped:
                if from_target:
                    v, next_v = (
                        state_value(q_target, here, A, temperature),
                        state_value(q_target, there, A, temperature),
                    )
                else:
                    v, next_v = state_value(q, here, A, temperature), bootstrap
                    if share != 0:
                        next_v = state_value(q, after_here, A, temperature)
                        if share != 1:
                            next_v = share * next_v + (np.float32(1) - share) * bootstrap
                goal = factor * reward[b] + potential_discount[b] * (eta * next_v) - eta * v + discount[b] * bootstrap
            q_taken = q[here + action[b]]
            error = q_taken - goal
            grad[here + action[b]] = min(max(error, np.float32(-1)), np.float32(1)) / B
            size = abs(error)
            loss += 0.5 * size * size if size < 1 else size - 0.5
            advantage += largest - q_taken
            added_by_shaping += goal - plain
            value[b] = largest
            total += largest
        if B:
            mean = total / B
            for b in range(B):
                squares += (value[b] - mean) ** 2
            sums[p, 0] += loss / B
            sums[p, 1] += mean
            sums[p, 2] += advantage / B
            sums[p, 3] += added_by_shaping / B
            spreads[p] = np.sqrt(squares / B)

        backward(given, B, hidden, passes, own[stem:], sizes, grad, gradient[stem:], grad_features, scratch)
        if spans is not None:
            sparse_conv.gradient(
                spans, x[: B * inputs].reshape(B, inputs), features.reshape(-1, sizes[0]),
                grad_features.reshape(B, sizes[0]), gradient[:stem],
            )  # fmt: skip
        adam(own, gradient, exp_avg[p], exp_avg_sq[p], learning_rate, settings)
