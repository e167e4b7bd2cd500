"""Envs of every kind: what a step means, exact repetition, and what is said when something is wrong."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from bsrs.envs import EnvSpec, known_envs, make, require_continuous, require_discrete
from bsrs.errors import BadInput, EnvFault
from bsrs.rng import stream, stream_seed
from env_steps import Step, same_step, step

EVERY_KIND = [
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "LunarLander-v3",
    "Pendulum-v1",
    "Hopper-v4",
    "Hopper-v5",
    "Humanoid-v5",
    "MinAtar/Breakout-v1",
    "MinAtar/SpaceInvaders-v0",
    "FrozenLake-v1",
    "PongNoFrameskip-v4",
    "BreakoutNoFrameskip-v4",
    "ALE/Breakout-v5",
]


def random_actions(spec: EnvSpec, steps: int, n: int, seed: int = 0) -> np.ndarray:
    rng = stream(seed, "actions")
    if spec.n_actions is not None:
        return rng.integers(0, spec.n_actions, (steps, n))
    low, high = require_continuous(spec)
    return rng.uniform(low, high, (steps, n, len(low))).astype(np.float32)


def trace(envs, actions) -> list[Step]:
    return [step(envs, action) for action in actions]


def same(first: list[Step], second: list[Step]) -> bool:
    return all(same_step(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", EVERY_KIND)
def test_a_restored_env_goes_on_bit_for_bit(name):
    steps = 300 if "v5" in name or "NoFrameskip" in name else 700
    envs = make(name, 2, seed=3, training=True)
    actions = random_actions(envs.spec, steps, 2)
    envs.reset()
    trace(envs, actions[:-60])
    arrays, meta = envs.state()
    saved = {key: array.copy() for key, array in arrays.items()}
    expected = trace(envs, actions[-60:])
    resumed = make(name, 2, seed=3, training=True)
    np.testing.assert_array_equal(resumed.load_state(saved, meta), saved["obs"])
    assert same(trace(resumed, actions[-60:]), expected)
    envs.close()
    resumed.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MinAtar/Asterix-v1", "BreakoutNoFrameskip-v4"])
def test_one_seed_repeats_two_differ_and_company_changes_nothing(name):
    alone, again, other = (make(name, 1, seed, training=True) for seed in (0, 0, 1))
    three = make(name, 3, 0, training=True)
    actions = random_actions(alone.spec, 100, 3)
    observations = [envs.reset().copy() for envs in (alone, again, other)]
    np.testing.assert_array_equal(three.reset()[:1], observations[0])
    traces = [trace(envs, actions[:, :1]) for envs in (alone, again, other)]
    assert same(traces[0], traces[1])
    assert not same(traces[0], traces[2]) or not np.array_equal(observations[0], observations[2])
    for t, action in enumerate(actions):
        together = step(three, action)
        assert all(
            np.array_equal(of_three[:1], own) for of_three, own in zip(together[:5], traces[0][t][:5], strict=True)
        )
    assert not np.array_equal(together.obs[0], together.obs[1])


def test_steps_are_those_of_gymnasium_and_a_reset_costs_none():
    envs = make("CartPole-v1", 1, seed=5, training=True)
    plain = gymnasium.make("CartPole-v1")
    episode, total, length = 0, 0.0, 0
    expected, _ = plain.reset(seed=stream_seed(5, "env", 0, 0))
    obs = envs.reset().copy()
    for action in random_actions(envs.spec, 200, 1):
        np.testing.assert_array_equal(obs[0], expected)
        taken = step(envs, action)
        next_obs, reward, terminated, truncated, _ = plain.step(int(action[0]))
        total, length = total + reward, length + 1
        np.testing.assert_array_equal(taken.next_obs[0], next_obs)
        assert (taken.reward[0], taken.terminated[0], taken.truncated[0]) == (reward, terminated, truncated)
        expected = next_obs
        if terminated:
            assert taken.episodes == [(total, length)]
            episode, total, length = episode + 1, 0.0, 0
            expected, _ = plain.reset(seed=stream_seed(5, "env", 0, episode))
        else:
            assert not taken.episodes
        obs = taken.obs
    assert episode > 3


@pytest.mark.parametrize(
    ("name", "limit", "action"),
    [
        ("MountainCar-v0", 200, 1),
        ("Pendulum-v1", 200, [0.0]),
        ("MinAtar/Freeway-v1", 2501, 0),
        ("Ant-v5", 1000, [0] * 8),
    ],
)
def test_a_time_limit_is_not_an_end(name, limit, action):
    envs = make(name, 1, seed=0, training=True)
    envs.reset()
    steps = [step(envs, [action]) for _ in range(limit)]
    assert not any(each.terminated[0] for each in steps)
    assert [each.truncated[0] for each in steps] == [False] * (limit - 1) + [True]
    (episode,) = steps[-1].episodes
    assert episode.length == limit
    np.testing.assert_allclose(episode.score, sum(float(each.reward[0]) for each in steps), rtol=1e-5)
    assert not np.array_equal(steps[-1].obs, steps[-1].next_obs)


def test_names_of_all_kinds_are_known():
    names = known_envs()
    assert {"CartPole-v1", "ALE/Pong-v5", "PongNoFrameskip-v4", "MinAtar/Seaquest-v1", "Hopper-v5"} <= set(names)
    assert "Pong-v4" not in names  # refused by make


@pytest.mark.parametrize("name", ["CartPole-v1", "MinAtar/Seaquest-v1", "PongNoFrameskip-v4"])
def test_pictures(name):
    envs = make(name, 1, seed=0, training=False, render=True)
    envs.reset()
    picture = envs.render()
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert picture.std() > 0
    envs.close()


# ---------------------------------------------------------------------------------------------------------------
# Bad input, and envs that break their promises.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPol-v1", "unknown env 'CartPol-v1': did you mean CartPole-v1"),
        ("PongNoFrameSkip-v4", "PongNoFrameskip-v4"),
        ("ALE/Pongg-v5", "ALE/Pong-v5"),
        ("MinAtar/Brekout-v1", "MinAtar/Breakout-v1"),
        ("Pong-v4", "skips frames at random; expected PongNoFrameskip-v4 or ALE/Pong-v5"),
        ("Hopper-v3", "env 'Hopper-v3' cannot be made"),
        ("no_such_module:Env-v0", "there is no module 'no_such_module' for the env .* nor in this folder"),
    ],
)
def test_wrong_names(name, words):
    with pytest.raises(BadInput, match=words):
        make(name, 1, seed=0, training=True)


def test_no_envs():
    with pytest.raises(BadInput, match="number of envs is 0; expected at least 1"):
        make("CartPole-v1", 0, seed=0, training=True)


def test_missing_extras_are_named():
    program = """
