"""What people do with a trained agent and with envs of their own: each test is named for a trap that was there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence, Tuple
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

import bsrs
from bsrs.cli import main
from bsrs.envs import make
from bsrs.envs.defaults import spec_of
from bsrs.envs.given import env_name
from bsrs.envs.observations import Observations
from bsrs.errors import BadInput, EnvFault
from bsrs.run import make_agent

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT: dict[str, Any] = {
    "steps": 300, "learning_starts": 100, "eval_every": 0, "eval_episodes": 1, "buffer_size": 500, "batch_size": 16,
}  # fmt: skip


class Noise(gymnasium.Env):
    """Any spaces: observations are drawn from theirs."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = Box(0, 255, (40, 36, 3), np.uint8) if observation_space is None else observation_space
        self.action_space = action_space or Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, self.steps == 10, {}


def noise(observation_space: Any, action_space: Any = None) -> Any:
    return lambda: Noise(observation_space, action_space)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Algorithm -> the folder of a short run."""
    root = tmp_path_factory.mktemp("trained")
    for name, env in (("dqn", "CartPole-v1"), ("td3", "Pendulum-v1"), ("sac", "Pendulum-v1")):
        learner = getattr(bsrs, name.upper()).of(env, eta=0.5, **SHORT)
        learner.learn().save(root / name)
    return {path.name: path for path in root.iterdir()}


def load(trained: dict[str, Path], name: str) -> Any:
    return getattr(bsrs, name.upper()).load(trained[name])


# --------------------------------------------------------------------------------------------------------------
# A trained agent.


@pytest.mark.parametrize("name", ["dqn", "td3", "sac"])
def test_predict_takes_one_observation_or_a_batch(trained, name):
    agent = load(trained, name)
    env = gymnasium.make(agent.config.env)
    obs = [env.reset(seed=seed)[0] for seed in range(3)]
    actions = agent.predict(np.stack(obs))
    assert len(actions) == 3
    for one, action in zip(obs, actions, strict=True):
        assert agent.predict(one) == pytest.approx(action, rel=1e-5)  # one row's product rounds otherwise
        assert env.action_space.contains(agent.predict(one))
    assert agent.predict([o.tolist() for o in obs]) == pytest.approx(actions)  # lists are float64
    env.step(agent.predict(obs[0]))


def test_predict_says_which_shape_was_expected(trained):
    with pytest.raises(BadInput, match=r"shape \(5,\) was given; expected \(4,\)"):
        load(trained, "dqn").predict(np.zeros(5))


def test_predict_takes_images_as_the_env_gives_them():
    agent = bsrs.DQN.of(noise(Box(0, 255, (40, 36, 3), np.uint8), Discrete(3, start=1)), **SHORT)
    obs = Noise().reset(seed=0)[0]
    assert agent.predict(obs) == agent.predict(obs[None])[0] == agent.predict(obs.transpose(2, 0, 1))
    assert 1 <= agent.predict(obs) <= 3  # the env counts its actions from 1
    assert agent.predict(obs.astype(np.int64)) == agent.predict(obs)
    with pytest.raises(BadInput, match="expected whole numbers from 0 to 255"):
        agent.predict(obs / 255)


def test_predict_takes_dicts_and_tuples():
    space = Dict(place=Box(-1, 1, (2,)), key=Discrete(3))
    agent = bsrs.DQN.of(noise(space), **SHORT)
    space.seed(0)
    obs = [space.sample() for _ in range(4)]
    batch = {key: np.stack([o[key] for o in obs]) for key in ("place", "key")}
    assert agent.predict(obs).tolist() == [agent.predict(o) for o in obs] == agent.predict(batch).tolist()
    both = Tuple((Discrete(3), Box(0, 1, (2,))))
    read = Observations.of("env", both)
    assert read.batch(both.sample())[1]
    assert read.batch([both.sample(), both.sample()])[0].shape == (2, 5)
    with pytest.raises(BadInput, match=r"not one of Dict\(place, key\), nor a batch"):
        agent.predict({"place": np.zeros(2)})


def test_q_values_and_value(trained):
    dqn, obs = load(trained, "dqn"), np.zeros((2, 4), np.float32)
    assert dqn.q_values(obs).shape == (2, 2)
    assert dqn.q_values(obs[0]).argmax() == dqn.predict(obs[0])
    assert dqn.value(obs) == pytest.approx(dqn.q_values(obs).max(axis=-1))
    for name in ("td3", "sac"):
        agent, obs = load(trained, name), np.ones((2, 3), np.float32)
        action = agent.predict(obs)
        assert agent.q_values(obs, action) == pytest.approx(agent.q_values(obs))
        assert agent.q_values(obs[0], action[0]).shape == (2,)
        assert agent.value(obs) == pytest.approx(agent.q_values(obs).min(axis=-1))
        assert agent.q_values(obs, action + 0.5) != pytest.approx(agent.q_values(obs))


@pytest.mark.parametrize("name", ["dqn", "td3", "sac"])
def test_loaded_agents_have_all_their_networks(trained, name):
    """The critics are part of the saved model, and target networks start as copies."""
    first, second = load(trained, name).agent, load(trained, name).agent
    untrained = make_agent([load(trained, name).config])
    for network in first.networks:
        ours, theirs, fresh = (flat(agent.networks[network]) for agent in (first, second, untrained))
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, fresh)
        if network in first.targets:
            assert torch.equal(ours, flat(first.networks[first.targets[network]]))


def flat(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_learn_after_load_continues_from_the_weights_and_says_so(trained, name, capsys, tmp_path):
    agent = load(trained, name)
    before = agent.agent.policy(0).tensors
    agent.learn(60)  # less than learning_starts: the replay fills, nothing is learnt yet
    assert agent.step == 360
    assert all(torch.equal(before[key], tensor) for key, tensor in agent.agent.policy(0).tensors.items())
    said = capsys.readouterr().err
    assert f"training continues from the weights of {trained[name]} at step 300" in said
    assert "100 steps fill it first" in said
    agent = load(trained, name).learn(200)
    assert any(not torch.equal(before[key], tensor) for key, tensor in agent.agent.policy(0).tensors.items())
    agent.save(tmp_path / "longer")
    again = getattr(bsrs, name.upper()).load(tmp_path / "longer")
    assert again.step == again.config.steps == 500
    obs = np.ones(spec_of(agent.config.env).obs_shape, np.float32)
    assert np.array_equal(again.predict(obs), agent.predict(obs))


def test_a_second_learn_does_not_start_anew(capsys):
    agent = bsrs.DQN.of("CartPole-v1", **SHORT).learn()
    assert agent.agent.epsilon(agent.step) == pytest.approx(agent.config.exploration_final_eps)
    agent.learn(100)
    assert "training continues from the weights at step 300" in capsys.readouterr().err
    assert [line["step"] for line in agent.records if line["kind"] == "eval"] == [300, 400]


def test_what_was_not_trained_is_not_saved(tmp_path):
    with pytest.raises(BadInput, match="nothing to save"):
        bsrs.DQN.of("CartPole-v1", **SHORT).save(tmp_path / "run")


def test_an_old_model_without_critics_is_not_taken_for_one_that_has_them(trained, tmp_path):
    agent = load(trained, "td3")
    agent._loaded = frozenset(name for name in agent._loaded if "/" not in name)
    with pytest.raises(BadInput, match="without its critics"):
        agent.value(np.zeros(3))
    with pytest.raises(BadInput, match="without its critics"):
        agent.learn()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["dqn", "td3", "sac"])
def test_export_to_torchscript_acts_as_the_agent(trained, name, tmp_path, capsys):
    main(["export", str(trained[name]), "--format", "torchscript", "--out", str(tmp_path / "policy.pt")])
    assert "the agent's own on 1,000 observations" in capsys.readouterr().out
    agent = load(trained, name)
    obs = np.random.default_rng(0).normal(size=(50, *spec_of(agent.config.env).obs_shape)).astype(np.float32)
    actions = torch.jit.load(str(tmp_path / "policy.pt"))(torch.from_numpy(obs)).numpy()
    assert actions == pytest.approx(agent.predict(obs), abs=1e-4)


def test_export_of_an_image_policy_to_onnx_acts_as_the_agent(tmp_path, monkeypatch, capsys):
    """The whole journey by the command line: an own image env in this folder, trained, loaded, exported."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_images.py").write_text((EXAMPLES / "my_envs.py").read_text().replace("Catch-v0", "CatchOwn-v0"))
    flags = "--eta 0.5 --steps 200 --learning-starts 100 --eval-every 0 --eval-episodes 1 --out run --threads 1"
    main(["train", "dqn", "--env", "my_images:CatchOwn-v0", *flags.split()])
    main(["export", "run", "--trust"])
    assert "1,000 observations, 1,000 are equal" in capsys.readouterr().out
    agent = bsrs.DQN.load("run", trust=True)
    assert any(isinstance(layer, torch.nn.Conv2d) for layer in agent.agent.online.modules())
    env = gymnasium.make("CatchOwn-v0")
    obs, _ = env.reset(seed=0)
    policy = onnxruntime.InferenceSession("run/policy.onnx")
    for _ in range(7):
        (action,) = policy.run(None, {"obs": obs[None]})
        assert action[0] == agent.predict(obs)
        obs, *_ = env.step(agent.predict(obs))


