"""Sampled learning on tables: Q-learning and SARSA(0), with any potential and any shape-scale.

K runs (etas x seeds) advance together as one vectorised computation. Each draws only from its own seed's stream, so a
run does not depend on the others, and runs with the same seed see the same randomness at every eta. On a table with
one action per state, `MDP.following`, Q-learning is TD(0).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from bsrs.rng import stream
from bsrs.shaping import Shaping
from bsrs.tabular.mdp import MDP, Floats, Ints, check_gamma

Rule = Literal["q-learning", "sarsa"]
# A learning rate: a number, or a function of how often the state and action have been updated (from 1 on).
Rate = float | Callable[[Floats], Floats]

# Random numbers are drawn for this many steps at a time.
CHUNK = 512


@dataclass(frozen=True, eq=False)
class Transition:
    """One step of K runs. Every field is (K,)."""

    state: Ints
    action: Ints
    reward: Floats
    next_state: Ints
    terminated: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of K runs, with the error during learning."""

    q: Floats  # (K, S, A)
    steps: Ints  # (R,) when a record was taken
    error: Floats  # (R, K) sup-norm distance of the unshaped estimate V + phi from `reference`; NaN without one


def learn(
    mdp: MDP,
    gamma: float,
    *,
    rule: Rule = "q-learning",
    shaping: Shaping | None = None,
    seeds: Sequence[int] = (0,),
    steps: int = 10_000,
    alpha: Rate = 0.1,
    epsilon: float = 0.1,
    episode_steps: int = 200,
    init: npt.ArrayLike = 0.0,
    reference: Floats | None = None,
    record_every: int = 100,
) -> Learned:
    """Learn with Q-learning or SARSA in K = len(seeds) runs with an epsilon-greedy policy.

    `Shaping(Constant(etas))` gives each run its own eta, (K,). Episodes start in the MDP's start distribution. They are
    truncated after `episode_steps` steps, and values bootstrap there.
    """
    check_gamma(gamma)
    shaping = shaping or Shaping(0.0)
    q = np.array(np.broadcast_to(np.asarray(init, dtype=np.float64), (len(seeds), *mdp.rewards.shape)))
    visits, runs = np.zeros_like(q), np.arange(len(seeds))
    records, errors = list[int](), list[Floats]()
    walk = _Walk(mdp, seeds, episode_steps)
    action = _epsilon_greedy(q[runs, walk.state], epsilon, walk.draw())
    for step in range(steps):
        move = walk.step(action)
        draws = walk.draw()
        next_action = _epsilon_greedy(q[runs, move.next_state], epsilon, draws) if rule == "sarsa" else move.action
        target = action_target(q, move, next_action, gamma, rule, shaping, epsilon, step)
        taken = (runs, move.state, move.action)
        visits[taken] += 1
        q[taken] += (alpha(visits[taken]) if callable(alpha) else alpha) * (target - q[taken])
        # SARSA continues with the action it learned from, except where a new episode has begun meanwhile.
        fresh = _epsilon_greedy(q[runs, walk.state], epsilon, draws)
        action = np.where(walk.restarted, fresh, next_action) if rule == "sarsa" else fresh
        if (step + 1) % record_every == 0:
            estimate = _unshaped(q.max(axis=2), shaping, step)
            records.append(step + 1)
            errors.append(np.abs(estimate - (np.nan if reference is None else reference)).max(axis=1))
    return Learned(q, np.array(records), np.array(errors))


# --------------------------------------------------------------------------------------------------------------
# The TD target.


def action_target(
    q: Floats,
    move: Transition,
    next_action: Ints,
    gamma: float,
    rule: Rule,
    shaping: Shaping,
    epsilon: float = 0.0,
    step: int = 0,
) -> Floats:
    """Return the target of Q(s, a), (K,): the shaped reward plus the discounted value of the next state.

    V of the potential is the value of the policy that is learned: the maximum of Q for Q-learning, and the mean of Q
    under the epsilon-greedy policy for SARSA.
    """
    runs = np.arange(len(q))
    here, there = q[runs, move.state], q[runs, move.next_state]
    if rule == "q-learning":
        value, next_value = here.max(axis=1), there.max(axis=1)
        bootstrap = next_value
    else:
        value, next_value = _epsilon_mean(here, epsilon), _epsilon_mean(there, epsilon)
        bootstrap = there[runs, next_action]
    states = {"state": move.state, "next_state": move.next_state, "step": step}
    shaped = shaping(move.reward, value, next_value, gamma=gamma, terminated=move.terminated, **states)
    return cast(Floats, shaped + gamma * ~move.terminated * bootstrap)


