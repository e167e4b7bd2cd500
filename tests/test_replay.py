"""Replay against a plain list of transitions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsrs.agents.agent import Transition
from bsrs.agents.frames import FrameReplay, MemberFrames
from bsrs.agents.replay import ArrayReplay, make_replay
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


class Alone:
    """A replay of one member: steps and batches without the members' axis."""

    def __init__(self, replay) -> None:
        self.replay = replay

    def __len__(self) -> int:
        return len(self.replay)

    def add(self, *step) -> None:
        self.replay.add(Transition(*(np.asarray(part)[None] for part in step)))

    def sample(self, count: int, rng: np.random.Generator) -> list[np.ndarray]:
        return [part[0] for part in self.replay.sample([rng], count)[:5]]

    def state(self):
        return self.replay.state(0)

    def load_state(self, arrays, meta) -> None:
        self.replay.load_state(0, arrays, meta)


def frames_of(spec: EnvSpec, capacity: int, n: int = 1) -> Alone:
    return Alone(FrameReplay(spec, 1, capacity, n))


def arrays_of(spec: EnvSpec, capacity: int, n: int = 1) -> Alone:
    return Alone(ArrayReplay(spec, 1, capacity, n))


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
    return {key(transition) for transition in zip(*replay.sample(draws, rng), strict=True)}


steps = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=n, max_size=n), min_size=1, max_size=120)
)


@given(ends=steps, capacity=st.integers(3, 40))
@settings(max_examples=150)
def test_frames_are_the_newest_transitions_exactly(ends, capacity):
    n = len(ends[0])
    replay = frames_of(TINY_IMAGES, capacity, n)
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
    replay = frames_of(TINY_IMAGES, 30)
    play(replay, [[0]] * 100)
    assert len(replay) == 30


@pytest.mark.parametrize("n", [1, 2])
def test_atari_like_episodes_fill_the_capacity(n):
    replay = frames_of(TINY_IMAGES, 1000, n)
    play(replay, [[int(t % 40 == 39 + i) for i in range(n)] for t in range(1200)])
    assert len(replay) == 1000