def test_export_refuses_other_algorithms_in_a_sentence(trained, tmp_path):
    with pytest.raises(BadInput, match="expected onnx or torchscript"):
        load(trained, "dqn").export(tmp_path / "x", "pickle")


# --------------------------------------------------------------------------------------------------------------
# Envs of one's own.


@pytest.mark.parametrize("how", ["id", "object", "wrapped object", "class", "function"])
def test_of_takes_an_id_an_object_or_a_factory(how):
    env: Any = {
        "id": "CartPole-v1",
        "object": gymnasium.make("CartPole-v1"),
        "wrapped object": TimeLimit(Noise(Box(-1, 1, (3,))), 5),
        "class": Noise,
        "function": lambda: gymnasium.make("CartPole-v1", sutton_barto_reward=True),
    }[how]
    agent = bsrs.DQN.of(env, **{**SHORT, "steps": 120})
    agent.learn()
    assert len(agent.evaluate(3)) == 3
    if how == "wrapped object":
        assert agent.evaluate(1) == [5.0]  # the wrapper is part of it


def test_two_envs_of_one_class_are_two_envs():
    small, large = (env_name(noise(Box(-1, 1, (size,)))) for size in (2, 7))
    assert spec_of(small).obs_shape == (2,)
    assert spec_of(large).obs_shape == (7,)


