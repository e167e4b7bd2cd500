"""`Envs`: n copies of one env for one member, with the state that an interrupted run needs to resume exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsrs.envs.single import Single
from bsrs.envs.spec import EnvSpec
from bsrs.errors import BadInput, say
from bsrs.rng import stream_seed

Arrays = dict[str, NDArray[Any]]


class Episode(NamedTuple):
    """A finished episode. On Atari it is the whole game with all its lives."""

    score: float
    """Sum of the raw rewards."""
    length: int
    """Number of agent steps."""


class Buffers(NamedTuple):
    """Arrays that receive the outcome of a step. With n copies, the first axis is n."""

    obs: NDArray[Any]  # (n, *obs_shape)
    """Observation to act on next. After the end of an episode, it is the first of the new one."""
    next_obs: NDArray[Any]  # (n, *obs_shape)
    """Next observation of this transition, also at the end of an episode."""
    reward: NDArray[np.float32]  # (n,)
    terminated: NDArray[np.bool_]  # (n,)
    truncated: NDArray[np.bool_]  # (n,)

    @staticmethod
    def empty(spec: EnvSpec, *shape: int) -> Buffers:
        """Create buffers of a shape such as (n,), or (P, n) for P members."""
        return Buffers(
            np.empty((*shape, *spec.obs_shape), spec.obs_dtype),
            np.empty((*shape, *spec.obs_shape), spec.obs_dtype),
            np.empty(shape, np.float32),
            np.empty(shape, np.bool_),
            np.empty(shape, np.bool_),
        )

    def of(self, member: int) -> Buffers:
        """Return views of one member's part."""
        return Buffers(*(array[member] for array in self))


class Envs:
    """n copies of one env that step together. Every step is a real transition; resets do not cost one.

    Episode e of copy i starts from the stream `("env", i, e)` of the seed. So the state of a copy is e and the actions
    since its start, and `load_state` replays them.
    """

    def __init__(self, spec: EnvSpec, copies: Sequence[Single], seed: int) -> None:
        self.spec = spec
        self.n = len(copies)
        self.seed = seed
        self.write_into(Buffers.empty(spec, self.n))
        self._copies = list(copies)
        self._episode = [-1] * self.n
        self._actions: list[list[Any]] = [[] for _ in copies]
        self._return = [0.0] * self.n

    def write_into(self, buffers: Buffers) -> None:
        """Write the outcome of every step into these buffers from now on."""
        self.buffers = buffers

    def reset(self) -> NDArray[Any]:
        """Start the next episode in every copy."""
        for i in range(self.n):
            self.buffers.obs[i] = self._begin_next(i)
        return self.buffers.obs

    def step(self, action: NDArray[Any]) -> list[Episode]:
        """Act in every copy and return the episodes that ended.

        `action` is (n,) integers, or (n, k) floats in the env's units.
        """
        obs, next_obs, reward, terminated, truncated = self.buffers
        ended: list[Episode] = []
        for copy, past, one in zip(self._copies, self._actions, self.unpacked(action), strict=True):
            copy.send(one)  # Atari's copies work in threads of their own until they are asked
            past.append(one)
        for i, copy in enumerate(self._copies):
            obs[i], next_obs[i], reward[i], terminated[i], truncated[i], score, over = copy.receive()
            self._return[i] += score
            if over:
                ended.append(Episode(self._return[i], len(self._actions[i])))
                obs[i] = self._begin_next(i)
        return ended

    def step_some(self, copies: Sequence[int], actions: Sequence[Any]) -> tuple[NDArray[Any], list[bool]]:
        """Act in `copies` only, and start no new episodes.

        Returns the next observations, (k, *obs_shape), and whose episode is over. `returns` has the scores.
        """
        for i, action in zip(copies, actions, strict=True):
            self._copies[i].send(action)
        obs = np.empty((len(copies), *self.spec.obs_shape), self.spec.obs_dtype)
        over = []
        for k, i in enumerate(copies):
            obs[k], *_, score, is_over = self._copies[i].receive()
            self._return[i] += score
            over.append(is_over)
        return obs, over

    @property
    def returns(self) -> list[float]:
        """Raw score of each copy in its current episode."""
        return list(self._return)

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first copy, (height, width, 3)."""
        return self._copies[0].render()

    def close(self) -> None:
        for copy in self._copies:
            copy.close()

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return the state of every copy, as arrays and JSON-compatible data."""
        past = [np.reshape(past, (len(past), *self.spec.action_shape)) for past in self._actions]
        arrays = {
            "episode": np.array(self._episode, np.int64),
            "count": np.array([len(actions) for actions in past], np.int64),
            "action": np.concatenate(past).astype(np.int64 if self.spec.n_actions else np.float32),
            "obs": self.buffers.obs.copy(),
        }
        for i, copy in enumerate(self._copies):
            arrays |= {f"statistics/{i}/{name}": array for name, array in copy.statistics().items()}
        return arrays, {"env": self.spec.env, "n": self.n, "seed": self.seed}

    def load_state(self, arrays: Arrays, meta: dict[str, Any]) -> NDArray[Any]:
        """Restore what `state` returned, and return the observation to act on."""
        mine = {"env": self.spec.env, "n": self.n, "seed": self.seed}
        if meta != mine:
            raise BadInput(f"the saved envs are {meta}; expected {mine}")
        obs = self.buffers.obs
        self._load_statistics(arrays, freeze=True)  # the replayed steps are counted already
        for i in range(self.n):
            obs[i] = self._begin(i, int(arrays["episode"][i]))
        ends = np.cumsum(arrays["count"])
        self._actions = [self.unpacked(a) for a in np.split(arrays["action"], ends[:-1])]
        lost = [i for i in range(self.n) if not self._replay(i) or not np.array_equal(obs[i], arrays["obs"][i])]
        if lost:
            say(
                f"env {self.spec.env!r} did not come back to its saved state: it is not deterministic, or remembers"
                " something from one episode to the next. The interrupted episode begins again"
            )
        for i in lost:
            obs[i] = self._begin(i, int(arrays["episode"][i]))
        self._load_statistics(arrays, freeze=False)
        return obs

    def _replay(self, i: int) -> bool:
        """Play the actions of copy i again; whether its episode went on as long as they last."""
        for action in self._actions[i]:
            obs, over = self.step_some([i], [action])
            self.buffers.obs[i] = obs[0]
            if over[0]:
                return False
        return True

    def _load_statistics(self, arrays: Arrays, *, freeze: bool) -> None:
        for i, copy in enumerate(self._copies):
            prefix = f"statistics/{i}/"
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            copy.load_statistics(own, freeze=freeze)

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

    def unpacked(self, action: NDArray[Any]) -> list[Any]:
        """Split a batch of actions into Python integers, or into one vector per copy."""
        return action.tolist() if self.spec.n_actions is not None else list(np.array(action, np.float32))
