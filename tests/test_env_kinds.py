"""Envs as packages have them: what trains, and the sentence that says what to do where nothing can."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

import bsrs
from bsrs.cli import main
from bsrs.config.settings import folder_name
from bsrs.envs import make, require_continuous, require_discrete
from bsrs.envs.actions import Actions
from bsrs.envs.defaults import default_preset, spec_of
from bsrs.envs.given import env_name, split_settings, with_settings
from bsrs.envs.observations import Observations
from bsrs.errors import BadInput
from env_steps import step
from run_folders import config as small_config

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (7, 7, 3), np.uint8)


class Mission(spaces.Space):
    """MiniGrid's space of sentences: no Text, and it does not say whether it can be flattened."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "get the key"

    def contains(self, x):
        return isinstance(x, str)


class Small(gymnasium.Env):
    """Ten steps of samples of its spaces; it checks every action."""

    def __init__(self, obs=BOX, actions=None, reward=1.0, level=0):
        self.observation_space = obs
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self.reward, self.level = reward, level

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        return self.observation_space.sample(), self.reward, self.count == 10, False, {}


def envs_of(maker, n=1):
    return make(env_name(maker), n, seed=0, training=True)


def trains(algorithm, maker, **fields):
    small = {"steps": 40, "learning_starts": 10, "batch_size": 4, "buffer_size": 100, "eval_every": 0, "log_every": 20}
    agent = {"dqn": bsrs.DQN, "td3": bsrs.TD3}[algorithm].of(maker, eta=0.5, eval_episodes=1, **{**small, **fields})
    outcome = agent.learn().outcome
    assert outcome.outcome == "finished"
    return agent


# --------------------------------------------------------------------------------------------------------------
# Settings of envs.


def test_env_kwargs_are_part_of_the_name():
    name = with_settings("CartPole-v1", {"sutton_barto_reward": True})
    assert name == "CartPole-v1(sutton_barto_reward=True)"
    assert split_settings(name) == ("CartPole-v1", {"sutton_barto_reward": True})
    envs = make(name, 1, seed=0, training=True)
    envs.reset()
    assert step(envs, [0]).reward[0] == 0.0  # Sutton and Barto's; Gymnasium's own is 1
    with pytest.raises(BadInput, match=r"got an unexpected keyword argument 'colour'.*--env-kwargs KEY=VALUE"):
        make("CartPole-v1(colour='red')", 1, seed=0, training=True)
    with pytest.raises(BadInput, match="cannot be read; expected settings as in"):
        make("CartPole-v1(red", 1, seed=0, training=True)
    with pytest.raises(BadInput, match="go with the id of an env"):
        bsrs.DQN.of(Small, env_kwargs={"level": 1})


def test_env_kwargs_by_flag_and_in_python(tmp_path, capsys):
    words = "train dqn --env CartPole-v1 --env-kwargs sutton_barto_reward=true --steps 60 --learning-starts 20".split()
    main([*words, "--eval-every", "0", "--eval-episodes", "1", "--out", str(tmp_path / "run")])
    agent = bsrs.load(tmp_path / "run")
    assert agent.config.env == "CartPole-v1(sutton_barto_reward=True)"
    assert agent.records[-1]["score"] <= 0
    same = bsrs.DQN.of("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
    assert same.config.env == agent.config.env
    assert not any(sign in folder_name(same.config) for sign in "()'/")
    with pytest.raises(SystemExit):
        main(["train", "dqn", "--env", "CartPole-v1", "--env-kwargs", "level"])
    assert "--env-kwargs level: expected NAME=VALUE" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------
# Observations.


def minigrid():
    return Small(spaces.Dict(direction=spaces.Discrete(4), image=IMAGE, mission=Mission()))


def test_a_dict_with_one_image_is_that_image(capsys):
    agent = trains("dqn", minigrid)
    spec = spec_of(agent.config.env)
    assert spec.kind == "image"
    assert spec.obs_shape == (3, 7, 7)
    assert "the image 'image' is used, not direction, mission" in capsys.readouterr().err
    obs, _ = minigrid().reset(seed=0)
    alone = agent.predict(obs)
    assert alone == agent.predict(obs["image"]) == agent.predict([obs])[0]
    only = spaces.Dict(picture=IMAGE)
    assert Observations.of("E", only).shape == (3, 7, 7)


def test_text_is_left_out_and_the_rest_is_used(capsys):
    space = spaces.Dict(a=spaces.Box(-1, 1, (3,)), b=spaces.Dict(c=spaces.Discrete(2), t=spaces.Text(5)), m=Mission())
    agent = trains("dqn", lambda: Small(space))
    assert spec_of(agent.config.env).obs_shape == (5,)
    assert "the text b.t, m of the observations is left out" in capsys.readouterr().err
    agent.predict(space.sample())
    assert agent.predict([space.sample(), space.sample()]).shape == (2,)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Mission(), "has text as observations; expected numbers or images: gymnasium.wrappers.TransformObservation"),
        (spaces.Dict(a=IMAGE, b=IMAGE), r"has 2 images .*wrap it in FilterObservation\(env, \['a'\]\)"),
        (spaces.Sequence(BOX), "expected ones of a fixed size: gymnasium.wrappers.TransformObservation"),
        (spaces.Box(-1, 1, (0,)), r"observations of shape \(0,\), without a number"),
        (spaces.Dict(a=spaces.Box(-1, 1, (0,))), "without a number"),
        (None, "has no observation_space; expected one of gymnasium.spaces"),
    ],
)
def test_observations_that_no_agent_takes(space, words):
    with pytest.raises(BadInput, match=words):
        envs_of(lambda: Small(space))


