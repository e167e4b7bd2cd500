"""`Envs`: n copies of one env for one member, with the state that makes a stopped run continue bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsrs.envs.single import Single
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput, EnvFault
from bsrs.rng import stream_seed

Arrays = dict[str, NDArray[Any]]


class Step(NamedTuple):
    """One step of n copies. The arrays are the caller's to keep, but not to write into: two may be the same."""

    obs: NDArray[Any]  # (n, *obs_shape)
    """To act on next: the first of a new episode where one ended."""
    final_obs: NDArray[Any]  # (n, *obs_shape)
    """The true next observation of this transition: what belongs to its reward."""
    reward: NDArray[np.float32]  # (n,)
    terminated: NDArray[np.bool_]  # (n,)
    truncated: NDArray[np.bool_]  # (n,)
    episode_env: NDArray[np.int64]  # (k,)
    """Which copies finished a real episode in this step; of Atari that is the whole game, over all its lives."""
    episode_return: NDArray[np.float64]  # (k,)
    """Their raw scores."""
    episode_length: NDArray[np.int64]  # (k,)
    """Their lengths in steps of the agent."""


_NO_EPISODES = (np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64))


class Envs:
    """n copies of one env. Every step of every copy is a real transition: a reset never costs one.

    Episode e of copy i begins from the named stream `("env", i, e)` of the seed, so the state of a copy is e and the
    actions taken since: `load_state` plays them again.
    """

    def __init__(self, spec: EnvSpec, copies: Sequence[Single], seed: int) -> None:
        self.spec = spec
        self.n = len(copies)
        self._shape = (self.n, *spec.obs_shape)
        self.seed = seed
        self._copies = list(copies)
        self._episode = [-1] * self.n
        self._actions: list[list[Any]] = [[] for _ in copies]
        self._return = [0.0] * self.n
        self._obs: NDArray[Any] | None = None

    def reset(self) -> NDArray[Any]:
        """Begin the next episode in every copy."""
        obs = np.empty(self._shape, self.spec.obs_dtype)
        for i in range(self.n):
            obs[i] = self._begin_next(i)
        self._obs = obs
        return obs

    def step(self, action: NDArray[Any]) -> Step:
        """Act in every copy. `action` is (n,) integers, or (n, k) floats in the env's own units."""
        for copy, past, one in zip(self._copies, self._actions, self.unpacked(action), strict=True):
            copy.send(one)  # Atari's copies work in threads of their own until they are asked
            past.append(one)
        outcomes = [copy.receive() for copy in self._copies]
        final_obs = np.empty(self._shape, self.spec.obs_dtype)
        begun = []  # copies whose next observation is the first of something: a game or a life
        for i, outcome in enumerate(outcomes):
            final_obs[i] = outcome.final_obs
            self._return[i] += outcome.score
            if outcome.over or outcome.obs is not outcome.final_obs:
                begun.append(i)
        obs, episodes = final_obs, _NO_EPISODES
        if begun:
            obs = final_obs.copy()
            episodes = self._finished([i for i in begun if outcomes[i].over])
            for i in begun:
                obs[i] = self._begin_next(i) if outcomes[i].over else outcomes[i].obs
        self._obs = obs
        _, _, reward, terminated, truncated, _, _ = zip(*outcomes, strict=True)
        return Step(
            obs,
            final_obs,
            np.array(reward, np.float32),
            np.array(terminated, np.bool_),
            np.array(truncated, np.bool_),
            *episodes,
        )

    def step_some(self, copies: Sequence[int], actions: Sequence[Any]) -> tuple[NDArray[Any], list[bool]]:
        """Act in `copies` only, k of them, and begin no new episode where one ends: the observations that follow,
        (k, *obs_shape), and whose real episode is over. `returns` has the scores."""
        for i, action in zip(copies, actions, strict=True):
            self._copies[i].send(action)
        obs = np.empty((len(copies), *self.spec.obs_shape), self.spec.obs_dtype)
        over = []
        for k, i in enumerate(copies):
            outcome = self._copies[i].receive()
            self._return[i] += outcome.score
            obs[k] = outcome.obs
            over.append(outcome.over)
        return obs, over

    @property
    def returns(self) -> list[float]:
        """The raw score of every copy since its episode began."""
        return list(self._return)

    def render(self) -> NDArray[np.uint8]:
        """A picture of the first copy, (height, width, 3)."""
        return self._copies[0].render()

    def close(self) -> None:
        for copy in self._copies:
            copy.close()

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Where every copy is, as arrays and JSON-able data."""
        assert self._obs is not None, "reset comes before state"
        past = [np.reshape(past, (len(past), *self.spec.action_shape)) for past in self._actions]
        arrays = {
            "episode": np.array(self._episode, np.int64),
            "count": np.array([len(actions) for actions in past], np.int64),
            "action": np.concatenate(past).astype(np.int64 if self.spec.n_actions else np.float32),
            "obs": self._obs,
        }
        return arrays, {"env": self.spec.env, "n": self.n, "seed": self.seed}

    def load_state(self, arrays: Arrays, meta: dict[str, Any]) -> NDArray[Any]:
        """Go to where `state` was taken, and return the observation to act on."""
        mine = {"env": self.spec.env, "n": self.n, "seed": self.seed}
        if meta != mine:
            raise BadInput(f"the saved envs are {meta}; expected {mine}")
        obs = np.empty(self._shape, self.spec.obs_dtype)
        for i in range(self.n):
            obs[i] = self._begin(i, int(arrays["episode"][i]))
        ends = np.cumsum(arrays["count"])
        self._actions = [self.unpacked(a) for a in np.split(arrays["action"], ends[:-1])]
        for t in range(max(map(len, self._actions))):
            busy = [i for i in range(self.n) if t < len(self._actions[i])]
            obs[busy], _ = self.step_some(busy, [self._actions[i][t] for i in busy])
        if not np.array_equal(obs, arrays["obs"]):
            raise EnvFault(f"env {self.spec.env!r} did not come back to its saved state: it is not deterministic")
        self._obs = obs
        return obs

    def _begin_next(self, i: int) -> NDArray[Any]:
        """The first observation of the next episode of copy i."""
        self._episode[i] += 1
        self._actions[i] = []
        self._return[i] = 0.0
        return self._copies[i].reset(self._seed_of(i, self._episode[i]))

    def _begin(self, i: int, episode: int) -> NDArray[Any]:
        """The first observation of that episode, from the last seed before it."""
        self._episode[i] = episode - episode % self._copies[i].seed_every - 1
        while self._episode[i] < episode:
            obs = self._begin_next(i)
        return obs

    def _seed_of(self, i: int, episode: int) -> int | None:
        seeded = episode % self._copies[i].seed_every == 0
        return stream_seed(self.seed, "env", i, episode) if seeded else None

    def _finished(self, over: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        if not over:
            return _NO_EPISODES
        returns = np.array([self._return[i] for i in over], np.float64)
        lengths = np.array([len(self._actions[i]) for i in over], np.int64)
        return np.array(over, np.int64), returns, lengths

    def unpacked(self, action: NDArray[Any]) -> list[Any]:
        """Plain integers, which envs take most quickly, or one vector per copy that is the env's to keep."""
        return action.tolist() if self.spec.n_actions is not None else list(np.array(action, np.float32))
