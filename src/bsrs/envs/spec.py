"""What an agent must know of an env before it acts: a small frozen value."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from bsrs.envs.actions import Actions
from bsrs.envs.observations import Observations
from bsrs.errors import BadInput

Kind = Literal["atari", "minatar", "gym", "image"]
"""`image` is any other env whose observations are images, `gym` one with vectors."""


@dataclass(frozen=True)
class EnvSpec:
    """One env as an agent sees it. Exactly one of `n_actions` and `action_low`/`action_high` is given."""

    env: str
    """The name it was made by, for example `PongNoFrameskip-v4`."""
    kind: Kind
    obs_shape: tuple[int, ...]
    """Of one observation. Images are (channels, height, width), everything else is a vector."""
    obs_dtype: Literal["uint8", "float32"]
    obs_scale: float = 1.0
    """A network divides observations by this: 255 where they are bytes of brightness."""
    frame_stack: int = 1
    """How many frames one observation is made of; missing ones at an episode's start are zero."""
    n_actions: int | None = None
    """Discrete actions are 0 ... n_actions - 1."""
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    """Continuous actions are vectors between these, in the env's own units."""
    first_action: int = 0
    """What the env itself calls the first of its discrete actions."""
    observations: Observations | None = field(default=None, compare=False, repr=False)
    """How the env's own observations become arrays of `obs_shape`."""
    actions: Actions | None = field(default=None, compare=False, repr=False)
    """How an agent's actions become the env's own; None where they are the same."""

    @property
    def notes(self) -> list[str]:
        """What a user should know about how observations and actions are read."""
        return [part.note for part in (self.observations, self.actions) if part and part.note]

    def own_actions(self, actions: NDArray[Any]) -> Any:
        """A batch of an agent's actions in the env's own form."""
        return actions if self.actions is None else self.actions.own_batch(actions)

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) == 3

    @property
    def is_large(self) -> bool:
        """Whether observations are images whose arithmetic alone keeps a core busy; MinAtar's are not."""
        return self.is_image and math.prod(self.obs_shape) > 4_000

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action: () if discrete."""
        return () if self.action_low is None else (len(self.action_low),)


def require_discrete(spec: EnvSpec) -> int:
    """The number of actions, or BadInput where they are continuous."""
    if spec.n_actions is None:
        raise BadInput(
            f"env {spec.env!r} has continuous actions; expected an env with discrete actions, such as CartPole-v1"
            " (TD3 and SAC take continuous ones)"
        )
    return spec.n_actions


def require_continuous(spec: EnvSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The lowest and the highest action, or BadInput where actions are discrete or unbounded."""
    if spec.action_low is None or spec.action_high is None:
        raise BadInput(
            f"env {spec.env!r} has discrete actions; expected an env with continuous actions, such as Pendulum-v1"
            " (DQN takes discrete ones)"
        )
    if not all(map(math.isfinite, spec.action_low + spec.action_high)):
        raise BadInput(
            f"env {spec.env!r} has unbounded actions; expected a finite low and high for each of them:"
            " gymnasium.wrappers.TransformAction can give them"
        )
    return spec.action_low, spec.action_high