import sys
for module in ("ale_py", "minatar", "mujoco", "Box2D"):
    sys.modules[module] = None  # as if not installed
from bsrs.envs import make
from bsrs.errors import BadInput, MissingExtra
for name in ("PongNoFrameskip-v4", "ALE/Pong-v5", "MinAtar/Breakout-v1", "Hopper-v5", "LunarLander-v3"):
    try:
        make(name, 1, seed=0, training=True)
    except MissingExtra as error:
        print(error)
try:
    make("Pong", 1, seed=0, training=True)
except BadInput as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    extras = [line.rpartition("pip install ")[2] for line in output.splitlines()]
    assert extras[:5] == ["'bsrs[atari]'"] * 3 + ["'bsrs[mujoco]'"] * 2
    assert extras[5].startswith("unknown env 'Pong'")


def test_kinds_of_actions_are_checked():
    discrete, continuous = (make(name, 1, seed=0, training=True).spec for name in ("CartPole-v1", "Pendulum-v1"))
    assert require_discrete(discrete) == 2
    assert require_continuous(continuous) == ((-2.0,), (2.0,))
    with pytest.raises(BadInput, match="'Pendulum-v1' has continuous actions; expected an env with discrete"):
        require_discrete(continuous)
    with pytest.raises(BadInput, match="'CartPole-v1' has discrete actions; expected an env with continuous"):
        require_continuous(discrete)


class Scripted(gymnasium.Env):
    """Ends after three steps, in the way it is asked for."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, obs=0.0, reward=1.0, action_space=None, noise=False):
        self.action_space = action_space or Discrete(2, start=1)
        self._last, self._reward, self._noise = obs, reward, noise
        self._count = 0

    def reset(self, *, seed=None, options=None):
        self._count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._count += 1
        assert self.action_space.contains(action)  # this one counts its actions from 1
        obs = np.full(2, self._last if self._count == 2 else self._count, np.float32)
        if self._noise:
            obs = np.random.default_rng().standard_normal(2).astype(np.float32)
        return obs, self._reward, self._count == 3, False, {}


@pytest.fixture
def scripted():
    name = "Scripted-v0"
    gymnasium.register(name, entry_point=Scripted, max_episode_steps=3)

    def build(**kwargs):
        gymnasium.registry[name].kwargs = kwargs
        return make(name, 1, seed=0, training=True)

    yield build
    del gymnasium.registry[name]


def test_the_end_of_the_task_at_the_time_limit_is_an_end(scripted):
    envs = scripted()
    envs.reset()
    last = [step(envs, [0]) for _ in range(3)][-1]
    assert last.terminated == [True]
    assert last.truncated == [False]
    assert last.episodes == [(3.0, 3)]


@pytest.mark.parametrize("wrong", [{"obs": np.nan}, {"obs": np.inf}, {"reward": np.nan}, {"reward": -np.inf}])
def test_numbers_that_are_not_finite(scripted, wrong):
    envs = scripted(**wrong)
    envs.reset()
    with pytest.raises(EnvFault, match="'Scripted-v0' gave"):
        [envs.step(np.array([0])) for _ in range(2)]


def test_an_env_that_does_not_repeat_itself_is_found_out_and_its_episode_begins_again(scripted, capsys):
    envs = scripted(noise=True)
    envs.reset()
    envs.step(np.array([0]))
    state = envs.state()
    again = scripted(noise=True)
    obs = again.load_state(*state)
    assert "did not come back to its saved state" in capsys.readouterr().err
    assert again.state()[0]["count"].tolist() == [0]  # the episode begins again
    assert np.array_equal(obs, again.buffers.obs)


def test_state_of_other_envs_is_refused():
    first, second = (make("CartPole-v1", n, seed=0, training=True) for n in (1, 2))
    first.reset()
    with pytest.raises(BadInput, match=r"saved envs are .*'n': 1.* expected .*'n': 2"):
        second.load_state(*first.state())


def test_action_spaces_that_no_agent_takes(scripted):
    with pytest.raises(BadInput, match=r"actions MultiDiscrete.* with 400 combinations"):
        scripted(action_space=MultiDiscrete([20, 20]))
    with pytest.raises(BadInput, match="unbounded actions"):
        require_continuous(scripted(action_space=Box(-np.inf, np.inf, (2,))).spec)
