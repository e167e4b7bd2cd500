"""Compiled gradient steps against the agents' own, and what happens where there is none or no folder to cache it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from bsrs.agents.dqn import DQNAgent
from bsrs.config.agents import DQNConfig
from bsrs.envs import EnvSpec
from bsrs.kernels import compiling
from bsrs.shaping import PerState, Shaping
from bsrs.sweep.conduct import run_sweep
from bsrs.sweep.plan import expand
from small_agents import CONTINUOUS, DISCRETE, MINATAR, assert_same, dqn, fill, made, weights
from sweeping import OPTIONS, HereExecutor, small_sweep

UPDATES = 20
WIDE = EnvSpec("Wide-v0", "gym", (5,), "float32", action_low=(-2.0,) * 3, action_high=(1.0,) * 3)
MIX = "auto"


def trained(kind: str, fields: list[dict[str, Any]], spec: EnvSpec, *, use_kernels: bool) -> Any:
    agent = made(kind, *fields, spec=spec, use_kernels=use_kernels)
    assert (agent.kernel is not None) == use_kernels
    fill(agent)
    for count in range(1, UPDATES + 1):
        agent.update(count * agent.config.n_envs)
    assert agent.updates == UPDATES
    return agent


def assert_kernel_is_reference(kind: str, fields: list[dict[str, Any]], spec: EnvSpec) -> None:
    """The same weights after 20 updates, to 1e-5, and the same records."""
    same = {"learning_starts": 0, "gradient_steps": 1, "learning_rate": 1e-3}
    same["train_freq"] = fields[0].get("n_envs", 1)
    fields = [{**same, **each, "seed": seed} for seed, each in enumerate(fields)]
    compiled, reference = (trained(kind, fields, spec, use_kernels=use) for use in (True, False))
    for member in range(len(fields)):
        assert_same(weights(compiled, member), weights(reference, member), atol=1e-5)
    for ours, theirs in zip(compiled.metrics(), reference.metrics(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)


def named(value: Any) -> str:
    return " ".join(f"{name}={setting}" for name, setting in value.items()) if isinstance(value, dict) else ""


SETTINGS: list[dict[str, Any]] = [
    {"eta": 0.0},
    {"eta": 2.0},
    {"eta": -0.5},
    {"eta": MIX},
    {"eta": "linear:2:0:15"},
    {"eta": 1.0, "terminal": "keep"},
    {"eta": 1.0, "potential_network": "target"},
    {"eta": 1.0, "potential_network": "split"},
    {"eta": 1.0, "n_step": 3},
    {"eta": 1.0, "n_step": 2, "n_envs": 2, "terminal": "keep"},
    {"eta": 1.0, "hidden": (24,)},
    {"eta": 0.5, "hidden": (40, 8, 24)},
]


@pytest.mark.parametrize(
    "fields",
    [
        *SETTINGS,
        {"eta": 2.0, "double": True},
        {"eta": 0.0, "double": True},
        {"eta": MIX, "double": True, "n_step": 3},
        {"eta": 2.0, "temperature": 0.3},
        {"eta": 1.0, "temperature": 0.3, "potential_network": "target"},
        {"eta": 1.0, "max_grad_norm": 0.05},
    ],
    ids=named,
)
def test_dqns_kernel_is_the_reference(fields: dict[str, Any]) -> None:
    assert_kernel_is_reference("dqn", [fields], DISCRETE)


@pytest.mark.parametrize(
    "fields", [{"eta": 0.0}, {"eta": 2.0}, {"eta": 1.0, "potential_network": "target"}, {"eta": MIX, "double": True}],
    ids=named,
)  # fmt: skip
def test_the_convolutions_kernel_is_the_reference(fields: dict[str, Any]) -> None:
    assert_kernel_is_reference("dqn", [fields], MINATAR)


@pytest.mark.parametrize(
    "fields",
    [
        *SETTINGS,
        {"eta": 1.0, "potential": "replay"},
        {"eta": 1.0, "potential": "replay", "potential_network": "target"},
        {"eta": 1.0, "potential": "replay", "potential_network": "split"},
        {"eta": 1.0, "policy_delay": 1},
        {"eta": 1.0, "policy_delay": 3, "n_critics": 1},
        {"eta": 1.0, "n_critics": 3, "tau": 0.5},
    ],
    ids=named,
)
def test_td3s_kernel_is_the_reference(fields: dict[str, Any]) -> None:
    assert_kernel_is_reference("td3", [fields], CONTINUOUS)


@pytest.mark.parametrize(
    "fields",
    [
        *SETTINGS,
        {"eta": 1.0, "potential": "replay"},
        {"eta": 1.0, "potential": "replay", "potential_network": "target"},
        {"eta": 1.0, "alpha": 0.2, "fixed_alpha": True},
        {"eta": 1.0, "target_entropy": -0.3, "n_critics": 1},
    ],
    ids=named,
)
def test_sacs_kernel_is_the_reference(fields: dict[str, Any]) -> None:
    assert_kernel_is_reference("sac", [fields], CONTINUOUS)


@pytest.mark.parametrize("kind", ["td3", "sac"])
def test_several_actions(kind: str) -> None:
    assert_kernel_is_reference(kind, [{"eta": 1.0}], WIDE)


@pytest.mark.parametrize(("kind", "spec"), [("dqn", DISCRETE), ("dqn", MINATAR), ("td3", CONTINUOUS), ("sac", WIDE)])
def test_members_do_not_mix(kind: str, spec: EnvSpec) -> None:
    """Three members with etas of their own, against the reference."""
    assert_kernel_is_reference(kind, [{"eta": eta} for eta in (0.0, 2.0, -0.5)], spec)


@pytest.mark.parametrize(("kind", "spec"), [("dqn", DISCRETE), ("dqn", MINATAR), ("td3", CONTINUOUS), ("sac", WIDE)])
def test_acting_is_the_reference(kind: str, spec: EnvSpec) -> None:
    compiled, reference = (made(kind, {}, {"seed": 1}, spec=spec, use_kernels=use) for use in (True, False))
    fill(compiled)
    obs = compiled.replay.arrays.obs[:, :7]
    if kind == "dqn":
        np.testing.assert_allclose(compiled.q_values(obs), reference.q_values(obs), atol=1e-6)
    else:
        np.testing.assert_allclose(compiled.greedy(obs), reference.greedy(obs), atol=1e-6)
        np.testing.assert_allclose(compiled.act(obs, step=10), reference.act(obs, step=10), atol=1e-5)


def test_a_checkpoint_passes_between_kernel_and_reference() -> None:
    """Adam's state included: what the kernel has learnt, the reference continues, and the other way round."""
    fields = {"eta": 1.0, "learning_starts": 0, "train_freq": 1, "gradient_steps": 1}
    for first, second in ((True, False), (False, True)):
        whole, half, rest = (dqn(fields, use_kernels=use) for use in (first, first, second))
        for agent in (whole, half):
            fill(agent)
        for step in range(1, 11):
            whole.update(step)
            if step <= 5:
                half.update(step)
        rest.load_state(0, half.state(0))
        for step in range(6, 11):
            rest.update(step)
        assert_same(weights(rest), weights(whole), atol=1e-5)