def _unshaped(value: Floats, shaping: Shaping, step: int) -> Floats:
    """(K, S) the estimate of the unshaped value, V + phi."""
    states = np.broadcast_to(np.arange(value.shape[1])[:, None], value.T.shape)
    return cast(Floats, value + shaping.phi(states, value.T, step).T)  # runs last, where an eta per run broadcasts


def _epsilon_mean(q: Floats, epsilon: float) -> Floats:
    return cast(Floats, (1.0 - epsilon) * q.max(axis=1) + epsilon * q.mean(axis=1))


# --------------------------------------------------------------------------------------------------------------
# Sampling


@dataclass(frozen=True, eq=False)
class _Draws:
    """The random numbers of one step, uniform in [0, 1): each (K,), except for the tie-breaking keys, (K, A)."""

    explore: Floats
    pick: Floats
    ties: Floats


def _epsilon_greedy(q: Floats, epsilon: float, draws: _Draws) -> Ints:
    """(K,) actions for rows of action values; ties are broken at random, or a table of zeros would never explore."""
    best: Ints = np.where(q == q.max(axis=1, keepdims=True), draws.ties, -1.0).argmax(axis=1)
    anything: Ints = (draws.pick * q.shape[1]).astype(np.int64)
    return np.where(draws.explore < epsilon, anything, best)


class _Walk:
    """K independent walkers through one MDP."""

    def __init__(self, mdp: MDP, seeds: Sequence[int], episode_steps: int) -> None:
        self._mdp = mdp
        self._streams = [stream(seed, "walk") for seed in seeds]
        self._uniforms = self._endless_uniforms()
        self._episode_steps = episode_steps
        # One search in the running sum over all rows finds the next state of every walker at once.
        self._running_sum = np.concatenate([[0.0], mdp.transitions.data.cumsum()])
        self._next_state = np.append(mdp.transitions.indices, 0)  # an end may point one past the last entry
        self._always_goes_on = mdp.termination().ravel() == 0
        self._start = mdp.start_distribution().cumsum()
        self._age = np.zeros(len(seeds), dtype=np.int64)
        self.restarted = np.ones(len(seeds), dtype=bool)
        self.state = self._first_states(next(self._uniforms)[0])

    def draw(self) -> _Draws:
        numbers = next(self._uniforms)
        return _Draws(numbers[2], numbers[3], numbers[4:].T)

    def step(self, action: Ints) -> Transition:
        numbers = next(self._uniforms)
        state, row = self.state, self.state * self._mdp.n_actions + action
        next_state, terminated = self._next_states(row, numbers[1])
        self._age += 1
        self.restarted = terminated | (self._age >= self._episode_steps)
        self._age[self.restarted] = 0
        self.state = np.where(self.restarted, self._first_states(numbers[0]), next_state)
        return Transition(state, action, self._mdp.rewards[state, action], next_state, terminated)

    def _next_states(self, row: Ints, uniform: Floats) -> tuple[Ints, npt.NDArray[np.bool_]]:
        pointers = self._mdp.transitions.indptr
        entry = np.searchsorted(self._running_sum, self._running_sum[pointers[row]] + uniform, side="right") - 1
        last = pointers[row + 1] - 1
        entry = np.where(self._always_goes_on[row], np.minimum(entry, last), entry)  # sums may be short by rounding
        terminated = entry > last
        found = self._next_state[entry]
        return np.where(terminated, row // self._mdp.n_actions, found), terminated

    def _first_states(self, uniform: Floats) -> Ints:
        return np.minimum(np.searchsorted(self._start, uniform, side="right"), self._mdp.n_states - 1)

    def _endless_uniforms(self) -> Iterator[Floats]:
        width = 4 + self._mdp.n_actions
        while True:
            yield from np.stack([each.random((CHUNK, width)) for each in self._streams], axis=-1)
