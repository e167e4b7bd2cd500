"""Save, load, continue: exactly as it would have; warned where SB3 alone loads; and no code from foreign files."""

from __future__ import annotations

import base64
import copy
import importlib
import json
import os
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import NormalActionNoise

from bsrs import Linear, PerState, RandomDynamic, Static
from bsrs.errors import BadInput
from bsrs.sb3 import load, shape
from bsrs.shaping import Seen, ShapeScale
from sb3_twins import SMALL, algorithm, build, filled, parameters, rewards
from support import ROOT


def test_a_saved_model_loads_with_stable_baselines3_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = shape(build("sb3 SAC"), eta=2.0).learn(100)
    model.save(tmp_path / "model.zip")
    with warnings.catch_warnings(action="error"):
        plain = SAC.load(tmp_path / "model.zip", env=gym.make("MountainCarContinuous-v0"))
    assert "would continue to learn from unshaped rewards" in caplog.text
    assert (type(plain), type(plain.replay_buffer)) == (SAC, ReplayBuffer)
    for loaded, saved in zip(parameters(plain), parameters(model), strict=True):
        np.testing.assert_array_equal(loaded, saved)
    plain.learn(100)


def test_a_saved_buffer_is_a_plain_one_and_loading_one_does_not_end_the_shaping(tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), eta=2.0)
    before = rewards(model)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    with open(tmp_path / "buffer.pkl", "rb") as file:
        buffer = pickle.load(file)
    assert type(buffer) is ReplayBuffer
    assert "shaper" not in vars(buffer)
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    assert torch.equal(rewards(model), before)


class Follower(ShapeScale):
    """An eta that follows the TD errors it is shown, half a step behind: it remembers two numbers."""

    depends_on_state = False
    update_every = 2

    def init(self) -> dict[str, Any]:
        return {"eta": 0.5, "updates": 0}

    def at(self, memory: dict[str, Any], step: int, state: Any = None) -> float:
        return memory["eta"]

    def update(self, memory: dict[str, Any], seen: Seen) -> dict[str, Any]:
        assert seen.reward.shape == seen.value.shape == seen.next_value.shape == seen.terminated.shape
        assert seen.reward.ndim == 1
        error = (seen.reward + 0.99 * seen.next_value * (seen.terminated == 0) - seen.value).abs().mean()
        return {"eta": 0.9 * memory["eta"] + 0.1 * float(error), "updates": memory["updates"] + 1}


@dataclass(frozen=True)
class Globals:
    """Where the random numbers that SB3 itself draws come from, and its env: `load` of SB3 seeds these anew."""

    numpy: Any
    torch: Any
    exploration: Any
    env: Any

    @classmethod
    def of(cls, model: Any) -> Globals:
        exploration, env = copy.deepcopy((model.action_space, model.get_env()))
        return cls(np.random.get_state(), torch.random.get_rng_state(), exploration, env)  # noqa: NPY002

    def restore(self, model: Any) -> None:
        np.random.set_state(self.numpy)  # noqa: NPY002
        torch.random.set_rng_state(self.torch)
        model.action_space = self.exploration


QUICK_TARGET = {"DQN": {"target_update_interval": 20}, "TD3": {"tau": 0.1}, "SAC": {"tau": 0.1}}


@pytest.mark.parametrize(
    "eta", [Linear(2.0, 0.0, 500), Follower(), "auto"], ids=["a schedule", "one that learns", "auto"]
)
@pytest.mark.parametrize("name", ["sb3 DQN", "sb3 TD3", "sb3 SAC"])
def test_save_load_continue(name: str, eta: Any, tmp_path: Path) -> None:
    """A loaded model continues exactly as the saved one does that was never interrupted."""
    options = {} if eta == "auto" else {"terminal": "keep", "network": "target"}
    often = {"train_freq": 2} if eta == "auto" else {}  # it needs 16 batches for its observations
    model = shape(filled(name, **QUICK_TARGET[name.split()[1]], **often), eta=eta, **options)
    model.learn(100, reset_num_timesteps=False)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    before = Globals.of(model)
    model.learn(100, reset_num_timesteps=False)

    again = {"eta": eta} if isinstance(eta, Follower) else {}
    loaded = load(tmp_path / "model.zip", algorithm(name), env=before.env, force_reset=False, **again)
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    before.restore(loaded)
    loaded.learn(100, reset_num_timesteps=False)
    for uninterrupted, continued in zip(parameters(model), parameters(loaded), strict=True):
        np.testing.assert_array_equal(continued, uninterrupted)
    np.testing.assert_array_equal(loaded.replay_buffer.actions, model.replay_buffer.actions)
    assert loaded.bsrs_shaper.state() == model.bsrs_shaper.state()
    if isinstance(eta, Follower):
        assert model.bsrs_shaper.state()["scale"]["memory"]["updates"] == 10
    if eta == "auto":
        assert model.bsrs_shaper.state()["looks"] >= 4