# ---- where there is no kernel


class Variant(DQNAgent):
    """A subclass may learn otherwise."""


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"network": "dueling"}, {}),
        ({"activation": "tanh"}, {}),
        ({"layer_norm": True}, {}),
        ({}, {"shaping": Shaping(PerState(lambda obs: obs[..., 0].abs()))}),
    ],
    ids=["dueling", "tanh", "layer norm", "eta(s)"],
)
def test_what_a_kernel_does_not_know_runs_on_the_reference(fields: dict[str, Any], options: dict[str, Any]) -> None:
    agent = dqn({**fields, "learning_starts": 0, "train_freq": 1, "eta": 0.5}, **options)
    assert agent.kernel is None
    fill(agent)
    before = weights(agent)["policy/" + next(iter(agent.online.each[0].state_dict()))]
    agent.update(1)
    assert agent.updates == 1
    assert not torch.equal(weights(agent)["policy/" + next(iter(agent.online.each[0].state_dict()))], before)


def test_a_subclass_is_not_taken_for_its_parent() -> None:
    config = DQNConfig(env="CartPole-v1", buffer_size=100)
    assert Variant([config], DISCRETE).kernel is None
    assert DQNAgent([config], DISCRETE).kernel is not None


# ---- compiling

TRAIN = (
    "train dqn --env CartPole-v1 --steps 60 --learning-starts 20 --batch-size 8 --hidden 16 16 --eval-every 0"
    " --eval-episodes 1 --threads 1 --no-tensorboard --out"
)


def test_a_cache_that_cannot_be_written_does_not_end_a_run(tmp_path: Path) -> None:
    """Where the package, the home and numba's own setting would put it, there is a file: that stops even root."""
    blocked = tmp_path / "a file"
    blocked.write_text("")
    source = Path(__file__).parent.parent / "src"
    shutil.copytree(source, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "src" / "bsrs" / "kernels" / "__pycache__").write_text("")
    places = dict.fromkeys(("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME"), str(blocked / "cache"))
    environment = {**os.environ, **places, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-m", "bsrs", *TRAIN.split(), str(tmp_path / "run")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["outcome"], result["engine"]) == ("finished", "kernel")
    assert "compiling DQN's update" in ended.stderr + ended.stdout
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_change_in_any_source_is_another_cache(tmp_path: Path) -> None:
    """Numba itself would not see it: it looks at the file of the function that is called only."""
    shutil.copytree(Path(compiling.__file__).parent, tmp_path / "kernels")
    code = "import compiling; compiling.compiled()(lambda: 0); print(compiling._digest())"
    digests = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "kernels", capture_output=True, text=True)
        digests.append(done.stdout)
        (tmp_path / "kernels" / "mlp.py").write_text("# changed")
    assert digests[0] != digests[1] != ""


@pytest.mark.parametrize(("words", "engine"), [("", "kernel"), (" --kernels off", "pytorch")])
def test_the_record_says_what_computed_the_gradient_steps(words: str, engine: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bsrs", *f"{TRAIN} {tmp_path / 'run'}{words}".split()]
    subprocess.run(command, check=True, capture_output=True)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["engine"] == engine


def test_numba_is_used_in_two_folders_only() -> None:
    """Private PyTorch functions, BLAS addresses and LLVM in one."""
    source = Path(__file__).parent.parent / "src" / "bsrs"
    for path in source.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]
        top = path.relative_to(source).parts[0]
        if top not in ("kernels", "tabular"):
            assert not [line for line in lines if "numba" in line], path
        if top != "kernels":
            assert not [line for line in lines if "llvmlite" in line or "ctypes" in line or "torch._C" in line], path


@pytest.mark.parametrize(("kernels", "engine"), [("auto", "kernel"), ("off", "pytorch")])
def test_a_sweep_takes_the_option_too(kernels: Literal["auto", "off"], engine: str, tmp_path: Path) -> None:
    options = dataclasses.replace(OPTIONS, kernels=kernels)
    run_sweep(expand(small_sweep(eta=(0.0,))), tmp_path, options, HereExecutor())
    (result,) = (json.loads(path.read_text()) for path in tmp_path.glob("*/result.json"))
    assert (result["outcome"], result["engine"]) == ("finished", engine)
