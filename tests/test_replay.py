"""Replay against a plain list of transitions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs.agents.replay import ArrayReplay, Batch, FrameReplay
from bsrs.agents.replays import Replays
from bsrs.envs import EnvSpec, make
from bsrs.errors import BadInput
from bsrs.rng import stream

ATARI = EnvSpec("a", "atari", (4, 84, 84), "uint8", 255.0, frame_stack=4, n_actions=6)
TINY_IMAGES = EnvSpec("t", "atari", (4, 2, 3), "uint8", 255.0, frame_stack=4, n_actions=6)
UNSTACKED = EnvSpec("u", "minatar", (4, 2, 3), "uint8", n_actions=6)
VECTORS = EnvSpec("v", "gym", (3,), "float32", n_actions=2)
CONTINUOUS = EnvSpec("c", "gym", (3,), "float32", action_low=(-1.0, -1.0), action_high=(1.0, 1.0))


@dataclass
class FakeEnv:
    """Every frame has content of its own, and stacks are made by the plainest code there is."""

    i: int
    frames: int = 0
    episode: list[np.ndarray] = field(default_factory=list)

    def frame(self) -> np.ndarray:
        self.frames += 1
        number = np.array([self.i, self.frames // 200, self.frames % 200 + 1] * 2, np.uint8)
        return number.reshape(2, 3)

    def stack(self) -> np.ndarray:
        zeros = [np.zeros((2, 3), np.uint8)] * 4
        return np.stack((zeros + self.episode)[-4:])


def play(replay, ends: list[list[int]]) -> list[list[tuple]]:
    """One step per row of `ends` (0: goes on, 1: terminated, 2: truncated); the transitions per env, in order."""
    n = len(ends[0])
    envs = [FakeEnv(i) for i in range(n)]
    for env in envs:
        env.episode = [env.frame()]
    lists: list[list[tuple]] = [[] for _ in envs]
    for t, row in enumerate(ends):
        obs = np.stack([env.stack() for env in envs])
        for env in envs:
            env.episode.append(env.frame())
        next_obs = np.stack([env.stack() for env in envs])
        action = np.array([(t + i) % 6 for i in range(n)])
        reward = np.array([t + 0.25 * i for i in range(n)], np.float32)
        terminated, truncated = np.array(row) == 1, np.array(row) == 2
        replay.add(obs, action, reward, next_obs, terminated, truncated)
        for i, env in enumerate(envs):
            lists[i].append((obs[i], action[i], reward[i], next_obs[i], terminated[i]))
            if row[i]:
                env.episode = [env.frame()]
    return lists


def key(transition) -> tuple:
    return tuple(np.asarray(part).tobytes() for part in transition)


def drawn(replay, draws: int, rng: np.random.Generator) -> set[tuple]:
    batch = replay.sample(draws, rng)
    return {key(transition) for transition in zip(*batch.transitions, strict=True)}


steps = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=n, max_size=n), min_size=1, max_size=120)
)


@given(ends=steps, capacity=st.integers(3, 40))
@settings(max_examples=150)
def test_frames_are_the_newest_transitions_exactly(ends, capacity):
    n = len(ends[0])
    replay = FrameReplay(TINY_IMAGES, capacity, n)
    lists = play(replay, ends)
    found = drawn(replay, 60 * max(capacity, n), stream(0, "test"))
    per_env = -(-capacity // n)
    stored = 0
    for i, transitions in enumerate(lists):
        kept = [key(transition) in found for transition in transitions]
        size = sum(kept)
        assert kept == [False] * (len(kept) - size) + [True] * size  # the newest ones, without a gap
        endings = sum(row[i] > 0 for row in ends[-per_env:])
        assert size >= min(len(transitions), per_env - endings)
        assert size <= per_env
        stored += size
    assert len(found) == stored == len(replay)  # nothing that never happened


def test_one_long_episode_fills_the_capacity_exactly():
    replay = FrameReplay(TINY_IMAGES, 30)
    play(replay, [[0]] * 100)
    assert len(replay) == 30


@pytest.mark.parametrize("n", [1, 2])
def test_atari_like_episodes_fill_the_capacity(n):
    replay = FrameReplay(TINY_IMAGES, 1000, n)
    play(replay, [[int(t % 40 == 39 + i) for i in range(n)] for t in range(1200)])
    assert len(replay) == 1000


@given(ends=steps, capacity=st.integers(3, 40), data=st.data())
def test_a_restored_replay_goes_on_as_the_first(ends, capacity, data):
    n = len(ends[0])
    kind = data.draw(st.sampled_from([FrameReplay, ArrayReplay]))
    spec = TINY_IMAGES
    whole, first, second = (kind(spec, capacity, n) for _ in range(3))
    cut = data.draw(st.integers(0, len(ends)))

    class Relay:
        """Sends the steps before the cut to one replay, and later ones to another that was loaded from it."""

        count = 0

        def add(self, *step):
            whole.add(*step)
            if self.count == cut:
                arrays, meta = first.state()
                second.load_state({name: array.copy() for name, array in arrays.items()}, meta)
            (first if self.count < cut else second).add(*step)
            self.count += 1

    play(Relay(), ends)
    replay = second if cut < len(ends) else first
    for ours, theirs in zip(*(r.sample(50, stream(1, "s")).transitions for r in (replay, whole)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_saved_replay_holds_only_what_was_filled():
    replay = FrameReplay(ATARI, 10_000)
    blank = np.zeros((1, 4, 84, 84), np.uint8)
    replay.add(blank, [0], [0.0], blank, [False], [False])
    arrays, _ = replay.state()
    assert arrays["frame"].shape == (1, 2, 84, 84)


def test_batches_are_uniform():
    replay = FrameReplay(TINY_IMAGES, 50, 2)
    play(replay, [[int(t % 7 == 6), 2 * int(t % 5 == 4)] for t in range(90)])
    batch = replay.sample(100_000, stream(0, "uniform"))
    _, counts = np.unique(batch.reward, return_counts=True)
    expected = 100_000 / len(replay)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert len(counts) == len(replay)
    assert chi_square < len(replay) + 5 * np.sqrt(2 * len(replay))


@pytest.mark.parametrize("spec", [VECTORS, CONTINUOUS])
@pytest.mark.parametrize("n", [1, 3])
def test_arrays_are_the_newest_transitions_exactly(spec, n):
    replay = ArrayReplay(spec, 20, n)
    rng = stream(0, "test")
    transitions = []
    for t in range(23):
        obs, next_obs = rng.standard_normal((2, n, 3)).astype(np.float32)
        action = rng.standard_normal((n, 2)).astype(np.float32) if spec is CONTINUOUS else rng.integers(0, 2, n)
        reward = rng.standard_normal(n).astype(np.float32)
        truncated, terminated = np.full(n, t % 3 == 0), np.full(n, t % 5 == 1)
        replay.add(obs, action, reward, next_obs, terminated, truncated)
        transitions += [(obs[i], action[i], reward[i], next_obs[i], terminated[i]) for i in range(n)]
    assert len(replay) == 20
    assert drawn(replay, 2000, rng) == {key(transition) for transition in transitions[-20:]}


@pytest.mark.parametrize("name", ["BreakoutNoFrameskip-v4", "FreewayNoFrameskip-v4"])
def test_stacks_are_those_of_the_env(name):
    """Lost lives, ends of games and the ring's seam, as the emulator has them. Freeway has no FIRE and no lives."""
    envs = make(name, 2, seed=0, training=True)
    replay = Replays(envs.spec, 250, 2, members=1)[0]
    rng = stream(0, "actions")
    lists: list[list[tuple]] = [[], []]
    obs = envs.reset()
    for _ in range(200):
        action = rng.integers(0, envs.spec.n_actions, 2)
        step = envs.step(action)
        replay.add(obs, action, step.reward, step.final_obs, step.terminated, step.truncated)
        for i in range(2):
            lists[i].append((obs[i], action[i], step.reward[i], step.final_obs[i], step.terminated[i]))
        obs = step.obs
    envs.close()
    assert len(replay) == 250
    assert drawn(replay, 3000, rng) == {key(transition) for part in lists for transition in part[-125:]}