def test_what_is_no_env_is_refused():
    with pytest.raises(BadInput, match=r"env is a int; expected an id, a gymnasium.Env or a function"):
        bsrs.DQN.of(3)
    with pytest.raises(BadInput, match="the function given as env made a int"):
        bsrs.DQN.of(lambda: 3)


def test_a_python_env_must_be_given_again(tmp_path, monkeypatch):
    bsrs.DQN.of(Noise, **SHORT).learn().save(tmp_path / "run")
    monkeypatch.setattr("bsrs.envs.given._given", {})
    spec_of.cache_clear()
    with pytest.raises(BadInput, match=r"was a Python object, which is not saved: pass it again"):
        bsrs.DQN.load(tmp_path / "run")
    assert bsrs.DQN.load(tmp_path / "run", env=Noise).predict(Noise().reset(seed=0)[0]) in (0, 1, 2)


@pytest.fixture
def module_folder(tmp_path, monkeypatch):
    """A folder with a module of envs, where the command is given; the folder is on nobody's path."""
    (tmp_path / "own_module_here.py").write_text((EXAMPLES / "my_envs.py").read_text().replace("-v0", "-v7"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    yield
    sys.modules.pop("own_module_here", None)
    for name in ("Corridor-v7", "Reach-v7", "Catch-v7"):
        gymnasium.registry.pop(name, None)


def test_a_module_of_this_folder_is_found(module_folder):
    main("train dqn --env own_module_here:Corridor-v7 --steps 100 --eval-episodes 1 --out run --threads 1".split())
    assert Path("run/model.safetensors").exists()
    assert make("own_module_here:Corridor", 1, 0, training=True).spec.obs_shape == (1,)  # the class itself


def test_playing_an_env_that_cannot_be_drawn_is_one_sentence(tmp_path, capsys):
    bsrs.DQN.of(Noise, **{**SHORT, "steps": 110}).learn().save(tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        main(["play", str(tmp_path / "run"), "--out", str(tmp_path / "video.gif")])
    assert stop.value.code == 2
    assert "cannot be drawn; expected one that takes render_mode='rgb_array'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("own_modul_here:Corridor-v7", "there is no module 'own_modul_here' .* nor in this folder, .*PYTHONPATH"),
        (
            "own_module_here:Coridor-v7",
            "unknown env of the module 'own_module_here' 'Coridor-v7': did you mean Corridor-v7",
        ),
        ("json:Env-v0", "the module 'json' has no env 'Env-v0': it calls no gymnasium.register"),
        ("xyzzy", "unknown env 'xyzzy': expected an id of Gymnasium's, or module:Id for your own$"),
        ("", "unknown env '': expected an id"),
        ("CartPole v1", "unknown env 'CartPole v1': did you mean CartPole-v1"),
        ("a:b:c", "there is no module 'a'"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(module_folder, env, says):
    with pytest.raises(BadInput, match=says) as error:
        make(env, 1, 0, training=True)
    assert "\n" not in str(error.value)


def test_a_module_that_needs_another_says_which(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_library")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        BadInput, match=r"'needs_more' for the env .* cannot be imported: No module named 'no_such_library'"
    ):
        make("needs_more:Env-v0", 1, 0, training=True)


# --------------------------------------------------------------------------------------------------------------
# Images.

IMAGES = [
    (Box(0, 255, (64, 64, 3), np.uint8), (3, 64, 64), "uint8", 255.0, 32),
    (Box(0, 255, (3, 40, 50), np.uint8), (3, 40, 50), "uint8", 255.0, 32),
    (Box(0.0, 1.0, (40, 40, 3), np.float32), (3, 40, 40), "float32", 1.0, 32),
    (Box(0, 255, (84, 84), np.uint8), (1, 84, 84), "uint8", 255.0, 32),
    (Box(0, 255, (4, 40, 36, 3), np.uint8), (12, 40, 36), "uint8", 255.0, 32),
    (Box(0, 255, (24, 24, 3), np.uint8), (3, 24, 24), "uint8", 255.0, 16),
    (Box(0, 10, (7, 7, 3), np.uint8), (3, 7, 7), "uint8", 10.0, 16),
    (Box(0, 1, (10, 10, 4), bool), (4, 10, 10), "uint8", 1.0, 16),
    (MultiBinary((10, 10, 4)), (4, 10, 10), "uint8", 1.0, 16),
]


@pytest.mark.parametrize(("space", "shape", "dtype", "scale", "channels"), IMAGES, ids=lambda x: str(x)[:30])
def test_images_of_any_env_get_a_convolutional_network(space, shape, dtype, scale, channels):
    agent = bsrs.DQN.of(noise(space), **{**SHORT, "steps": 120, "eval_every": 120})
    spec = spec_of(agent.config.env)
    assert (spec.kind, spec.obs_shape, spec.obs_dtype, spec.obs_scale) == ("image", shape, dtype, scale)
    assert next(agent.agent.online.children())[0][0].out_channels == channels
    stored = agent.learn().agent.replay.state(0)[0]["obs"]
    assert stored.dtype == dtype  # bytes stay bytes
    seen = space.sample()
    assert np.array_equal(spec.observations.own_form(spec.observations.batch(seen)[0])[0], seen)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_reading_an_image_loses_nothing(data):
    sides = data.draw(st.lists(st.integers(8, 12), min_size=2, max_size=2))
    channels = data.draw(st.integers(1, 4))
    stack = data.draw(st.sampled_from([(), (2,), (5,)]))
    shape = (*stack, *data.draw(st.sampled_from([(*sides, channels), (channels, *sides)])))
    space = Box(0, 255, shape, np.uint8, seed=data.draw(st.integers(0, 100)))
    read = Observations.of("env", space)
    raw = np.stack([space.sample() for _ in range(3)])
    batch, single = read.batch(raw)
    assert not single
    assert batch.shape == (3, channels * int(np.prod(stack)), *sides)
    assert np.array_equal(read.own_form(batch), raw)
    assert np.array_equal(batch[1], read.one(raw[1]))
    # where a pixel is: the last axes are height and width, whichever way the channels lie
    last = raw[0][-1] if stack else raw[0]
    picture = last if last.shape[0] == channels and last.shape[1:] == tuple(sides) else np.moveaxis(last, -1, 0)
    assert np.array_equal(batch[0][-channels:], picture)


@pytest.mark.parametrize(
    ("space", "numbers"),
    [
        (Box(-1, 1, (6, 5)), 30),
        (Dict(a=Box(0, 1, (3,)), b=Discrete(4)), 7),
        (Discrete(5), 5),
        (Box(0, 1, (2, 40, 2)), 160),
    ],
)
def test_what_is_flattened_is_said(space, numbers, capsys):
    agent = bsrs.DQN.of(noise(space), **SHORT)
    assert not any(isinstance(layer, torch.nn.Conv2d) for layer in agent.agent.online.modules())
    assert f"are flattened into {numbers} numbers" in capsys.readouterr().err


def test_nothing_is_said_of_vectors_and_images(capsys):
    for space in (Box(-1, 1, (3,)), IMAGES[0][0]):
        spec_of(env_name(noise(space)))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (Tuple((Discrete(2), Dict(eye=Box(0, 1, (3, 9, 9))))), "has 1 images in its observations"),
        (Sequence(Box(0, 1, (2,))), "expected ones of a fixed size"),
    ],
)
def test_observations_that_no_agent_takes_are_one_sentence(space, says):
    with pytest.raises(BadInput, match=says):
        bsrs.DQN.of(noise(space), **SHORT)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("algorithm", [bsrs.TD3, bsrs.SAC])
@pytest.mark.parametrize("side", [24, 9])
def test_images_for_td3_and_sac_get_a_convolutional_network_that_learns(algorithm, side, tmp_path):
    env = noise(Box(0, 255, (side, side, 3), np.uint8), Box(-1, 1, (2,)))
    agent = algorithm.of(env, eta=0.5, **{**SHORT, "steps": 130})
    before = agent.agent.policy(0).tensors
    assert agent.agent.replay.state(0)[0]["obs"].dtype == np.uint8
    agent.learn().save(tmp_path / "run")
    after = agent.agent.policy(0).tensors
    encoder = [name for name in before if name.startswith("encoder/")]
    assert len(encoder) == (8 if side == 24 else 6)
    assert all(not torch.equal(before[name], after[name]) for name in encoder)
    obs = env().reset(seed=0)[0]
    again = algorithm.load(tmp_path / "run", env=env)
    assert again.predict(obs) == pytest.approx(agent.predict(obs))
    assert again.value(obs) == pytest.approx(agent.value(obs))
    assert "1,000 observations" in again.export(tmp_path / "policy.pt", "torchscript")


def test_an_env_that_breaks_its_word_is_named():
    class Liar(Noise):
        def reset(self, **options: Any) -> Any:
            super().reset(**options)
            return np.zeros(3, np.float32), {}

    with pytest.raises(EnvFault, match=r"Liar.* gave an observation of shape \(3,\); its space is Box"):
        make(env_name(lambda: Liar(Box(-1, 1, (2,)))), 1, 0, training=True).reset()


# --------------------------------------------------------------------------------------------------------------
# The command line.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train dqn --env CartPole-v1 --etaa 1", "unknown flag --etaa: did you mean --eta?"),
        ("train dqn --env CartPole-v1 --max-step 5", "unknown flag --max-step: did you mean --max-steps?"),
        ("runs . --colour red", "unknown flag --colour: bsrs runs --help lists all"),
        ("train dqn", "Missing from bsrs train dqn: --env"),
        ("train dqn --env CartPole-v1 --steps many", "Error parsing --steps: expected INT, not ['many']"),
        ("train td3 --env Pendulum-v1 --potential none", "potential is 'none'; expected policy"),
        ("train dqn --env CartPole-v1 5", "'5' is one word too many for bsrs train dqn"),
    ],
)
def test_unknown_flags_and_wrong_values_are_one_sentence(words, says, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"bsrs: {says}")
    assert said.count("\n") == 1


