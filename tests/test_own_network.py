"""Networks of your own, with LayerNorm: trained from Python and the command line, killed, resumed, swept, exported."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsrs import DQN, SAC, TD3
from bsrs.cli import main
from bsrs.errors import BadInput
from bsrs.learners import Learner, load
from dying import train_and_die

MODULE = '''
"""A user's networks."""

import torch
from torch import nn


def q(obs_shape, n_actions):
    return nn.Sequential(nn.Linear(*obs_shape, 24), nn.LayerNorm(24), nn.SiLU(), nn.Linear(24, n_actions))


def actor(obs_shape, n_outputs):
    return q(obs_shape, n_outputs)


class Critic(nn.Module):
    """Q(s, a)."""

    def __init__(self, obs_shape, n_actions):
        super().__init__()
        self.network = q((obs_shape[0] + n_actions,), 1)

    def forward(self, obs, action):
        return self.network(torch.cat((obs, action), dim=-1))
'''
SMALL: dict[str, Any] = {
    "steps": 120, "learning_starts": 20, "batch_size": 8, "buffer_size": 200, "train_freq": 1, "gradient_steps": 1,
    "log_every": 20, "eval_every": 0, "eval_episodes": 1,
}  # fmt: skip
NETWORKS = {
    "dqn": {"network": "my_networks:q"},
    "td3": {"actor": "my_networks:actor", "critic": "my_networks:Critic"},
    "sac": {"actor": "my_networks:actor", "critic": "my_networks:Critic"},
}
LEARNERS: dict[str, type[Learner]] = {"dqn": DQN, "td3": TD3, "sac": SAC}
ENVS = {"dqn": "CartPole-v1", "td3": "Pendulum-v1", "sac": "Pendulum-v1"}
ALGORITHMS = pytest.mark.parametrize("algorithm", ["dqn", "td3", "sac"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the user's module in it, which is where the user is."""
    (tmp_path / "my_networks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_networks", None)


def flags(algorithm: str, **changes: Any) -> list[str]:
    settings = {"env": ENVS[algorithm], **SMALL, **NETWORKS[algorithm], **changes}
    words = [algorithm, "--no-tensorboard", "--threads", "1"]
    return [*words, *(word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value)))]


def has_layer_norm(learner: Any) -> bool:
    return all("LayerNorm" in str(network) for network in learner.agent.networks.values() if "Linear" in str(network))


@ALGORITHMS
def test_from_python(algorithm: str, folder: Path) -> None:
    """Factories as objects; what is saved is found again by name, which needs trust."""
    import my_networks  # type: ignore[import-not-found]

    factories = {name: getattr(my_networks, of.partition(":")[2]) for name, of in NETWORKS[algorithm].items()}
    learner: Any = LEARNERS[algorithm].of(ENVS[algorithm], eta=0.5, **SMALL, **factories)
    assert learner.agent.kernel is None
    assert has_layer_norm(learner)
    before = {name: tensor.clone() for name, tensor in learner.agent.policy(0).tensors.items()}
    learner.learn().save(folder / "run")
    after = learner.agent.policy(0).tensors
    assert all((after[name] != before[name]).any() for name in after if "1.weight" in name)  # the norms have learnt too
    with pytest.raises(BadInput, match="which imports code: say --trust"):
        load(folder / "run")
    loaded: Any = load(folder / "run", trust=True)
    obs = np.random.default_rng(0).standard_normal((5, *learner.agent.spec.obs_shape)).astype(np.float32)
    np.testing.assert_array_equal(loaded.predict(obs), learner.predict(obs))
    np.testing.assert_array_equal(loaded.value(obs), learner.value(obs))
    assert "actions checked against the agent's own on 1,000 observations" in loaded.export(folder / "policy.onnx")


@ALGORITHMS
def test_from_the_command_line(algorithm: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A population, then the export of one of its members."""
    main(["train", *flags(algorithm), "--eta", "0", "1", "--out", "runs"])
    runs = sorted(path.parent for path in folder.glob("runs/*/result.json"))
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    assert [(result["outcome"], result["engine"]) for result in results] == [("finished", "pytorch")] * 2
    main(["export", str(runs[1]), "--out", "policy.onnx", "--trust"])
    assert "actions checked" in capsys.readouterr().out
    assert (folder / "policy.onnx").stat().st_size > 1_000


def test_a_member_learns_as_it_does_alone(folder: Path) -> None:
    """Three copies of the module side by side, and one of them by itself."""
    for words in (["--eta", "0", "1", "2", "--out", "three"], ["--eta", "1", "--out", "one"]):
        main(["train", *flags("dqn"), *words])
    (together,) = folder.glob("three/*eta1-*/metrics.jsonl")
    ours, alone = (
        list(map(json.loads, path.read_text().splitlines())) for path in (together, Path("one/metrics.jsonl"))
    )
    losses, expected = ([line["loss"] for line in lines if "loss" in line] for lines in (ours, alone))
    assert len(losses) == 5
    assert losses == pytest.approx(expected, rel=1e-4)


def test_killed_and_resumed(folder: Path) -> None:
    words = [*flags("td3", steps=400), "--checkpoint-every", "50", "--eta", "1"]
    main(["train", *words, "--out", "whole"])
    train_and_die(["train", *words, "--out", "killed"], lines=4)
    assert not (folder / "killed" / "result.json").exists()
    main(["train", *words, "--out", "killed", "--resume"])
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (folder / "killed" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_swept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In worker processes, which find the module too; the second call has nothing left to train."""
    words = ["sweep", *flags("dqn", max_steps=60, workers=1), "--eta", "0", "1", "--seeds", "1", "--out", "sweep"]
    words = [word for word in words if word not in ("--steps", "120")]
    main(words)
    assert "2 runs: 2 finished" in capsys.readouterr().out
    configs = [json.loads(path.read_text())["config"] for path in folder.glob("sweep/*/config.json")]
    assert [config["network"] for config in configs] == ["my_networks:q"] * 2
    main(words)
    assert "2 done before" in capsys.readouterr().out


def test_a_factory_that_cannot_be_imported_is_named_and_nothing_is_loaded(folder: Path) -> None:
    learner: Any = DQN.of("CartPole-v1", network="my_networks:q", **SMALL)
    learner.learn().save(folder / "run")
    (folder / "my_networks.py").write_text("")
    sys.modules.pop("my_networks")
    with pytest.raises(BadInput, match="module 'my_networks' has no 'q' for the network"):
        DQN.load(folder / "run", trust=True)
    with pytest.raises(SystemExit) as stop:
        main(["play", str(folder / "run"), "--trust"])
    assert stop.value.code == 2

    def another(obs_shape: tuple[int, ...], n_actions: int) -> Any:
        from torch import nn

        return nn.Linear(obs_shape[0], n_actions)

    with pytest.raises(BadInput, match="does not fit: the saved network has other weights"):
        DQN.load(folder / "run", network=another)


PAGE = (Path(__file__).parent.parent / "docs" / "networks.md").read_text()
BLOCKS = dict(re.findall(r"^## ([^\n]*)\n[^#]*?^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("title", BLOCKS)
def test_the_code_of_the_page(title: str) -> None:
    """Each block as it stands there, with fewer steps; its network is the one that acts."""
    names: dict[str, Any] = {}
    exec(re.sub(r"\.learn\([\d_]+\)", ".learn(40)", BLOCKS[title]), names)
    agent = names["agent"]
    assert agent.step == 40
    assert agent.agent.kernel is None
    assert agent.predict(np.zeros(agent.agent.spec.obs_shape, np.float32)).shape == agent.agent.spec.action_shape


def test_every_block_of_the_page_is_run() -> None:
    assert len(BLOCKS) == PAGE.count("```python") == 4


def test_a_network_without_a_name_is_given_again(folder: Path) -> None:
    """A lambda is no name that another process could import."""
    from torch import nn

    factory = lambda shape, n: nn.Sequential(nn.Linear(shape[0], 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, n))  # noqa: E731
    learner: Any = DQN.of("CartPole-v1", network=factory, **SMALL)
    learner.learn().save(folder / "run")
    again: Any = DQN.load(folder / "run", network=factory)
    obs = np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(again.q_values(obs), learner.q_values(obs))
