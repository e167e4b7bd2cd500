"""MinAtar: five Atari games on a 10x10 grid, for small machines."""

import numpy as np
from minatar import Environment
from numpy.typing import NDArray

from bsrs.envs.single import Obs, Single, TimeStep

# One colour per channel, black for none. Where objects share a cell the last channel is drawn.
_COLOURS = np.array(
    [
        (0, 0, 0),
        (86, 180, 233),
        (230, 159, 0),
        (0, 158, 115),
        (240, 228, 66),
        (213, 94, 0),
        (204, 121, 167),
        (0, 114, 178),
        (255, 255, 255),
        (150, 150, 150),
        (120, 80, 40),
    ],
    dtype=np.uint8,
)


class MinAtarSingle(Single):
    """One MinAtar game, with its sticky actions and growing difficulty as published."""

    seed_every = 1

    def __init__(self, game: str, minimal_actions: bool) -> None:
        self._name = game
        self._game = Environment(game)
        self._actions = self._game.minimal_action_set() if minimal_actions else list(range(self._game.num_actions()))
        self.n_actions = len(self._actions)
        self.channels = int(self._game.state_shape()[2])
        # Freeway ends when its clock has run out and in no other way: that is a time limit.
        self._ends_by_clock = game == "freeway"
        self._action = 0

    def reset(self, seed: int | None) -> Obs:
        self._game.seed(seed)
        self._game.last_action = 0  # MinAtar would let a sticky action reach into the next episode
        self._game.reset()
        return self._obs()

    def send(self, action: int) -> None:
        self._action = self._actions[action]

    def receive(self) -> TimeStep:
        reward, ended = self._game.act(self._action)
        obs = self._obs()
        ended = bool(ended)
        truncated = ended and self._ends_by_clock
        return obs, obs, float(reward), ended and not truncated, truncated, float(reward), ended

    def _obs(self) -> Obs:
        state: Obs = self._game.state()  # (10, 10, C)
        return state.astype(np.uint8).transpose(2, 0, 1)  # (C, 10, 10)

    def render(self) -> NDArray[np.uint8]:
        state = self._game.state()  # (10, 10, C)
        top = (state * np.arange(1, self.channels + 1)).max(axis=-1)
        picture: NDArray[np.uint8] = _COLOURS[top]  # (10, 10, 3)
        return picture.repeat(32, axis=0).repeat(32, axis=1)

    def close(self) -> None:
        pass