def test_the_advice_on_several_images_is_followed_and_works():
    def one_image():
        return gymnasium.wrappers.FilterObservation(Small(spaces.Dict(a=IMAGE, b=IMAGE)), ["a"])

    assert envs_of(one_image).spec.obs_shape == (3, 7, 7)


# --------------------------------------------------------------------------------------------------------------
# Actions. `Small` checks that each is in its space.


@pytest.mark.parametrize(
    ("space", "n"),
    [
        (spaces.Discrete(3, start=5), 3),
        (spaces.MultiDiscrete([3, 2]), 6),
        (spaces.MultiDiscrete([[2, 2], [2, 2]], start=[[1, 1], [1, 1]]), 16),
        (spaces.MultiBinary(4), 16),
        (spaces.Box(-1, 1, (2,), np.int64), 9),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]), 8),
        (spaces.Dict(a=spaces.Discrete(2, start=-1), b=spaces.Discrete(3)), 6),
    ],
)
def test_discrete_actions_of_every_kind_are_numbered(space, n, capsys):
    actions = Actions.of("E", space)
    assert actions.n == n
    each = [actions.own(i) for i in range(n)]
    assert all(space.contains(action) for action in each)
    assert len({str(action) for action in each}) == n
    agent = trains("dqn", lambda: Small(actions=space))
    assert space.contains(agent.predict(np.zeros(2, np.float32)))
    assert ("are numbered" in capsys.readouterr().err) == (not isinstance(space, spaces.Discrete))


@pytest.mark.parametrize(
    ("space", "n"),
    [
        (spaces.Box(-1.0, 1.0, (2, 2), np.float64), 4),
        (spaces.Tuple([spaces.Box(0.0, 1.0, (2,)), spaces.Box(-1.0, 1.0, (1,))]), 3),
        (spaces.Dict(a=spaces.Box(0.0, 1.0, ()), b=spaces.Box(-1.0, 1.0, (1,))), 2),
        (spaces.Box(np.array([-1.0, 0.5]), np.array([1.0, 0.5]), dtype=np.float64), 2),  # low == high
    ],
)
def test_continuous_actions_of_every_kind_are_one_vector(space, n):
    agent = trains("td3", lambda: Small(actions=space), hidden=(8, 8))
    assert len(require_continuous(spec_of(agent.config.env))[0]) == n
    assert space.contains(agent.predict(np.zeros(2, np.float32)))
    assert all(np.isfinite(line["loss"]) for line in agent.records if "loss" in line)


def test_actions_are_clipped_to_the_envs_own_bounds():
    high = 0.1  # more in float32 than in float64
    assert float(np.float32(high)) > high
    space = spaces.Box(-high, high, (1,), np.float64)
    assert not space.contains(np.array([np.float32(high)], np.float64))
    assert space.contains(Actions.of("E", space).own(np.array([high], np.float32)))
    envs = envs_of(lambda: Small(actions=space))
    envs.reset()
    step(envs, np.array([[np.float32(high)]]))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.MultiDiscrete([100, 100]), "10,000 combinations; expected at most 256: gymnasium.wrappers.Transform"),
        (spaces.Tuple([spaces.Discrete(2), BOX]), "has the action space .*TransformAction can make such a space"),
        (spaces.Text(3), "expected discrete actions or a vector of numbers"),
        (None, "has no action_space; expected one of gymnasium.spaces"),
    ],
)
def test_actions_that_no_agent_takes(space, words):
    class Odd(Small):
        def __init__(self):
            super().__init__()
            self.action_space = space

    with pytest.raises(BadInput, match=words):
        envs_of(Odd)


