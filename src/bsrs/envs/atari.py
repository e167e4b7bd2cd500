"""Atari with the paper's wrappers: those of Stable-Baselines3's `AtariWrapper` and `VecFrameStack`.

The frame skip, the maximum over the last two frames, the grey 84x84 picture and the no-ops at a game's start are done
by ale-py's C++ `AtariVectorEnv`. The rest is done here, because the emulator's own versions differ from the reference:
it presses FIRE for a single frame before the no-ops and not after a lost life, keeps stacking across lives, and draws
0 to 29 no-ops where the reference draws 1 to 30. `docs/envs.md` lists what is left.
"""

import numpy as np
from ale_py import Action as Button
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from bsrs.envs.single import Single, TimeStep

STACK = 4
SIDE = 84
NOOP = 0
MAX_NOOPS = 30

Frame = NDArray[np.uint8]  # (84, 84)
Stack = NDArray[np.uint8]  # (4, 84, 84)


class AtariSingle(Single):
    """One Atari game. In training a lost life ends the episode and rewards are clipped to their sign.

    In evaluation neither is so; a new life begins in the same way in both.
    """

    def __init__(self, game: str, sticky: float, training: bool) -> None:
        # A seed costs 20 times what a reset costs, for the ROM is read again. Without sticky actions the seed decides
        # nothing but the no-ops of the games that follow.
        self.seed_every = 1 if sticky else 50
        self._training = training
        self._emulator = AtariVectorEnv(
            game,
            num_envs=1,
            num_threads=1,
            stack_num=1,
            img_height=SIDE,
            img_width=SIDE,
            noop_max=MAX_NOOPS + 1,
            use_fire_reset=False,
            reward_clipping=False,
            repeat_action_probability=sticky,
        )
        buttons = self._emulator.ale.get_action_set()
        self.n_actions = len(buttons)
        needs_fire = self.n_actions >= 3 and buttons[1] == Button.FIRE
        self._opening = (1, 2) if needs_fire else ()
        self._frame: Frame = np.zeros((SIDE, SIDE), np.uint8)
        self._stack: Stack = _first(self._frame)
        self._boot_frames = 0
        self._lives = 0
        self._terminated = self._truncated = False
        self._score = 0.0

    @property
    def _over(self) -> bool:
        return self._terminated or self._truncated

    def reset(self, seed: int | None) -> Stack:
        """A new game: 1 to 30 no-ops, then FIRE where the game has it."""
        while True:
            self._new_game(seed)
            self._open()
            if not self._over:
                self._stack = _first(self._frame)
                return self._stack
            seed = None

    def send(self, action: int) -> None:
        if not 0 <= action < self.n_actions:  # the emulator's thread would die and leave us waiting
            raise ValueError(f"action {action} is not among the {self.n_actions} actions of this game")
        self._emulator.send(np.array([action]))

    def receive(self) -> TimeStep:
        self._score = 0.0
        lost_life = self._finish()
        reward = self._score
        terminated, truncated = self._terminated, self._truncated
        final = self._stack = _pushed(self._stack, self._frame)
        if lost_life and not self._over:
            self._next_life()
            self._stack = _first(self._frame)
            # What ends while the next life begins is for the agent a game that ended with this life.
            terminated = self._training or self._over
            truncated = False
        if self._training:
            reward = float(np.sign(reward))
        return self._stack, final, reward, terminated, truncated, self._score, self._over

    def _new_game(self, seed: int | None) -> None:
        noops = 0
        while noops == 0:  # the emulator draws from 0 to 30
            frames, info = self._emulator.reset(seed=seed)
            episode_frames = int(info["episode_frame_number"][0])
            if seed is not None:
                # Some games need frames to boot, which are counted. A seed boots once more, without an episode.
                self._boot_frames = int(info["frame_number"][0]) - episode_frames
                seed = None
            noops = episode_frames - self._boot_frames
        self._frame = frames[0, 0]
        self._lives = int(info["lives"][0])
        self._terminated = self._truncated = False

    def _next_life(self) -> None:
        self._advance(NOOP)  # out of the lost life
        if not self._over:
            self._open()

    def _open(self) -> None:
        """Get a game going that waits for FIRE."""
        for action in self._opening:
            if self._advance(action) and not self._over:
                self._advance(NOOP)
            if self._over:
                return

    def _advance(self, action: int) -> bool:
        """A step that the agent does not see. Whether a life was lost."""
        self._emulator.send(np.array([action]))
        return self._finish()

    def _finish(self) -> bool:
        frames, rewards, terminations, truncations, info = self._emulator.recv()
        self._frame = frames[0, 0]
        self._score += int(rewards[0])
        self._terminated, self._truncated = bool(terminations[0]), bool(truncations[0])
        lives = int(info["lives"][0])
        # Some games stay at zero lives for a few frames before they are over: that is one end, not two.
        lost_life = 0 < lives < self._lives
        self._lives = lives
        return lost_life

    def render(self) -> NDArray[np.uint8]:
        """What the agent sees, four times as large."""
        grey = self._frame.repeat(4, axis=0).repeat(4, axis=1)
        return np.repeat(grey[..., None], 3, axis=-1)

    def close(self) -> None:
        self._emulator.close()


def _first(frame: Frame) -> Stack:
    stack = np.zeros((STACK, SIDE, SIDE), np.uint8)
    stack[-1] = frame
    return stack


def _pushed(stack: Stack, frame: Frame) -> Stack:
    pushed = np.empty_like(stack)
    pushed[:-1] = stack[1:]
    pushed[-1] = frame
    return pushed
