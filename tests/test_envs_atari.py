"""Our Atari stream against Stable-Baselines3's own wrappers, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from stable_baselines3.common.atari_wrappers import (
    ClipRewardEnv,
    EpisodicLifeEnv,
    FireResetEnv,
    MaxAndSkipEnv,
    NoopResetEnv,
    WarpFrame,
)
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecTransposeImage

from bsrs.envs import make
from bsrs.rng import stream
from env_steps import Step, same_step, step

GAMES = ["Pong", "Breakout", "SpaceInvaders", "Qbert", "Seaquest", "Freeway"]
STEPS = 1000


class GivenNoops(NoopResetEnv):
    """SB3's wrapper with our numbers of no-ops: the one thing that is random."""

    def __init__(self, env, noops: Iterator[int]) -> None:
        super().__init__(env)
        self._given = noops

    def reset(self, **kwargs):
        self.override_num_noops = next(self._given)
        return super().reset(**kwargs)


class Resize(WarpFrame):
    """SB3's wrapper for frames that the emulator made grey."""

    def observation(self, frame):
        return cv2.resize(frame, (self.width, self.height), interpolation=cv2.INTER_AREA)[:, :, None]


def reference(name: str, noops: list[int], *, grey_by: str, clip: bool = True) -> VecTransposeImage:
    """What `AtariWrapper`, `VecFrameStack` and `VecTransposeImage` make of the game."""

    def build():
        env = Monitor(gymnasium.make(name, obs_type="rgb" if grey_by == "sb3" else "grayscale"))
        env = EpisodicLifeEnv(MaxAndSkipEnv(GivenNoops(env, iter(noops))))
        if "FIRE" in env.unwrapped.get_action_meanings():
            env = FireResetEnv(env)
        env = WarpFrame(env) if grey_by == "sb3" else Resize(env)
        return ClipRewardEnv(env) if clip else env

    return VecTransposeImage(VecFrameStack(DummyVecEnv([build]), 4))


@pytest.fixture
def frames(monkeypatch) -> list[int]:
    """How many frames had been played when each of our games was handed over."""
    counts: list[int] = []
    reset = AtariVectorEnv.reset

    def watched(self, **kwargs):
        obs, info = reset(self, **kwargs)
        counts.append(int(info["episode_frame_number"][0]))
        return obs, info

    monkeypatch.setattr(AtariVectorEnv, "reset", watched)
    return counts


def ours(name: str, *, training: bool, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray, list[Step]]:
    envs = make(name, 1, seed=0, training=training)
    actions = stream(3, "actions").integers(0, envs.spec.n_actions, (steps, 1))
    first = envs.reset().copy()
    stream_of_steps = [step(envs, action) for action in actions]
    envs.close()
    return actions, first, stream_of_steps


def noops(name: str, frames: list[int]) -> list[int]:
    """The numbers of no-ops: some games take frames of their own to boot. A game without any is begun anew."""
    boot = gymnasium.make(name).reset()[1]["episode_frame_number"]
    return [count - boot for count in frames if count > boot]


@pytest.mark.parametrize("game", GAMES)
def test_training_stream_is_the_reference(game, frames):
    """Pixel for pixel if the emulator makes both grey. Made grey by SB3, the only difference is that the maximum of two
    frames is taken before that and not after it: it shows where two colours flicker."""
    name = f"{game}NoFrameskip-v4"
    actions, first, steps = ours(name, training=True)
    exact, coloured = (reference(name, noops(name, frames), grey_by=who) for who in ("emulator", "sb3"))
    np.testing.assert_array_equal(first, exact.reset())
    coloured.reset()
    for action, ours_now in zip(actions, steps, strict=True):
        obs, reward, done, info = exact.step(action)
        np.testing.assert_array_equal(ours_now.obs, obs)
        assert ours_now.reward[0] == reward[0]
        assert bool(ours_now.terminated[0] or ours_now.truncated[0]) == done[0]
        assert len(ours_now.episodes) == ("episode" in info[0])
        if "episode" in info[0]:
            assert ours_now.episodes[0].score == info[0]["episode"]["r"]
        elif done[0]:  # a lost life; SB3 leaves the last frame of a whole game undefined
            np.testing.assert_array_equal(ours_now.next_obs[0], info[0]["terminal_observation"])
        else:
            np.testing.assert_array_equal(ours_now.next_obs, ours_now.obs)
        difference = np.abs(coloured.step(action)[0].astype(int) - ours_now.obs)
        assert difference.max() <= 32
        assert (difference > 2).mean() < 0.02
    assert any(each.terminated[0] for each in steps) or game == "Freeway"


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_evaluation_gives_raw_scores_and_hides_lost_lives(game, frames):
    """The same games as in training, life by life, so scores are those of SB3's `evaluate_policy`."""
    name = f"{game}NoFrameskip-v4"
    actions, _, steps = ours(name, training=False, steps=600)
    vec = reference(name, noops(name, frames), grey_by="emulator", clip=False)
    vec.reset()
    lost_lives = games = 0
    for action, ours_now in zip(actions, steps, strict=True):
        obs, reward, done, info = vec.step(action)
        np.testing.assert_array_equal(ours_now.obs, obs)
        over = "episode" in info[0]
        assert ours_now.reward[0] == reward[0]
        assert bool(ours_now.terminated[0]) == over == bool(ours_now.episodes)
        if over:
            assert ours_now.episodes[0].score == info[0]["episode"]["r"]
        lost_lives, games = lost_lives + int(done[0] and not over), games + int(over)
    assert lost_lives >= 2
    assert games >= 1
    assert max(each.reward[0] for each in steps) > 1 or game == "Breakout"


@pytest.mark.parametrize("name", ["PongNoFrameskip-v4", "BerzerkNoFrameskip-v4"])  # 0 and 20 frames to boot
def test_noops_are_one_to_thirty(name, frames):
    envs = make(name, 1, seed=1, training=True)
    for _ in range(150):
        envs.reset()
    envs.close()
    drawn = noops(name, frames)
    assert len(frames) > len(drawn) == 150  # the emulator drew a zero, and was asked again
    assert set(drawn) <= set(range(1, 31))
    assert len(set(drawn)) > 25


def test_many_games_later_the_state_is_still_exact():
    """Between seeds, which come every 50 games, only the number of resets matters: not what was played."""
    envs, resumed = (make("BreakoutNoFrameskip-v4", 1, seed=2, training=False) for _ in range(2))
    actions = stream(0, "actions").integers(0, 4, (900, 1))
    envs.reset()
    for action in actions[:700]:
        envs.step(action)
    arrays, meta = envs.state()
    assert arrays["episode"][0] >= 2
    resumed.load_state(arrays, meta)
    for action in actions[700:]:
        assert same_step(step(envs, action), step(resumed, action))


def test_an_action_that_does_not_exist_is_refused():
    envs = make("PongNoFrameskip-v4", 1, seed=0, training=True)
    envs.reset()
    with pytest.raises(ValueError, match="action 6 is not among the 6 actions"):
        envs.step(np.array([6]))
    envs.close()
