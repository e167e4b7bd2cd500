"""What one gradient step asks of a device, counted on PyTorch's device `meta`, which has shapes but no numbers.

Whatever needs a number from the device cannot run there at all; what goes from the host to the device is counted.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bsrs.agents.agent import Batch
from bsrs.agents.dqn import DQNAgent
from bsrs.agents.sac import SACAgent
from bsrs.agents.td3 import TD3Agent
from bsrs.config.agents import DQNConfig, SACConfig, TD3Config
from bsrs.envs import EnvSpec

DISCRETE = EnvSpec("CartPole-v1", "gym", (4,), "float32", n_actions=3)
MINATAR = EnvSpec("MinAtar/Breakout-v1", "minatar", (4, 10, 10), "uint8", n_actions=3)
ATARI = EnvSpec("PongNoFrameskip-v4", "atari", (4, 84, 84), "uint8", 255.0, frame_stack=4, n_actions=6)
CONTINUOUS = EnvSpec("Pendulum-v1", "gym", (3,), "float32", action_low=(-2.0,), action_high=(2.0,))
P, B = 3, 8


class Crossings(TorchDispatchMode):
    """Counts the operations whose tensors are not all on one device."""

    count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        tensors = [x for x in (*args, *(kwargs or {}).values(), result) if isinstance(x, torch.Tensor)]
        self.count += len({tensor.device for tensor in tensors}) > 1
        return result


def batch(spec: EnvSpec) -> Batch:
    def part(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(P, B, *shape, dtype=dtype, device="meta")

    action = part(dtype=torch.int64) if spec.n_actions else part(1)
    return Batch(part(*spec.obs_shape), action, part(), part(*spec.obs_shape), part(dtype=torch.bool))


CASES: list[tuple[str, Any, Any, EnvSpec, list[dict[str, Any]]]] = [
    ("dqn plain", DQNAgent, DQNConfig, DISCRETE, [{}] * P),
    ("dqn etas", DQNAgent, DQNConfig, DISCRETE, [{"eta": eta} for eta in (0.0, 1.0, 2.0)]),
    ("dqn double", DQNAgent, DQNConfig, DISCRETE, [{"eta": 1.0, "double": True, "terminal": "keep"}] * P),
    ("dueling", DQNAgent, DQNConfig, DISCRETE, [{"eta": 1.0, "network": "dueling", "layer_norm": True}] * P),
    ("dqn auto", DQNAgent, DQNConfig, DISCRETE, [{"eta": "auto"}] * P),
    ("minatar", DQNAgent, DQNConfig, MINATAR, [{"eta": eta} for eta in (0.0, 1.0, 2.0)]),
    ("atari", DQNAgent, DQNConfig, ATARI, [{"eta": eta, "network": "small"} for eta in (0.0, 1.0, 2.0)]),
    ("td3", TD3Agent, TD3Config, CONTINUOUS, [{"eta": eta} for eta in (0.0, 1.0, 2.0)]),
    ("td3 replay", TD3Agent, TD3Config, CONTINUOUS, [{"eta": 1.0, "potential": "replay"}] * P),
    ("sac", SACAgent, SACConfig, CONTINUOUS, [{"eta": eta} for eta in (0.0, 1.0, 2.0)]),
]


@pytest.mark.parametrize(("name", "agent_class", "config", "spec", "fields"), CASES, ids=[case[0] for case in CASES])
def test_a_gradient_step_never_waits_for_the_device(
    name: str, agent_class: Any, config: Any, spec: EnvSpec, fields: list[dict[str, Any]]
) -> None:
    same = {"env": spec.env, "buffer_size": 100, "batch_size": B}
    agent = agent_class([config(**same, **each, seed=i) for i, each in enumerate(fields)], spec, device="meta")
    data = batch(spec)
    if not spec.n_actions:  # drawn on the host, and sent as the batch is
        agent.as_tensor = lambda array: torch.empty(array.shape, device="meta")
    agent.train_on(data, 1)  # what is made once, such as the column of etas, is made here
    with Crossings() as crossings:
        for step in range(2, 6):
            agent.updates += 1
            agent.train_on(data, step)
    assert crossings.count == 0


def test_what_would_wait_is_seen() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.zeros(1, device="meta").item()
    with pytest.raises(NotImplementedError, match="meta"):
        torch.zeros(1, device="meta").cpu()
    with Crossings() as crossings:
        torch.tensor([1.0, 2.0]).to("meta")
    assert crossings.count == 1
