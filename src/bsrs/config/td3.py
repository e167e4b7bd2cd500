"""The settings of a TD3 run. The defaults are the paper's table for Pendulum."""

from dataclasses import dataclass
from typing import ClassVar

from bsrs.config.actor_critic import ActorCriticConfig
from bsrs.config.training import check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class TD3Config(ActorCriticConfig):
    """TD3 (Fujimoto et al., 2018) with bootstrapped reward shaping."""

    algorithm: ClassVar[str] = "td3"

    policy_delay: int = 2
    """Critic updates for each update of the actor and the targets."""
    target_policy_noise: float = 0.2
    """Standard deviation of the noise on the target's action; actions span -1 to 1 here."""
    target_noise_clip: float = 0.5
    """Largest size of that noise."""
    exploration_noise: float = 0.0
    """Standard deviation of the noise on the actions taken. The paper's code has none, SB3's zoo uses 0.1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, "policy_delay")
        if self.comparator == "munchausen":
            raise BadInput("comparator munchausen needs a policy with probabilities; expected dqn or sac, not td3")
        check_range(self, 0, "target_policy_noise", "target_noise_clip", "exploration_noise")