@pytest.mark.parametrize("spec", [UNSTACKED, TINY_IMAGES], ids=["arrays", "frames"])
def test_members_draw_as_each_does_alone(spec):
    """Each from its own transitions and its own stream."""
    replays = Replays(spec, 20, 1, members=2)
    for seed in range(2):
        play(replays[seed], [[seed]] * (30 - 15 * seed))
    out = Batch.empty(spec, 2, 8)
    members = replays.sample([stream(0, "a"), stream(0, "b")], out)
    assert members is out
    for member, name in enumerate("ab"):
        alone = replays[member].sample(8, stream(0, name))
        for whole, own in zip(members.transitions, alone.transitions, strict=True):
            np.testing.assert_array_equal(whole[member], own)


def test_stacks_lie_as_the_convolutions_read_them():
    replay = FrameReplay(TINY_IMAGES, 20)
    play(replay, [[0]] * 30)
    obs = torch.from_numpy(replay.sample(8, stream(0, "a")).obs)
    assert obs.is_contiguous(memory_format=torch.channels_last)


def test_one_stream_repeats_and_two_differ():
    replay = FrameReplay(TINY_IMAGES, 20)
    play(replay, [[0]] * 30)
    first = replay.sample(16, stream(0, "a")).reward.copy()
    np.testing.assert_array_equal(first, replay.sample(16, stream(0, "a")).reward)
    assert (first != replay.sample(16, stream(1, "a")).reward).any()


def test_atari_memory_and_time():
    assert FrameReplay(ATARI, 100_000).nbytes <= 0.75e9  # reserved, not yet touched
    replay = FrameReplay(ATARI, 20_000)  # 140 MB: far more than any cache
    obs = np.zeros((1, 4, 84, 84), np.uint8)
    one, zero, no = np.array([1]), np.zeros(1, np.float32), np.array([False])
    adding = []
    for _ in range(20_000):
        start = time.perf_counter()
        replay.add(obs, one, zero, obs, no, no)
        adding.append(time.perf_counter() - start)
    rng = stream(0, "time")
    sampling = []
    for _ in range(300):
        start = time.perf_counter()
        replay.sample(32, rng)
        sampling.append(time.perf_counter() - start)
    # The quickest tenth: what the code takes when nothing else runs on the core.
    assert np.quantile(sampling, 0.1) <= 0.5e-3
    assert np.quantile(adding, 0.1) <= 50e-6


def test_bad_input():
    with pytest.raises(BadInput, match="capacity is 3; expected at least one transition per env"):
        Replays(VECTORS, 3, 4, members=1)
    for spec in (VECTORS, TINY_IMAGES):
        with pytest.raises(BadInput, match="empty replay"):
            Replays(spec, 10, 1, members=2).sample([stream(0, "x")] * 2, Batch.empty(spec, 2, 4))
    smaller, larger = FrameReplay(TINY_IMAGES, 20), FrameReplay(TINY_IMAGES, 30)
    play(smaller, [[0]] * 40)
    with pytest.raises(BadInput, match="saved replay's 'frame' is uint8"):
        larger.load_state(*smaller.state())
    with pytest.raises(BadInput, match="older frames that are not zero"):
        larger.add(np.ones((1, 4, 2, 3), np.uint8), [0], [0.0], np.ones((1, 4, 2, 3), np.uint8), [False], [False])
