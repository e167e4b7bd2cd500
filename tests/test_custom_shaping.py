"""Etas and potentials of the user's own: recorded under their names, required at load, saved and resumed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bsrs
from bsrs.agents.agent import Batch
from bsrs.cli import main
from bsrs.config.settings import folder_name
from bsrs.errors import BadInput
from bsrs.naming import is_object_name, name_of, object_named
from bsrs.potentials import as_potential, potential_setting
from bsrs.scales import Custom, Linear, PerState, Piecewise, ShapeScale, as_scale, scale_setting
from bsrs.shaping import RandomDynamic, Seen, Shaper, Shaping, Static
from dying import train_and_die

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {"steps": 300, "learning_starts": 100, "eval_every": 0, "log_every": 100, "eval_episodes": 1}


class MyScale(ShapeScale):
    """What a user writes first: a class without fields."""

    def __call__(self, step, state=None):
        return 0.5


@dataclass(frozen=True)
class Falling(ShapeScale):
    start: float = 1.0
    depends_on_state = False

    def __call__(self, step, state=None):
        return self.start / (1 + step)


class Undeclared(ShapeScale):
    depends_on_state = False

    def __init__(self, level):
        self.level = level

    def __call__(self, step, state=None):
        return self.level


def by_step(step):
    return 0.25


def by_state(state):
    return 1 / (1 + abs(state[:, 0]))


def by_both(step, state):
    return 0.75


def distance(state):
    return -abs(state[:, 0])


# --------------------------------------------------------------------------------------------------------------
# Names.


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (MyScale, f"{__name__}:MyScale"),
        (MyScale(), f"{__name__}:MyScale"),
        (Falling(), f"{__name__}:Falling"),
        (Falling(2.5), f"{__name__}:Falling(start=2.5)"),
        (by_step, f"{__name__}:by_step"),
        (Static(by_state), None),
        (Undeclared(3), None),
        (lambda step: 0.5, None),
    ],
)
def test_a_name_is_an_import_path_or_says_that_there_is_none(thing, name):
    found = name_of(thing)
    assert is_object_name(found)
    assert found == name_of(thing)
    if name:
        assert found == name
        made = object_named(found, "eta")
        assert (made if made is thing or isinstance(made, type) else type(made)) in (thing, type(thing))
    else:
        assert found.startswith("python/")
        assert object_named(found, "eta") is thing


def test_objects_that_differ_have_names_that_differ():
    lambdas = [lambda step: 0.5, lambda step: 0.6, *(lambda step, k=k: k for k in (1, 2))]
    things = [*lambdas, Undeclared(1), Undeclared(2), Undeclared(by_step), Static([1, 2]), Static([1, 3])]
    assert len({name_of(thing) for thing in things}) == len(things)
    assert "level=1" in name_of(Undeclared(1))


@pytest.mark.parametrize("text", ["0.5", "auto", "linear:2:0:100", "cosine:1:0:9", "piecewise:0=1,9=0", "liner:2:0:9"])
def test_schedules_are_no_names_of_objects(text):
    assert not bsrs.scales.is_own_scale(text)


@pytest.mark.parametrize(
    ("eta", "setting"),
    [
        (1, 1.0),
        (bsrs.Constant(0.5), 0.5),
        (Linear(2, 0, 100), "linear:2:0:100"),
        (bsrs.Cosine(1.5, 0, 100), "cosine:1.5:0:100"),
        (Piecewise(((0, 1.0), (50, 0.0))), "piecewise:0=1.0,50=0.0"),
        ("auto", "auto"),
        (MyScale, f"{__name__}:MyScale"),
    ],
)
def test_etas_as_a_config_holds_them_mean_the_same(eta, setting):
    assert scale_setting(eta) == setting
    assert type(as_scale(setting)) is type(as_scale(eta))


def test_what_functions_are_asked():
    assert as_scale(by_step)(7) == 0.25
    assert not as_scale(by_step).depends_on_state
    assert isinstance(as_scale(by_state), PerState)
    assert isinstance(as_scale(by_both), Custom)
    assert as_scale(lambda step, factor=2: factor * step)(3) == 6  # a default is no second argument
    for function in (lambda x: 1.0, lambda: 1.0, lambda a, b, c: 1.0):
        with pytest.raises(BadInput, match=r"expected \(step, state\), \(step\) or \(state\)"):
            as_scale(function)
    with pytest.raises(BadInput, match="expected a subclass of ShapeScale"):
        as_scale(dict)


def test_a_bare_function_is_a_potential():
    assert as_potential(distance) == Static(distance)
    assert potential_setting(distance) == f"{__name__}:distance"
    assert as_potential(f"{__name__}:distance") == Static(distance)
    assert as_potential(RandomDynamic(3)) == RandomDynamic(3)
    for wrong, words in ((lambda a, b: 0, r"takes \(a, b\); expected a function of"), (3, "potential is '3'")):
        with pytest.raises(BadInput, match=words):
            as_potential(wrong)
    with pytest.raises(BadInput, match="potential is 'distanc'; expected bootstrapped, or MODULE:NAME"):
        bsrs.DQN.of("CartPole-v1", potential="distanc")


def test_eta_of_the_wrong_shape_is_refused_and_numpy_is_taken():
    import torch

    reward, state = torch.ones(3), torch.rand(3, 4)

    def shaped(function):
        return Shaper(Shaping(function))(reward, reward, reward, gamma=0.9, state=state, next_state=state)

    with pytest.raises(BadInput, match=r"shape \(3, 1\); expected one number per state, shape \(3,\)"):
        shaped(lambda state: state[:, :1])
    of_numpy, of_torch = shaped(lambda state: state.numpy()[:, 0]), shaped(lambda state: state[:, 0])
    torch.testing.assert_close(of_numpy, of_torch)
    assert of_torch.shape == (3,)


# --------------------------------------------------------------------------------------------------------------
# Runs: the trap, and every form.


def eta_of(folder: Path) -> object:
    return json.loads((folder / "config.json").read_text())["config"]["eta"]


def test_the_trap_a_scale_of_your_own_is_not_recorded_as_a_number(tmp_path, capsys):
    config = bsrs.DQN.of("CartPole-v1", eta=0.5, **SMALL).config
    bsrs.DQN(config, shaping=Shaping(MyScale())).learn().save(tmp_path / "x")
    bsrs.DQN(config, shaping=Shaping(Undeclared(0.5), distance)).learn().save(tmp_path / "y")
    assert eta_of(tmp_path / "x") == f"{__name__}:MyScale"
    assert eta_of(tmp_path / "y").startswith("python/Undeclared(level=0.5)-")
    main(["runs", str(tmp_path)])
    listed = capsys.readouterr().out
    assert f"{__name__}:MyScale" in listed
    assert "python/Undeclared(level=0.5)" in listed
    with pytest.raises(BadInput, match=r"has the eta '.*MyScale', which imports code: .* or pass eta=\.\.\. yourself"):
        bsrs.DQN.load(tmp_path / "x")
    assert bsrs.DQN.load(tmp_path / "x", trust=True).config.eta == f"{__name__}:MyScale"
    assert bsrs.DQN.load(tmp_path / "x", eta=MyScale()).config.eta == f"{__name__}:MyScale"
    assert "trained with" not in capsys.readouterr().err
    bsrs.DQN.load(tmp_path / "x", eta=0.5)
    assert f"was trained with eta {__name__}:MyScale" in capsys.readouterr().err
    bsrs.DQN.load(tmp_path / "x", policy_only=True).predict(np.zeros(4, np.float32))
    with pytest.raises(BadInput, match="without its shaping"):
        bsrs.DQN.load(tmp_path / "x", policy_only=True).learn(10)


def test_another_process_must_pass_what_was_a_python_object(tmp_path):
    bsrs.DQN.of("CartPole-v1", eta=lambda step: 0.5, **SMALL).learn().save(tmp_path / "x")
    code = f"import bsrs; bsrs.load({str(tmp_path / 'x')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "was a Python object, which is not saved: pass it again, as in bsrs.load(folder, eta=...)" in done.stderr


@pytest.mark.parametrize("eta", [0.5, "linear:2:0:100", Linear(1, 0, 200), by_state, by_both, Falling, Falling(2.0)])
def test_of_takes_every_kind_of_eta(eta):
    agent = bsrs.DQN.of("CartPole-v1", eta=eta, **SMALL)
    assert all(np.isfinite(line.get("eta", 0.0)) for line in agent.learn().records)


@pytest.mark.parametrize("kind", [bsrs.DQN, bsrs.TD3, bsrs.SAC])
def test_potentials_and_etas_of_the_state_in_every_agent(kind):
    env = "CartPole-v1" if kind is bsrs.DQN else "Pendulum-v1"
    agent = kind.of(env, eta=by_state, potential=distance, hidden=(16, 16), **SMALL).learn()
    assert agent.config.potential == f"{__name__}:distance"
    last = [line for line in agent.records if "shaping" in line][-1]
    assert last["shaping"] != 0
    assert 0 < last["eta"] < 1


def test_a_shaping_and_an_eta_are_one_too_many():
    with pytest.raises(BadInput, match="expected it alone"):
        bsrs.DQN.of("CartPole-v1", eta=1.0, shaping=Shaping(1.0))


def test_members_of_a_population_are_asked_one_by_one():
    from bsrs.run import make_agent

    config = bsrs.DQN.of("CartPole-v1", eta=by_state, **SMALL).config
    agent = make_agent([config, config])
    import torch

    obs, ones = torch.rand(2, 5, 4), torch.ones(2, 5)
    batch = Batch(obs, ones, 0 * ones, obs, ones == 0)
    shaped = agent.shaped_target(batch, 0 * ones, ones, 0 * ones, step=0)
    torch.testing.assert_close(shaped, -torch.stack([by_state(own) for own in obs]))


def test_folder_names_hold_no_signs_of_their_own():
    names = [folder_name(bsrs.DQN.of("CartPole-v1", eta=eta).config) for eta in (Falling(2.5), lambda step: 1.0)]
    assert not any(sign in name for name in names for sign in "/:()")
    assert folder_name(bsrs.DQN.of("CartPole-v1", eta="piecewise:0=1,9=0").config).startswith(
        "dqn-CartPole-v1-etapiecewise-0=1,9=0-seed0-"
    )


# --------------------------------------------------------------------------------------------------------------
# The examples: scales that learn.


@pytest.fixture
def at_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("custom_eta")


def seen(**arrays) -> Seen:
    defaults = {"reward": np.ones(4), "value": np.ones(4), "next_value": np.ones(4), "terminated": np.zeros(4, bool)}
    return Seen(0, 1.0, **{**defaults, **arrays})


def test_count_based_eta_falls_where_states_were_seen(at_examples):
    scale = at_examples.CountBased(scale=2.0, bits=8)
    here, there = np.array([[1.0, 2.0]]), np.array([[-1.0, -2.0]])  # on different sides of every plane
    memory = scale.init()
    np.testing.assert_allclose(scale.at(memory, 0, here), 2.0)
    memory = scale.update(memory, seen(obs=np.repeat(here, 8, axis=0)))
    np.testing.assert_allclose(scale.at(memory, 0, here), 2.0 / 3)
    np.testing.assert_allclose(scale.at(memory, 0, there), 2.0)


def test_error_based_eta_follows_the_error(at_examples):
    scale = at_examples.ErrorBased(most=2.0, gamma=0.5, batches=1)
    memory = scale.update(scale.init(), seen(value=np.zeros(4)))  # error 1.5
    assert scale.at(memory, 0) == 2.0
    memory = scale.update(memory, seen(value=np.full(4, 1.5), terminated=np.array([True] * 2 + [False] * 2)))
    assert memory["error"] == pytest.approx(0.25)  # half of the batch is right
    assert scale.at(memory, 0) == pytest.approx(2.0 * 0.25 / 1.5)


COMMANDS = {
    "dqn": "train dqn --env CartPole-v1 --eta custom_eta:CountBased(scale=2.0) --steps 900 --learning-starts 100",
    "td3": "train td3 --env Pendulum-v1 --eta custom_eta:CountBased --steps 500 --hidden 16 16 --batch-size 32",
}


@pytest.mark.parametrize("algorithm", COMMANDS)
def test_a_count_based_eta_is_killed_resumed_and_listed_under_its_name(at_examples, algorithm, tmp_path, capsys):
    words = [*COMMANDS[algorithm].split(), "--checkpoint-every", "100", "--eval-every", "0", "--log-every", "50"]
    words += ["--eval-episodes", "1", "--no-tensorboard"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    train_and_die([*words, "--out", str(killed)], lines=8)
    main([*words, "--resume", "--out", str(killed)])
    main([*words, "--out", str(whole)])
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    capsys.readouterr()
    main(["runs", str(tmp_path)])
    assert capsys.readouterr().out.count(words[5]) == 2


def test_what_a_scale_remembers_is_saved_and_loaded(at_examples, tmp_path):
    agent = bsrs.DQN.of("CartPole-v1", eta="custom_eta:CountBased", **SMALL).learn()
    agent.save(tmp_path / "run")
    counts = agent.agent.shapers[0].state()["memory"]["counts"]
    assert sum(counts) > 1_000
    assert bsrs.load(tmp_path / "run", trust=True).agent.shapers[0].state()["memory"]["counts"] == counts
    other = bsrs.load(tmp_path / "run", eta="custom_eta:CountBased(scale=3.0)")
    assert sum(other.agent.shapers[0].state()["memory"]["counts"]) == 0  # another scale's memory is not its own


def test_reports_show_the_name(at_examples, tmp_path):
    pytest.importorskip("plotly")
    for eta in ("custom_eta:ErrorBased", 0.0):
        bsrs.DQN.of("CartPole-v1", eta=eta, **SMALL).learn().save(tmp_path / "runs" / str(eta).replace(":", "-"))
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report.html")])
    assert "custom_eta:ErrorBased" in (tmp_path / "report.html").read_text()


def test_a_count_based_eta_trains_in_sb3_and_is_saved_and_resumed(at_examples, tmp_path):
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    import bsrs.sb3

    scale = at_examples.CountBased(scale=2.0)
    settings = {"learning_starts": 100, "buffer_size": 1_000, "policy_kwargs": {"net_arch": [8]}, "seed": 0}
    model = bsrs.sb3.shape(stable_baselines3.DQN("MlpPolicy", "CartPole-v1", **settings), eta=scale)
    model.learn(400)
    counts = np.array(model.bsrs_shaper.state()["scale"]["memory"]["counts"])
    assert counts.sum() == 75 * 32  # every batch, each of its states
    model.save(tmp_path / "model")
    with pytest.raises(BadInput, match="eta"):
        bsrs.sb3.load(tmp_path / "model", stable_baselines3.DQN)
    again = bsrs.sb3.load(tmp_path / "model", stable_baselines3.DQN, env=model.get_env(), eta=scale)
    np.testing.assert_array_equal(again.bsrs_shaper.state()["scale"]["memory"]["counts"], counts)
    again.learn(400, reset_num_timesteps=False)
    assert np.sum(again.bsrs_shaper.state()["scale"]["memory"]["counts"]) > counts.sum()