@given(ends=steps, capacity=st.integers(3, 40), data=st.data())
def test_a_restored_replay_goes_on_as_the_first(ends, capacity, data):
    n = len(ends[0])
    kind = data.draw(st.sampled_from([frames_of, arrays_of]))
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
    for ours, theirs in zip(*(r.sample(50, stream(1, "s")) for r in (replay, whole)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_saved_replay_holds_only_what_was_filled():
    replay = frames_of(ATARI, 10_000)
    blank = np.zeros((1, 4, 84, 84), np.uint8)
    replay.add(blank, [0], [0.0], blank, [False], [False])
    arrays, _ = replay.state()
    assert arrays["frame"].shape == (1, 2, 84, 84)


def test_batches_are_uniform():
    replay = frames_of(TINY_IMAGES, 50, 2)
    play(replay, [[int(t % 7 == 6), 2 * int(t % 5 == 4)] for t in range(90)])
    _, _, reward, _, _ = replay.sample(100_000, stream(0, "uniform"))
    _, counts = np.unique(reward, return_counts=True)
    expected = 100_000 / len(replay)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert len(counts) == len(replay)
    assert chi_square < len(replay) + 5 * np.sqrt(2 * len(replay))


@pytest.mark.parametrize("spec", [VECTORS, CONTINUOUS])
@pytest.mark.parametrize("n", [1, 3])
def test_arrays_are_the_newest_transitions_exactly(spec, n):
    replay = arrays_of(spec, 20, n)
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
    replay = Alone(make_replay(envs.spec, 1, 250, 2, 1, 0.99))
    rng = stream(0, "actions")
    lists: list[list[tuple]] = [[], []]
    envs.reset()
    for _ in range(200):
        obs, action = envs.buffers.obs.copy(), rng.integers(0, envs.spec.n_actions, 2)
        envs.step(action)
        next_obs, reward, terminated, truncated = (part.copy() for part in envs.buffers[1:])
        replay.add(obs, action, reward, next_obs, terminated, truncated)
        for i in range(2):
            lists[i].append((obs[i], action[i], reward[i], next_obs[i], terminated[i]))
    envs.close()
    assert len(replay) == 250
    assert drawn(replay, 3000, rng) == {key(transition) for part in lists for transition in part[-125:]}


@pytest.mark.parametrize("spec", [UNSTACKED, TINY_IMAGES], ids=["arrays", "frames"])
def test_members_draw_as_each_does_alone(spec):
    """Each from its own transitions and its own stream."""
    together, *each = (make_replay(spec, members, 20, 1, 1, 0.99) for members in (2, 1, 1))
    blank = np.zeros((1, 4, 2, 3), np.uint8)
    for t in range(1, 31):
        parts = []
        for member in range(2):
            frame = np.full((1, 2, 3), t + 100 * member, np.uint8)
            next_obs = np.concatenate((blank[:, 1:], frame[:, None]), axis=1)
            own = blank, [0], [np.float32(t + member)], next_obs, [True], [False]
            parts.append([np.asarray(part) for part in own])
            each[member].add(Transition(*(part[None] for part in parts[-1])))
        together.add(Transition(*(np.stack(pair) for pair in zip(*parts, strict=True))))
    drawn = together.sample([stream(0, "a"), stream(0, "b")], 8)
    for member, name in enumerate("ab"):
        alone = each[member].sample([stream(0, name)], 8)
        for whole, own in zip(drawn[:5], alone[:5], strict=True):
            np.testing.assert_array_equal(whole[member], own[0])
    assert set(drawn.reward[0]) & set(drawn.reward[1]) != set(drawn.reward[0])


@pytest.mark.parametrize("n_envs", [1, 2])
def test_n_step_returns_end_with_the_episode_and_at_the_newest(n_envs):
    """Against a sum written out over the transitions, per env."""
    n, gamma, capacity = 3, 0.5, 14
    replay, rng = ArrayReplay(VECTORS, 1, capacity, n_envs, n, gamma), stream(0, "n-step")
    replay.arrays.reward[:] = np.nan  # what is not written yet may be anything
    steps = []
    for _ in range(11):
        shape = 1, n_envs
        obs, next_obs = rng.standard_normal((2, *shape, 3)).astype(np.float32)
        reward = rng.standard_normal(shape).astype(np.float32)
        terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.2
        steps.append(Transition(obs, np.zeros(shape, np.int64), reward, next_obs, terminated, truncated))
        replay.add(steps[-1])
    batch = replay.sample([stream(1, "n-step")], 400)
    found = {obs.tobytes(): row for row, obs in enumerate(batch.obs[0])}
    assert len(found) == min(capacity, 11 * n_envs)
    for t, step in enumerate(steps):
        for env in range(n_envs):
            row = found.get(step.obs[0, env].tobytes())
            if row is None:  # overwritten since
                continue
            total, count = 0.0, 0
            for later in steps[t : t + n]:
                total, count = total + gamma**count * later.reward[0, env], count + 1
                if later.terminated[0, env] or later.truncated[0, env]:
                    break
            assert batch.reward[0, row] == pytest.approx(total, rel=1e-5)
            assert batch.steps[0, row] == count
            np.testing.assert_array_equal(batch.next_obs[0, row], later.next_obs[0, env])
            assert batch.terminated[0, row] == later.terminated[0, env]


def test_stacks_lie_as_the_convolutions_read_them():
    replay = frames_of(TINY_IMAGES, 20)
    play(replay, [[0]] * 30)
    obs = torch.from_numpy(replay.sample(8, stream(0, "a"))[0])
    assert obs.is_contiguous(memory_format=torch.channels_last)


def test_one_stream_repeats_and_two_differ():
    replay = frames_of(TINY_IMAGES, 20)
    play(replay, [[0]] * 30)
    first = replay.sample(16, stream(0, "a"))[2].copy()
    np.testing.assert_array_equal(first, replay.sample(16, stream(0, "a"))[2])
    assert (first != replay.sample(16, stream(1, "a"))[2]).any()


def test_a_hundred_thousand_atari_transitions_fit():
    """Each frame once: a tenth of a gigabyte for every 14,000 of them."""
    member = MemberFrames(ATARI, 100_000)
    assert sum(array.nbytes for array in vars(member).values() if isinstance(array, np.ndarray)) <= 2 * 0.75e9
    assert member._rows.nbytes <= 0.75e9


def test_bad_input():
    with pytest.raises(BadInput, match="buffer_size is 3; expected at least one transition per env"):
        make_replay(VECTORS, 1, 3, 4, 1, 0.99)
    with pytest.raises(BadInput, match="stacked frames; expected n_step 1"):
        make_replay(ATARI, 1, 100, 1, 3, 0.99)
    for spec in (VECTORS, TINY_IMAGES):
        with pytest.raises(BadInput, match="empty replay"):
            make_replay(spec, 2, 10, 1, 1, 0.99).sample([stream(0, "x")] * 2, 4)
    smaller, larger = frames_of(TINY_IMAGES, 20), frames_of(TINY_IMAGES, 30)
    play(smaller, [[0]] * 40)
    with pytest.raises(BadInput, match="saved replay's 'frame' is uint8"):
        larger.load_state(*smaller.state())
    with pytest.raises(BadInput, match="older frames that are not zero"):
        larger.add(np.ones((1, 4, 2, 3), np.uint8), [0], [0.0], np.ones((1, 4, 2, 3), np.uint8), [False], [False])
