"""What the compiled updates of TD3 and SAC share."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from typing import Any

import numpy as np
from numba import njit

from bsrs.agents.replay import ArrayReplay
from bsrs.kernels.compiling import Announcement, compiled
from bsrs.kernels.flat import FlatNetworks, aligned, mlp_sizes, padded
from bsrs.kernels.mlp import forward, hidden_units


class ActorCriticKernel:
    """The arrays that the compiled updates of TD3 and SAC work on, and acting."""

    name = ""

    def __init__(self, agent: Any) -> None:
        self.agent, config = agent, agent.config
        self._sizes = np.array(mlp_sizes(agent.actor.each[0]))
        self._critic_sizes = np.array(mlp_sizes(agent.critics.each[0].each[0]))
        self._actor = FlatNetworks(agent.actor, agent.actor_optimizer)
        self._critics = FlatNetworks(agent.critics, agent.critic_optimizer)
        self._target_critics = FlatNetworks(agent.target_critics, None)
        arrays = agent.replay.arrays
        self._replay = arrays.obs, arrays.next_obs, arrays.action, arrays.reward, arrays.terminated, arrays.truncated
        self._coefficients = np.zeros((agent.members, 3), np.float32)  # as `Shaper.coefficients` returns them
        self._records = agent.records.sums.numpy(), agent.records.spread.numpy()
        self._options = np.array(
            [
                config.potential_network == "target", config.potential == "replay", config.terminal == "keep",
                config.n_step, config.n_envs, config.n_critics,
            ]
        )  # fmt: skip
        self._work = aligned(workspace(config.batch_size, config.n_critics, self._sizes, self._critic_sizes))
        self._set_up()
        with Announcement(f"compiling {self.name}'s update; later runs load it from numba's cache"):
            self.outputs(np.zeros((agent.members, 1, *agent.spec.obs_shape), np.float32))
            self._step(np.zeros((0, 1), np.int64), compile_only=True)

    def _set_up(self) -> None:
        """Prepare what one algorithm needs beyond this."""

    def _step(self, rows: Any, *, compile_only: bool = False) -> None:
        """Call the compiled update."""
        raise NotImplementedError

    @staticmethod
    def supports(agent: Any) -> bool:
        """Whether the agent's networks, replay and shaping are those that the kernel knows."""
        networks = (agent.actor.each[0], *agent.critics.each[0].each)
        known = agent.encoder is None and all(mlp_sizes(network) for network in networks)
        return known and isinstance(agent.replay, ArrayReplay) and all(shaper.is_plain for shaper in agent.shapers)

    def outputs(self, obs: Any) -> Any:
        """What the actors return: (P, n, O) -> (P, n, outputs)."""
        x = np.ascontiguousarray(obs, np.float32)
        out = np.empty((*x.shape[:2], self._sizes[-1]), np.float32)
        run_actors(self._sizes, self._actor.params, x, out)
        return out

    def mean_action(self, obs: Any) -> Any:
        """The actions without exploration: (P, n, O) -> (P, n, A)."""
        return np.tanh(self.outputs(obs)[..., : self.agent.actions.size])

    def train(self, step: int) -> None:
        """Take one gradient step for every member."""
        agent = self.agent
        rows = agent.replay.draw_rows(agent.rngs["batches"], agent.config.batch_size)
        self._coefficients[:] = [shaper.coefficients(step) for shaper in agent.shapers]
        self._step(rows)


def workspace(batch: int, n_critics: int, sizes: Any, critic_sizes: Any) -> int:
    """Count the numbers that one member's update needs room for: the sum of what the compiled updates take."""
    units, critic_units = int(sizes[1:-1].sum()), int(critic_sizes[1:-1].sum())
    wide = max(int(sizes.max()), int(critic_sizes.max()))
    params = max(int(((each[:-1] + 1) * each[1:]).sum()) for each in (sizes, critic_sizes))
    per_row = [2 * int(sizes[0]), *[2 * int(critic_sizes[0])] * 3, 2 * units, n_critics * critic_units]
    per_row += [2 * critic_units, 4 * wide, *[2 * int(sizes[-1])] * 8, *[2 * n_critics + 2] * 8]
    return padded(params) + sum(padded(batch * each) for each in per_row) + 1024


@compiled(nogil=True)
def run_actors(sizes, params, x, out):
    """Run every member's network on its own rows: (P, n, inputs) -> (P, n, outputs)."""
    members, rows, _ = x.shape
    hidden = np.empty(rows * hidden_units(sizes), np.float32)
    for p in range(members):
        forward(x[p].ravel(), rows, params[p], sizes, hidden, out[p].ravel())


@njit
def gather_actions(actions, p, rows, out):
    """Copy one member's actions out of the replay."""
    size = actions.shape[2]
    for b in range(len(rows)):
        for k in range(size):
            out[b * size + k] = actions[p, rows[b], k]


@njit
def join(obs, action, rows, n_obs, n_actions, out):
    """Put observations and actions side by side, as critics take them."""
    width = n_obs + n_actions
    for b in range(rows):
        for k in range(n_obs):
            out[b * width + k] = obs[b * n_obs + k]
        for k in range(n_actions):
            out[b * width + n_obs + k] = action[b * n_actions + k]


@njit
def min_q(critics, first, n_critics, x, rows, sizes, hidden, q, out):
    """The smallest of a member's critics for each row of `x`."""
    for i in range(n_critics):
        forward(x, rows, critics[first + i], sizes, hidden, q)
        for b in range(rows):
            if i == 0 or q[b] < out[b]:
                out[b] = q[b]


@njit
def polyak(online, target, tau):
    """Move target networks towards the online networks."""
    for k in range(len(online)):
        target[k] += tau * (online[k] - target[k])


@njit
def shaped_targets(
    reward, discount, potential_discount, bootstrap, value, next_value, eta, share, factor, from_target, target
):
    """The TD targets of the shaped rewards; return the mean of what shaping adds."""
    total = 0.0
    for b in range(len(reward)):
        plain = reward[b] + discount[b] * bootstrap[b]
        target[b] = plain
        if eta != 0 or factor != 1:
            next_v = bootstrap[b] if share == 0 and not from_target else next_value[b]
            if not from_target and share != 0 and share != 1:
                next_v = share * next_v + (np.float32(1) - share) * bootstrap[b]
            shaped = factor * reward[b] + potential_discount[b] * (eta * next_v) - eta * value[b]
            target[b] = shaped + discount[b] * bootstrap[b]
            total += target[b] - plain
    return total / max(len(reward), 1)


@njit
def record(sums, spreads, p, loss, value, q, shaping):
    """Add one update to a member's records: loss, value, |advantage| and shaping."""
    mean, gap, squares, rows = 0.0, 0.0, 0.0, len(value)
    for b in range(rows):
        mean += value[b] / rows
        gap += abs(value[b] - q[b]) / rows
    for b in range(rows):
        squares += (value[b] - mean) ** 2
    sums[p, 0] += loss
    sums[p, 1] += mean
    sums[p, 2] += gap
    sums[p, 3] += shaping
    spreads[p] = np.sqrt(squares / max(rows, 1))