def test_numbered_actions_are_not_continuous():
    spec = envs_of(lambda: Small(actions=spaces.Box(0, 2, (1,), np.int64))).spec
    assert require_discrete(spec) == 3
    with pytest.raises(BadInput, match="has discrete actions"):
        require_continuous(spec)


# --------------------------------------------------------------------------------------------------------------
# Rewards, and the API.


def test_a_reward_of_shape_one_is_a_number():
    envs = envs_of(lambda: Small(reward=np.array([2.5])))
    envs.reset()
    assert step(envs, [0]).reward[0] == 2.5


class OldReset(Small):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class NoSeed(Small):
    def reset(self):
        return super().reset()


class OldStep(Small):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


@pytest.mark.parametrize(
    ("maker", "words"),
    [
        (lambda: Small(reward=np.ones(3)), "its reward is a vector of 3 numbers; .*LinearReward"),
        (lambda: Small(reward=None), "its reward is 'None'; expected a number"),
        (OldReset, "its reset returns the observation alone; expected obs, info; it has the API of Gym before 0.26"),
        (NoSeed, r"its reset takes no seed; expected def reset\(self, \*, seed=None"),
        (OldStep, "its step does not return five values; expected obs, reward, terminated, truncated, info"),
        (lambda: gymnasium.wrappers.TimeLimit(OldStep(), 5), "its step does not return five values"),
    ],
)
def test_envs_that_break_the_api_are_told_in_a_sentence(maker, words):
    def one_step():
        envs = envs_of(maker)
        envs.reset()
        envs.step(np.array([0]))

    with pytest.raises(BadInput, match=words):
        one_step()


def test_an_env_that_lacks_a_package_names_it():
    def needs_more():
        import no_such_library  # noqa: F401

    gymnasium.register("Lacking-v0", entry_point=needs_more)
    try:
        with pytest.raises(
            BadInput, match="cannot be made: No module named 'no_such_library'; install no_such_library"
        ):
            make("Lacking-v0", 1, seed=0, training=True)
    finally:
        del gymnasium.registry["Lacking-v0"]


def test_an_env_that_is_a_vector_only_is_refused():
    gymnasium.register("Many-v0", vector_entry_point=lambda num_envs: None)
    try:
        with pytest.raises(BadInput, match="makes many copies at once only; expected an id that makes a single env"):
            make("Many-v0", 1, seed=0, training=True)
    finally:
        del gymnasium.registry["Many-v0"]


def test_an_error_in_the_envs_own_code_says_where():
    gymnasium.register("Broken-v0", entry_point=lambda: 1 / 0)
    try:
        with pytest.raises(
            BadInput,
            match=r"'Broken-v0' cannot be made: ZeroDivisionError: .*test_env_kinds.py:\d+\); --env-kwargs KEY=VALUE",
        ):
            make("Broken-v0", 1, seed=0, training=True)
    finally:
        del gymnasium.registry["Broken-v0"]


# --------------------------------------------------------------------------------------------------------------
# Names.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "MiniGrid-Empty-5x5-v0",
            "pip install minigrid, and prefix it with its module: minigrid:MiniGrid-Empty-5x5-v0",
        ),
        ("Meta-World/MT1", "pip install metaworld, .*: metaworld:Meta-World/MT1"),
        ("highway-fast-v0", "highway_env:highway-fast-v0"),
        ("cartpole-V1", "did you mean CartPole-v1"),
    ],
)
def test_names_of_packages_that_are_not_imported(name, words):
    with pytest.raises(BadInput, match=words):
        make(name, 1, seed=0, training=True)


