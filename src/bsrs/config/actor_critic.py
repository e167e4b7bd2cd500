"""What TD3 and SAC have in common: twin critics, an actor, replay, and a potential made of them."""

from dataclasses import dataclass
from typing import Literal

from bsrs.config.training import OffPolicyConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(OffPolicyConfig):
    """An off-policy actor-critic run on continuous actions. The defaults are the paper's table for Pendulum."""

    steps: int = 20_000
    gamma: float = 0.98
    learning_rate: float = 1e-3
    batch_size: int = 256
    buffer_size: int = 200_000
    learning_starts: int = 0
    train_freq: int = 1
    gradient_steps: int = -1
    """Gradient steps of one round; -1 is as many as there were env steps."""
    hidden: tuple[int, ...] = (400, 300)
    """Hidden layers of the actor and of each critic."""
    tau: float = 0.005
    """Share of the online network that moves into the target network at each of its updates."""
    n_critics: int = 2
    """Critics per member, of which the smallest counts."""
    potential: Literal["policy", "replay", "static", "random"] = "policy"
    """What eta scales: V at the actor's own action (the paper's text); Q at the replayed action for s and at the
    target's action for s' (the authors' figures); the V of the untrained networks, kept; or noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "tau", high=1.0)
        check_range(self, 1, "n_critics", high=1_000)
        if self.comparator == "popart":
            raise BadInput("comparator popart is DQN's only; expected another one")
        if self.gradient_steps < 1 and self.gradient_steps != -1:
            raise BadInput(f"gradient_steps is {self.gradient_steps}; expected at least 1, or -1 for one per env step")
