"""Three envs of one's own: discrete actions, continuous actions, images. From this folder:

    bsrs train dqn --env my_envs:Corridor-v0 --eta 0.5 --out runs/corridor
    bsrs train td3 --env my_envs:Reach-v0 --eta 1 --out runs/reach
    bsrs train dqn --env my_envs:Catch-v0 --eta 0.5 --steps 20000 --out runs/catch
    bsrs export runs/catch --trust          # runs/catch/policy.onnx

Run as a script it does the last one in Python: trains on images, saves, loads, and acts on single observations.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Corridor(gymnasium.Env[np.ndarray, int]):
    """Ten cells in a row; left or right; the reward is at the right end."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(5))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell = max(self.cell + (1 if action else -1), 0)
        arrived = self.cell == 9
        return self._observe(), float(arrived), arrived, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self.cell / 9], np.float32)


class Reach(gymnasium.Env[np.ndarray, np.ndarray]):
    """A mass on a line is pushed towards zero."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-1, 1), 0.0], np.float32)
        return self.state.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        position, velocity = self.state
        velocity = 0.9 * velocity + 0.1 * float(action[0])
        self.state = np.array([np.clip(position + 0.1 * velocity, -2, 2), velocity], np.float32)
        return self.state.copy(), -float(self.state[0] ** 2), False, False, {}


class Catch(gymnasium.Env[np.ndarray, int]):
    """A ball falls, a paddle catches it: images of 64 x 64 x 3 bytes, eight cells on a side."""

    observation_space = Box(0, 255, (64, 64, 3), np.uint8)
    action_space = Discrete(3)  # left, stay, right

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column, self.paddle = 0, int(self.np_random.integers(8)), 4
        return self._picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = int(np.clip(self.paddle + action - 1, 0, 7))
        self.row += 1
        landed = self.row == 7
        reward = (1.0 if self.column == self.paddle else -1.0) if landed else 0.0
        return self._picture(), reward, landed, False, {}

    def _picture(self) -> np.ndarray:
        cells = np.zeros((8, 8, 3), np.uint8)
        cells[self.row, self.column] = (255, 200, 0)
        cells[7, self.paddle] = (0, 120, 255)
        return cells.repeat(8, axis=0).repeat(8, axis=1)


gymnasium.register(id="Corridor-v0", entry_point=Corridor, max_episode_steps=50)
gymnasium.register(id="Reach-v0", entry_point=Reach, max_episode_steps=100)
gymnasium.register(id="Catch-v0", entry_point=Catch)


if __name__ == "__main__":
    import bsrs

    steps, folder = int(sys.argv[1]), sys.argv[2]
    bsrs.DQN.of(Catch, eta=0.5, steps=steps, learning_starts=steps // 10, eval_every=0).learn().save(folder)

    agent = bsrs.DQN.load(folder, env=Catch)
    env = Catch()
    obs, _ = env.reset(seed=0)
    done, total = False, 0.0
    while not done:
        obs, reward, done, _, _ = env.step(agent.predict(obs))
        total += reward
    print(f"one episode: {total:+g}; mean of twenty: {np.mean(agent.evaluate(20)):+.2f}")