def test_a_module_that_cannot_be_imported_is_told_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "needs_a_screen.py").write_text("raise RuntimeError('no screen')")
    (tmp_path / "needs_gym.py").write_text("import no_such_gym")
    (tmp_path / "needs_old.py").write_text("import gymnasium.no_such_part")
    (tmp_path / "old_gym.py").write_text("class Env:\n    pass")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, words in (
        ("needs_a_screen:Env", r"cannot be imported: RuntimeError: no screen \(.*needs_a_screen.py:1\)"),
        ("needs_gym:Env", "No module named 'no_such_gym'; install no_such_gym"),
        ("needs_old:Env", "No module named 'gymnasium.no_such_part'; another version of gymnasium may have it"),
        ("old_gym.py:Env", "is no name of a module; expected one such as my_envs, without a path or .py"),
        ("./old_gym:Env", "without a path or .py"),
        ("old_gym:Env", "made a old_gym.Env; expected a gymnasium.Env: the package shimmy converts"),
        ("old_gym:Game-v0", "has no env 'Game-v0': .* shimmy's GymV21Environment-v0"),
    ):
        with pytest.raises(BadInput, match=words):
            make(name, 1, seed=0, training=True)


def test_a_fault_in_an_installed_package_names_the_package(tmp_path, monkeypatch):
    """In your own module the file and the line say what to mend."""
    lines = ["import gymnasium", "class Env(gymnasium.Env):", "    def __init__(self): raise RuntimeError('no luck')"]
    for folder in (tmp_path / "site-packages", tmp_path):
        (folder / f"unlucky_{folder.name[0]}").mkdir(parents=True)
        (folder / f"unlucky_{folder.name[0]}" / "__init__.py").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(
        BadInput, match=r"no luck \(.*:3\); another version of unlucky_s, or of what it needs, may work"
    ):
        make("unlucky_s:Env", 1, seed=0, training=True)
    with pytest.raises(BadInput, match=r"no luck \(.*:3\)") as raised:
        make(f"unlucky_{tmp_path.name[0]}:Env", 1, seed=0, training=True)
    assert "another version" not in str(raised.value)


def test_a_module_lists_all_its_envs(tmp_path, monkeypatch):
    ids = [f"Listed{i}-v0" for i in range(15)]
    lines = ["import gymnasium", "class Plain(gymnasium.Env): pass"]
    lines += [f"gymnasium.register({id!r}, entry_point='many_envs:Plain')" for id in ids]
    (tmp_path / "many_envs.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput, match="which env of the module 'many_envs'") as raised:
        make("many_envs:", 1, seed=0, training=True)
    assert all(id in str(raised.value) for id in [*ids, "Plain"])
    for id in ids:
        del gymnasium.registry[id]


def test_small_continuous_envs_do_not_get_mujocos_million_steps():
    assert default_preset("td3", "MountainCarContinuous-v0").steps == 100_000
    assert default_preset("sac", env_name(lambda: Small(actions=BOX))).steps == 100_000
    assert default_preset("td3", "Hopper-v5").steps == default_preset("sac", "Ant-v5").steps == 1_000_000
    assert default_preset("td3", "Pendulum-v1").steps == small_config("Pendulum-v1", 0.0, 0, "td3").steps * 2


# --------------------------------------------------------------------------------------------------------------
# Wrappers with running statistics, and episodes without an end.


@pytest.mark.parametrize(
    "wrapper", [NormalizeReward, NormalizeObservation, lambda env: NormalizeReward(NormalizeObservation(env))]
)
def test_running_statistics_of_wrappers_are_resumed_exactly(wrapper):
    def maker():
        return wrapper(gymnasium.make("Pendulum-v1", max_episode_steps=20))

    envs, resumed = envs_of(maker), envs_of(maker)
    actions = np.random.default_rng(0).uniform(-2, 2, (70, 1, 1)).astype(np.float32)
    envs.reset()
    for action in actions[:50]:  # in the third episode
        step(envs, action)
    state = envs.state()
    expected = [step(envs, action) for action in actions[50:]]
    np.testing.assert_array_equal(resumed.load_state(*state), state[0]["obs"])
    found = [step(resumed, action) for action in actions[50:]]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.reward, theirs.reward)
        np.testing.assert_array_equal(ours.next_obs, theirs.next_obs)


def test_evaluation_says_when_episodes_have_no_end(monkeypatch, capsys):
    monkeypatch.setattr("bsrs.train.LONGEST_EPISODE", 50)

    class Endless(Small):
        def step(self, action):
            return super().step(action)[0], 1.0, False, False, {}

    trains("dqn", Endless)
    assert "1 of 1 evaluation episodes of python/Endless had no end after 50 steps" in capsys.readouterr().err
