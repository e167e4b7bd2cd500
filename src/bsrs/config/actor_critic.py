"""What TD3 and SAC have in common: twin critics, an actor, replay, and a potential made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bsrs.config.training import TrainingConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(TrainingConfig):
    """An off-policy actor-critic run on continuous actions. The defaults are the paper's table for Pendulum."""

    steps: int = 20_000
    """Env steps in all."""
    gamma: float = 0.98
    """Discount factor."""
    learning_rate: float = 1e-3
    """Step size of Adam, for every network."""
    batch_size: int = 256
    """Transitions of one gradient step."""
    buffer_size: int = 200_000
    """Transitions the replay holds."""
    learning_starts: int = 0
    """Env steps of uniformly random actions before the first gradient step."""
    train_freq: int = 1
    """Env steps between two rounds of gradient steps."""
    gradient_steps: int = -1
    """Gradient steps of one round; -1 is as many as there were env steps."""
    tau: float = 0.005
    """Share of the online network that moves into the target network at each of its updates."""
    hidden: tuple[int, ...] = (400, 300)
    """Hidden layers of the actor and of each critic."""
    n_critics: int = 2
    """Critics per member, of which the smallest counts."""
    potential: Literal["policy", "replay", "static", "random"] = "policy"
    """What eta scales: V at the actor's own action (the paper's text); Q at the replayed action for s and at the
    target's action for s' (the authors' figures); the V of the untrained networks, kept; or noise."""
    potential_network: Literal["online", "target"] = "online"
    """The critics that the potential asks."""
    terminal: Literal["zero", "keep"] = "zero"
    """Potential of terminal states: zero, as policy invariance needs, or kept, as in the authors' code."""
    random_period: int = 1_000
    """Env steps after which the random potential is drawn anew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", "tau", high=1.0)
        check_range(self, 1, "batch_size", "buffer_size", "train_freq", "n_critics", "random_period")
        check_range(self, 0, "learning_starts")
        if self.gradient_steps < 1 and self.gradient_steps != -1:
            raise BadInput(f"gradient_steps is {self.gradient_steps}; expected at least 1, or -1 for one per env step")
        if not self.learning_rate > 0:
            raise BadInput(f"learning_rate is {self.learning_rate}; expected a number above 0")
        if not self.hidden or min(self.hidden) < 1:
            raise BadInput(f"hidden is {self.hidden}; expected the sizes of one or more layers")
