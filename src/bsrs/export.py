"""A trained policy as a file, ONNX or TorchScript: from the env's own observations to its own actions."""

import copy
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bsrs.agents.agent import Agent, Array
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.sac import SACAgent
from bsrs.agents.td3 import TD3Agent
from bsrs.envs import EnvSpec, make, require_continuous
from bsrs.errors import BadInput, MissingExtra
from bsrs.rng import stream
from bsrs.writing import make_folder, write_whole

Format = Literal["onnx", "torchscript"]
SUFFIX = {"onnx": ".onnx", "torchscript": ".pt"}
CHECKED = 1_000
_COPIES = 4
# Q-values that differ by less than this share of the largest are equal up to rounding.
_ROUNDING = 1e-4


class GreedyPolicy(nn.Module):
    """(B, ...) observations as the env gives them -> (B,) or (B, A) greedy actions as the env takes them.

    What an env gives as a Dict, Tuple or Discrete is expected flattened, as `gymnasium.spaces.flatten` does it.
    """

    def __init__(self, agent: Agent, spec: EnvSpec) -> None:
        super().__init__()
        if not isinstance(agent, (DQNAgent, TD3Agent, SACAgent)):
            raise BadInput(f"a {type(agent).__name__} cannot be exported; expected a run of dqn, td3 or sac")
        assert spec.observations is not None
        self._axes, self._shape = spec.observations.axes or (0,), spec.obs_shape
        self._factor, self._first_action = 1 / spec.obs_scale, spec.first_action
        self.network = copy.deepcopy(agent.networks["policy"].each[0])
        encoder = agent.networks.get("encoder")
        self.encoder = None if encoder is None else copy.deepcopy(encoder.each[0])
        self._range = None if isinstance(agent, DQNAgent) else [torch.tensor(end) for end in require_continuous(spec)]

    def forward(self, obs: Tensor) -> Tensor:
        arranged = obs.permute(0, *(axis + 1 for axis in self._axes)).reshape(-1, *self._shape)
        inputs = arranged.to(torch.float32) * self._factor
        output: Tensor = self.network(inputs if self.encoder is None else self.encoder(inputs))
        if self._range is None:
            return output.argmax(dim=-1) + self._first_action
        low, high = self._range
        return output[:, : len(low)].tanh() * ((high - low) / 2) + (high + low) / 2


def export_policy(agent: Agent, spec: EnvSpec, path: Path, format: Format) -> str:
    """Write the greedy policy, check its actions against the agent's own, and return a sentence about it."""
    if format not in SUFFIX:
        raise BadInput(f"the format is {format!r}; expected onnx or torchscript")
    policy = GreedyPolicy(agent, spec).eval().requires_grad_(False).cpu()
    batches = list(_observations(agent, spec))
    make_folder(path.parent)
    with _quiet(), tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"policy{SUFFIX[format]}"
        act = (_to_onnx if format == "onnx" else _to_torchscript)(policy, _own(spec, batches[0]), file)
        checked = _check(act, agent, spec, batches)
        write_whole(path, file.read_bytes())
    return f"{path}: {checked}"


def _to_onnx(policy: GreedyPolicy, example: Array, path: Path) -> Callable[[Array], Array]:
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime", "onnxscript")):
        raise MissingExtra("an ONNX file", "onnx")
    import onnxruntime

    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        policy,
        (torch.from_numpy(example),),
        input_names=["obs"],
        output_names=["action"],
        dynamic_shapes=({0: batch},),
        verbose=False,
    )
    assert program is not None
    program.save(str(path), external_data=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda obs: np.asarray(session.run(["action"], {"obs": obs})[0])


def _to_torchscript(policy: GreedyPolicy, example: Array, path: Path) -> Callable[[Array], Array]:
    torch.jit.trace(policy, torch.from_numpy(example)).save(str(path))
    loaded = torch.jit.load(str(path))
    return lambda obs: np.asarray(loaded(torch.from_numpy(obs)))


def _own(spec: EnvSpec, batch: Array) -> Array:
    assert spec.observations is not None
    return np.ascontiguousarray(spec.observations.own_form(batch))


def _observations(agent: Agent, spec: EnvSpec) -> Iterator[Array]:
    """Yield batches of `CHECKED` observations of the env in all, from greedy and random actions by turns."""
    rng = stream(0, "export")
    envs = make(spec.env, _COPIES, 0, training=True)
    try:
        obs = envs.reset()
        for step in range(CHECKED // _COPIES):
            yield obs.copy()
            if step % 2 == 0:
                action = agent.greedy(obs[None])[0]
            elif spec.n_actions is not None:
                action = rng.integers(0, spec.n_actions, _COPIES)
            else:
                low, high = require_continuous(spec)
                action = rng.uniform(low, high, (_COPIES, len(low))).astype(np.float32)
            envs.step(action)
    finally:
        envs.close()


def _check(act: Callable[[Array], Array], agent: Any, spec: EnvSpec, batches: list[Array]) -> str:
    obs = np.concatenate(batches)
    with _quiet():
        action = act(_own(spec, obs))
    expected = agent.greedy(obs[None])[0] + spec.first_action
    if spec.n_actions is None:
        difference = float(np.abs(action - expected).max())
        wrong = int((np.abs(action - expected) > 1e-4 * (1 + np.abs(expected))).any(axis=-1).sum())
        found = f"largest difference {difference:.1g}"
    else:
        q = agent.q_values(obs[None])[0]  # (B, A)
        chosen = np.take_along_axis(q, action[:, None] - spec.first_action, axis=-1)[:, 0]
        wrong = int((q.max(axis=-1) - chosen > _ROUNDING * np.abs(q).max()).sum())
        found = f"{int((action == expected).sum()):,} are equal"
    if wrong:
        raise RuntimeError(f"the exported policy acts otherwise than the agent on {wrong} of {len(obs)} observations")
    return f"actions checked against the agent's own on {len(obs):,} observations, {found}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence PyTorch's remarks on packages that are not needed here and on the age of TorchScript."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
