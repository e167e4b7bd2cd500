"""The adapter to skrl: `agent = bsrs.skrl.shape(agent, eta=0.5)`, for DQN, DDQN, DDPG, TD3 and SAC in PyTorch.

During an update, the agent's memory hands out shaped rewards; what it stores stays as it is, and so do the recorded
episode returns. `agent.save()` writes what eta has learned.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from bsrs.adapting import BatchShaper, Instead, ShapingModule, reader_for, separate_rng, shaped_class
from bsrs.errors import BadInput, optional

optional("skrl", "bsrs.skrl", "skrl")

from skrl import config  # noqa: E402
from skrl.agents.torch import Agent  # noqa: E402
from skrl.agents.torch.ddpg import DDPG  # noqa: E402
from skrl.agents.torch.ddqn import DDQN  # noqa: E402
from skrl.agents.torch.dqn import DQN  # noqa: E402
from skrl.agents.torch.sac import SAC  # noqa: E402
from skrl.agents.torch.td3 import TD3  # noqa: E402


def shape(agent: Any, eta: Any = "auto") -> Any:
    """Shape the rewards that `agent` learns from. Call it again to change eta.

    Returns the agent. `eta` is a number, "auto", a schedule or a function of the observations, as the networks get
    them (`bsrs.shaping`). Schedules count the trainer's timesteps. The tracked data gain `Shaping / eta` and
    `Shaping / mean`.
    """
    value = reader_for(agent, READERS, "skrl")
    if agent.memory is None:
        raise BadInput("bsrs.skrl.shape got an agent without a memory; expected one that can be trained")
    shaping = AgentShaping(agent, value, BatchShaper(eta, distributed=config.torch.is_distributed))
    agent.__class__ = shaped_class(Shaped, type(agent))
    agent.shaping = agent.checkpoint_modules["shaping"] = shaping
    return agent


class Shaped(Agent):  # type: ignore[misc]
    """In front of an agent class: updates on shaped rewards."""

    shaping: "AgentShaping"
    memory: Any

    def update(self, *, timestep: int, timesteps: int) -> None:
        memory, self.shaping.batches.step = self.memory, self.shaping.first_step + timestep
        self.memory = Instead(memory, sample=partial(self.shaping.sample, memory))
        try:
            super().update(timestep=timestep, timesteps=timesteps)
        finally:
            self.memory = memory
        for name, number in self.shaping.batches.metrics().items():
            self.track_data(f"Shaping / {name}", float(number))


class AgentShaping(ShapingModule):
    """One of the agent's checkpoint modules, so that `agent.save()` writes what eta has learned."""

    first_step = 0
    """Step at which the trainer's timestep is 0: each of skrl's trainers counts from 0."""

    def sample(self, memory: Any, names: list[str], *args: Any, **kwargs: Any) -> Any:
        """Return what `memory` samples, with shaped rewards."""
        batches = memory.sample(names, *args, **kwargs)
        return [self.shaped(dict(zip(names, batch, strict=True))) for batch in batches]

    @torch.no_grad()
    def shaped(self, batch: dict[str, Any]) -> list[Any]:
        """Return the tensors of `batch` in their order, with shaped rewards."""
        batches, agent = self.batches, self._parent[0]
        if not batches.is_active(batches.step):
            return list(batch.values())
        inputs, next_inputs = self._inputs(batch), self._inputs(batch, "next_")
        with separate_rng(batches.updates + 1):
            value, next_value = self.value(inputs), self.value(next_inputs)
            bootstrap = self.value(next_inputs, "target_") if batches.scale.mixes else None
        reward, terminated = batch["rewards"].reshape(-1), batch["terminated"].reshape(-1)
        term = batches.term(
            value,
            next_value,
            reward=reward,
            gamma=agent.cfg.discount_factor,
            terminated=terminated,
            bootstrap=bootstrap,
            state=inputs["observations"],
            next_state=next_inputs["observations"],
        )
        batches.watch(inputs, len(reward), self.value, batches.updates, _period(agent))
        return list({**batch, "rewards": batch["rewards"] + term.reshape(batch["rewards"].shape)}.values())

    def _inputs(self, batch: dict[str, Any], which: str = "") -> dict[str, Any]:
        """Return observations and states as the networks get them."""
        agent = self._parent[0]
        return {
            "observations": agent._observation_preprocessor(batch[f"{which}observations"]),
            "states": agent._state_preprocessor(batch[f"{which}states"]),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        super().set_extra_state(state)
        self.first_step = self.batches.step + 1


def _period(agent: Any) -> float:
    """Return the target network's period, in gradient steps."""
    if isinstance(agent, (DQN, DDQN)):
        return float(agent.cfg.target_update_interval / agent.cfg.polyak)
    return float(getattr(agent.cfg, "policy_delay", 1) / agent.cfg.polyak)


# V by the agent's networks: the online ones, or those whose names begin with `target_`.


def _greedy_value(agent: Any, inputs: dict[str, Any], network: str = "") -> Tensor:
    """max_a Q(s, a)."""
    return _call(agent, f"{network}q_network", inputs).amax(dim=-1)


def _double_value(agent: Any, inputs: dict[str, Any], network: str = "") -> Tensor:
    """max_a Q(s, a); from the target network, its Q at the online network's best action."""
    q = _call(agent, f"{network}q_network", inputs)
    best = _call(agent, "q_network", inputs).argmax(dim=-1, keepdim=True)
    return q.gather(-1, best)


def _policy_value(agent: Any, inputs: dict[str, Any], network: str = "") -> Tensor:
    """Q(s, pi(s)), the smaller one where there are two critics."""
    action = _call(agent, f"{network}policy", inputs)
    names = ("critic",) if isinstance(agent, DDPG) else ("critic_1", "critic_2")
    critics = [_call(agent, network + name, {**inputs, "taken_actions": action}) for name in names]
    return torch.stack(critics).amin(dim=0)


def _soft_value(agent: Any, inputs: dict[str, Any], network: str = "") -> Tensor:
    """min_i Q_i(s, a) - alpha log pi(a | s) at one sampled action."""
    action, outputs = agent.policy.act(inputs, role="policy")
    critics = [_call(agent, f"{network}critic_{i}", {**inputs, "taken_actions": action}) for i in (1, 2)]
    value: Tensor = torch.minimum(*critics) - agent._entropy_coefficient * outputs["log_prob"]
    return value


def _call(agent: Any, model: str, inputs: dict[str, Any]) -> Tensor:
    value: Tensor = getattr(agent, model).act(inputs, role=model)[0]
    return value


READERS = {DQN: _greedy_value, DDQN: _double_value, DDPG: _policy_value, TD3: _policy_value, SAC: _soft_value}
