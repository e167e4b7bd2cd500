"""The settings of a SAC run. The defaults are those of the TD3 runs on Pendulum, with SAC's own networks."""

from dataclasses import dataclass
from typing import ClassVar

from bsrs.config.actor_critic import ActorCriticConfig
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """SAC (Haarnoja et al., 2018) with bootstrapped reward shaping and a temperature that is learnt."""

    algorithm: ClassVar[str] = "sac"

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the actor and of each critic."""
    alpha: float = 1.0
    """The temperature at the start."""
    fixed_alpha: bool = False
    """Leave the temperature as it is at the start, instead of adapting it to `target_entropy`."""
    target_entropy: float | None = None
    """The entropy to reach; minus the number of actions if not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise BadInput(f"alpha is {self.alpha}; expected a number above 0")
