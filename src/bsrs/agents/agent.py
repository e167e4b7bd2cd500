"""What the training loop knows of an agent: the protocol that DQN, TD3 and SAC share.

An agent trains P members at once. Each member has its own eta, seed, envs, replay and networks, and its state
can be taken out and put back by itself, so that a member's checkpoint is that of an ordinary run.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


class Transition(NamedTuple):
    """One step of every env of every member; the leading axes are P members and n envs."""

    obs: Array  # (P, n, *obs)
    action: Array  # (P, n) or (P, n, *action)
    reward: Array  # (P, n)
    next_obs: Array  # (P, n, *obs): the state the step led to, before any reset
    terminated: Array  # (P, n): a true end; nothing is worth anything afterwards
    truncated: Array  # (P, n): a time limit; the value bootstraps


@dataclass
class State:
    """All that is needed to go on bit for bit: tensors (safetensors), arrays (.npy), the rest as JSON."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, part: "State") -> None:
        """Put `part` in under `name/`."""
        self.tensors.update({f"{name}/{key}": tensor for key, tensor in part.tensors.items()})
        self.arrays.update({f"{name}/{key}": array for key, array in part.arrays.items()})
        self.info[name] = part.info

    def part(self, name: str) -> "State":
        """What `add` put in under `name`."""
        prefix = f"{name}/"
        return State(
            {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)},
            {key.removeprefix(prefix): array for key, array in self.arrays.items() if key.startswith(prefix)},
            self.info[name],
        )


@dataclass(frozen=True)
class Finding:
    """What is wrong with a member's values; `fatal` if they cannot be trusted any more, so that its run ends there."""

    what: str
    fatal: bool


class Agent(Protocol):
    """`step` counts each member's env steps (transitions) so far: a vector step of n envs adds n."""

    members: int

    def act(self, obs: Array, step: int) -> Array:
        """Actions with exploration: (P, n, *obs) -> (P, n) or (P, n, *action)."""

    def observe(self, transition: Transition) -> None:
        """Store one vector step in the members' replays."""

    def update(self, step: int) -> None:
        """Whatever gradient steps and target updates are due now that `step` transitions have been seen."""

    def greedy(self, obs: Array) -> Array:
        """Actions without exploration; same shapes as `act`, and no effect on the agent."""

    def metrics(self) -> list[dict[str, float]]:
        """Per member, the means of the updates since the last call (empty if there was no update)."""

    def findings(self) -> list[Finding | None]:
        """Per member, what was wrong with its values when `metrics` was last called, if anything."""

    def policy(self, member: int) -> State:
        """The trained model of one member: what `greedy` needs, and what learning would go on from."""

    def load_policy(self, member: int, state: State) -> None:
        """Play as the member whose `policy` this is."""

    def state(self, member: int) -> State:
        """Everything of one member; its `policy` is the part of that name."""

    def load_state(self, member: int, state: State) -> None:
        """Go on from where `state` was taken, bit for bit."""


def times_due(step: int, stride: int, every: int) -> int:
    """How many multiples of `every` the last `stride` steps, which ended at `step`, have reached."""
    return step // every - (step - stride) // every
