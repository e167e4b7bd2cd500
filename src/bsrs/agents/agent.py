"""What the training loop knows of an agent, and the values that pass between them.

An agent trains P members at once. Each member has its own eta, seed, envs, replay and networks, and its state can be
saved and loaded by itself, so that a member's checkpoint is that of an ordinary run.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


class Transition(NamedTuple):
    """One step of n envs of P members, as the replay stores it."""

    obs: Array  # (P, n, *obs)
    action: Array  # (P, n) or (P, n, *action)
    reward: Array  # (P, n)
    next_obs: Array  # (P, n, *obs): what the step led to, before any reset
    terminated: Array  # (P, n): the episode reached a terminal state
    truncated: Array  # (P, n): the episode was cut by a time limit, so V(s') still counts


class Batch(NamedTuple):
    """B transitions of each of P members, as tensors on the agent's device."""

    obs: torch.Tensor  # (P, B, *obs)
    action: torch.Tensor  # (P, B) or (P, B, *action); continuous actions span -1 to 1
    reward: torch.Tensor  # (P, B)
    next_obs: torch.Tensor  # (P, B, *obs)
    terminated: torch.Tensor  # (P, B)
    steps: torch.Tensor | None = None
    """(P, B): how many rewards are summed, with n-step returns."""


@dataclass
class State:
    """All that is needed to resume exactly: tensors (safetensors), arrays (.npy), the rest as JSON."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, part: "State") -> None:
        """Put `part` in under `name/`."""
        self.tensors.update({f"{name}/{key}": tensor for key, tensor in part.tensors.items()})
        self.arrays.update({f"{name}/{key}": array for key, array in part.arrays.items()})
        self.info[name] = part.info

    def part(self, name: str) -> "State":
        """Take out what `add` put in under `name`."""
        prefix = f"{name}/"
        return State(
            {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)},
            {key.removeprefix(prefix): array for key, array in self.arrays.items() if key.startswith(prefix)},
            self.info[name],
        )


@dataclass(frozen=True)
class Finding:
    """What is wrong with a member's values; a `fatal` finding ends its run."""

    what: str
    fatal: bool


class Agent(Protocol):
    """`step` counts each member's env steps (transitions) so far: a vector step of n envs adds n."""

    members: int

    def act(self, obs: Array, step: int) -> Array:
        """Choose actions with exploration: (P, n, *obs) -> (P, n) or (P, n, *action)."""

    def observe(self, transition: Transition) -> None:
        """Store one vector step in the members' replays."""

    def update(self, step: int) -> None:
        """Take the gradient steps and update the target networks that are due after `step` transitions."""

    def greedy(self, obs: Array) -> Array:
        """Choose actions without exploration; same shapes as `act`, and no effect on the agent."""

    def metrics(self) -> list[dict[str, float]]:
        """Return the means of the updates since the last call, for each member (empty without updates)."""

    def findings(self) -> list[Finding | None]:
        """Return what was wrong with each member's values when `metrics` was last called, if anything."""

    def policy(self, member: int) -> State:
        """Return one member's trained model: what `greedy` needs and what training would continue from."""

    def load_policy(self, member: int, state: State) -> None:
        """Load what `policy` returned."""

    def state(self, member: int) -> State:
        """Return everything of one member; its model is the part `policy`."""

    def load_state(self, member: int, state: State) -> None:
        """Resume exactly from where `state` was taken."""


def times_due(step: int, stride: int, every: int) -> int:
    """Count the multiples of `every` that the last `stride` steps, up to `step`, have reached."""
    return step // every - (step - stride) // every
