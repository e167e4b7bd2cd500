"""What an agent needs to know about an env."""

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
    """Observations and actions of an env. Either `n_actions` or `action_low` and `action_high` are set."""

    env: str
    """Name of the env, for example `PongNoFrameskip-v4`."""
    kind: Kind
    obs_shape: tuple[int, ...]
    """Shape of one observation. Images are (channels, height, width), everything else is a vector."""
    obs_dtype: Literal["uint8", "float32"]
    obs_scale: float = 1.0
    """Networks divide observations by this: 255 for images in bytes."""
    frame_stack: int = 1
    """Number of frames in one observation. Missing ones at the start of an episode are zero."""
    n_actions: int | None = None
    """Discrete actions are 0 ... n_actions - 1."""
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    """Continuous actions are vectors between these bounds, in the env's units."""
    first_action: int = 0
    """Number of the first discrete action in the env itself."""
    observations: Observations | None = field(default=None, compare=False, repr=False)
    """Converts the env's observations to arrays of `obs_shape`."""
    actions: Actions | None = field(default=None, compare=False, repr=False)
    """Converts an agent's actions to the env's. None if they are the same."""

    @property
    def notes(self) -> list[str]:
        """Notices about how observations and actions are converted."""
        return [part.note for part in (self.observations, self.actions) if part and part.note]

    def own_actions(self, actions: NDArray[Any]) -> Any:
        """Convert a batch of an agent's actions to the env's form."""
        return actions if self.actions is None else self.actions.own_batch(actions)

    @property
    def is_image(self) -> bool:
        return len(self.obs_shape) == 3

    @property
    def is_large(self) -> bool:
        """Whether observations are large images. Those of MinAtar are not."""
        return self.is_image and math.prod(self.obs_shape) > 4_000

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action: () if discrete."""
        return () if self.action_low is None else (len(self.action_low),)


def require_discrete(spec: EnvSpec) -> int:
    """Return the number of actions, or raise `BadInput` if they are continuous."""
    if spec.n_actions is None:
        raise BadInput(
            f"env {spec.env!r} has continuous actions; expected an env with discrete actions, such as CartPole-v1"
            " (TD3 and SAC take continuous ones)"
        )
    return spec.n_actions


def require_continuous(spec: EnvSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lowest and the highest action, or raise `BadInput` if actions are discrete or unbounded."""
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