def test_a_count_based_eta_is_saved_under_its_name_and_goes_on_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    CountBased = importlib.import_module("custom_eta").CountBased
    model = shape(filled("sb3 DQN"), CountBased(scale=2.0)).learn(100, reset_num_timesteps=False)
    model.save(tmp_path / "model.zip")
    counts = sum(model.bsrs_shaper.state()["scale"]["memory"]["counts"])
    assert counts == 16 * 10  # observations in batches
    with pytest.raises(BadInput, match=r"a function: custom_eta:CountBased\(scale=2\.0\), which .* pass eta="):
        load(tmp_path / "model.zip", DQN)
    loaded = load(tmp_path / "model.zip", DQN, env=model.get_env(), eta=CountBased(scale=2.0))
    loaded.load_replay_buffer(saved_buffer(model, tmp_path))
    loaded.learn(100, reset_num_timesteps=False)
    assert sum(loaded.bsrs_shaper.state()["scale"]["memory"]["counts"]) == 2 * counts


def saved_buffer(model: Any, folder: Path) -> Path:
    model.save_replay_buffer(folder / "buffer.pkl")
    return folder / "buffer.pkl"


@pytest.mark.parametrize(
    "arguments",
    [
        {"eta": 0.7},
        {"eta": "piecewise:0=1.0,50=2.0"},
        {"eta": 1.0, "potential": RandomDynamic(seed=3, period=2)},
        {"eta": 2.0, "network": "target", "terminal": "keep", "seed": 9},
    ],
)
def test_load_restores_the_shaping(arguments: dict[str, Any], tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), **arguments)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    loaded = load(tmp_path / "model.zip", DQN)
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    assert torch.equal(rewards(loaded), rewards(model))


def test_tables_are_stored(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "FrozenLake-v1", **SMALL).learn(60)
    shape(model, PerState(np.linspace(0, 1, 16)), potential=Static(np.arange(16.0)))
    before = rewards(model)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    loaded = load(tmp_path / "model.zip", DQN)
    loaded.load_replay_buffer(tmp_path / "buffer.pkl")
    assert torch.equal(rewards(loaded), before)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("eta", PerState(lambda obs: obs[:, 0])),
        ("potential", Static(lambda obs: obs[:, 0])),
        ("value_fn", lambda model, obs: obs[:, 0]),
    ],
)
def test_functions_are_not_stored_and_must_be_given_again(name: str, function: Any, tmp_path: Path) -> None:
    model = shape(filled("sb3 DQN"), **{"eta": 1.0, name: function})
    model.save(tmp_path / "model.zip")
    with pytest.raises(BadInput, match=f"pass {name}=... to load again"):
        load(tmp_path / "model.zip", DQN)
    assert load(tmp_path / "model.zip", DQN, **{name: function}).bsrs_shaper.settings == model.bsrs_shaper.settings


def test_load_of_a_model_that_was_never_shaped(tmp_path: Path) -> None:
    build("sb3 DQN").save(tmp_path / "model.zip")
    with pytest.raises(BadInput, match="was not shaped"):
        load(tmp_path / "model.zip", DQN)


# --------------------------------------------------------------------------------------------------------------
# Files of unknown origin.