def test_the_shell_completes_commands_flags_and_values(capsys, tmp_path):
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def complete(*words: str) -> list[str]:
        code = f'source "{tmp_path}/script"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bsrs; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", code, "-", *words], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("bsrs", "tr") == ["train"]
    assert {"dqn", "sac", "td3", "--help"} <= set(complete("bsrs", "train", ""))
    assert "--target-update-interval" in complete("bsrs", "train", "dqn", "--tar")
    assert complete("bsrs", "train", "td3", "--env", "Pendulum-v1", "--potential", "") == ["policy", "replay"]
    assert {"dqn", "--dry-run"} <= set(complete("bsrs", "sweep", ""))
    assert complete("bsrs", "export", "run", "--format", "t") == ["torchscript"]


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_ends_at_the_end(capsys, monkeypatch, tmp_path, terminal):
    """Also where the last record comes before the last step, and with the final score."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "200")
    flags = "--steps 250 --log-every 100 --eval-every 0 --eval-episodes 1 --threads 1 --out"
    main(["train", "dqn", "--env", "CartPole-v1", *flags.split(), str(tmp_path / "run")])
    last = [line for line in capsys.readouterr().err.splitlines() if "250" in line][-1]
    assert ("250/250" if terminal else "step 250 of 250") in last
    assert "score" in last
    assert "left" not in last