def edited(path: Path, change: Any) -> Path:
    """A copy of a model's file with `change` made to its `data`."""
    copied = path.with_name("edited.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copied, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                change(data)
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return copied


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    shape(build("sb3 DQN"), eta=Linear(0.0, 2.0, 100)).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


class Attack:
    """Unpickled, it calls something."""

    def __init__(self, call: Any, *arguments: Any) -> None:
        self._reduced = call, arguments

    def __reduce__(self) -> Any:
        return self._reduced


def pickled(thing: Any) -> dict[str, str]:
    return {":type:": "harmless", ":serialized:": base64.b64encode(pickle.dumps(thing)).decode()}


@pytest.mark.parametrize("entry", ["policy_class", "not_needed"])
def test_a_file_with_code_in_it_is_refused_and_the_code_is_not_run(entry: str, saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "made by the attack"
    path = edited(saved, lambda data: data.update({entry: pickled(Attack(os.mkdir, str(target)))}))
    with pytest.raises(BadInput, match=rf"the entry '{entry}' may do so \(it refers to posix.mkdir\): pass trust=True"):
        load(path, DQN)
    assert not target.exists()
    if entry == "not_needed":
        assert load(path, DQN, custom_objects={entry: None}).bsrs_shaper.settings.eta.end == 2.0
        assert not target.exists()
        load(path, DQN, trust=True)
        assert target.exists()  # the attack is a real one


def test_the_libraries_own_modules_are_no_way_around_it(saved: Path, tmp_path: Path) -> None:
    """A pickle names things by text: those that a trusted module has imported, or functions of it, are no classes."""
    for module, name in [
        ("stable_baselines3.common.save_util", "os.mkdir"),
        ("stable_baselines3.common.save_util", "os"),
        ("stable_baselines3.common.save_util", "load_from_pkl"),
        ("stable_baselines3.common.logger", "CSVOutputFormat"),
        ("torch.nn.modules.module", "torch"),
        ("numpy", "load"),
    ]:
        text = (
            pickle.PROTO
            + b"\x04"
            + b"".join(pickle.SHORT_BINUNICODE + bytes([len(t)]) + t.encode() for t in (module, name))
        )
        code = {":serialized:": base64.b64encode(text + pickle.STACK_GLOBAL + pickle.STOP).decode()}
        path = edited(saved, lambda data, code=code: data.update({"policy_kwargs": code}))
        with pytest.raises(BadInput, match=re.escape(f"it refers to {module}.{name}")):
            load(path, DQN)


def test_a_schedule_of_ones_own_needs_trust(tmp_path: Path) -> None:
    shape(build("sb3 DQN", learning_rate=lambda left: 1e-3 * left), eta=1.0).save(tmp_path / "model.zip")
    with pytest.raises(BadInput, match="SB3's format can execute code"):
        load(tmp_path / "model.zip", DQN)
    assert load(tmp_path / "model.zip", DQN, trust=True).lr_schedule(0.5) == 5e-4


@pytest.mark.parametrize("name", ["sb3 DQN", "sb3 TD3", "sb3 SAC", "contrib QRDQN", "contrib TQC", "contrib CrossQ"])
def test_what_the_libraries_save_themselves_is_loaded_without_trust(name: str, tmp_path: Path) -> None:
    noise = {"action_noise": NormalActionNoise(np.zeros(1), np.ones(1))} if name == "sb3 TD3" else {}
    kwargs = {
        "policy_kwargs": {"net_arch": [8], "activation_fn": torch.nn.Tanh, "optimizer_class": torch.optim.RMSprop}
    }
    model = shape(build(name, **noise, **kwargs), eta=1.0).learn(80)
    model.save(tmp_path / "model.zip")
    loaded = load(tmp_path / "model.zip", algorithm(name))
    for ours, theirs in zip(parameters(loaded), parameters(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    obs = model.observation_space.sample()
    np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])


def set_field(*names: str, value: Any) -> Any:
    def change(data: Any) -> None:
        for name in ("bsrs_shaping", *names[:-1]):
            data = data[name]
        data[names[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_field("eta", "type", value="Lineal"), "did you mean Linear"),
        (set_field("eta", "type", value="BadInput"), "unknown eta"),
        (set_field("eta", "start", value="1"), "expected float"),
        (set_field("eta", "steps", value=0), "the schedule of eta has 0 steps; expected at least 1"),
        (set_field("eta", "extra", value=1), "extra"),
        (set_field("eta", value=[1.0, 2.0]), "cannot be restored"),
        (set_field("eta", value=float("nan")), "finite"),
        (set_field("eta", value={"type": "PerState", "of": "text"}), "PerState|expected"),
        (set_field("potential", value=5), "cannot be restored"),
        (set_field("potential", value={"type": "RandomDynamic", "seed": "x"}), "expected int"),
        (set_field("network", value=["online"]), "cannot be restored"),
        (set_field("terminal", value="end"), "unknown terminal"),
        (set_field("value_fn", value=5), "cannot be restored"),
        (set_field("seed", value=-1), "cannot be restored"),
        (set_field("state", value={}), "cannot be restored"),
        (set_field("state", "stream", "state", "state", value=2**200), "cannot be restored"),
        (set_field("state", "scale", "batches", value="many"), "cannot be restored"),
        (lambda data: data["bsrs_shaping"].pop("network"), "cannot be restored: 'network'"),
        (lambda data: data.update(bsrs_shaping=[]), "cannot be restored"),
    ],
)
def test_damaged_shaping_data_is_one_sentence(change: Any, message: str, saved: Path) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        load(edited(saved, change), DQN)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"[" * 100_000])
def test_what_is_no_model_at_all(content: bytes, saved: Path) -> None:
    saved.write_bytes(content)
    with pytest.raises(BadInput, match="cannot be read as a model of Stable-Baselines3"):
        load(saved, DQN)
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("data", content)
    with pytest.raises(BadInput, match="cannot be read as a model of Stable-Baselines3"):
        load(saved, DQN)


def test_files_of_older_versions_are_read(saved: Path) -> None:
    """They hold plain data without a state."""
    old = {
        "eta": {"type": "Constant", "eta": 0.7},
        "potential": {"type": "Bootstrapped"},
        "network": "target",
        "terminal": "keep",
        "value_fn": None,
        "seed": 9,
    }
    model = load(edited(saved, lambda data: data.update(bsrs_shaping=old)), DQN)
    assert (
        model.bsrs_shaper.settings.network,
        model.bsrs_shaper.settings.terminal,
        model.bsrs_shaper.settings.seed,
    ) == ("target", "keep", 9)
    assert model.bsrs_shaper.coefficients(0)[0] == 0.7


def test_what_an_eta_remembers_must_be_plain(tmp_path: Path) -> None:
    class Odd(Follower):
        def init(self) -> dict[str, Any]:
            return {"eta": 0.5, "what": object()}

    with pytest.raises(BadInput, match="must be plain JSON"):
        shape(build("sb3 DQN"), eta=Odd())
