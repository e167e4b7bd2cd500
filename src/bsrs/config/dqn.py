"""The settings of a DQN run. The defaults are the paper's table for Atari."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import TrainingConfig, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class DQNConfig(TrainingConfig):
    """DQN (Mnih et al., 2015) with bootstrapped reward shaping."""

    algorithm: ClassVar[str] = "dqn"

    steps: int = 10_000_000
    """Env steps in all."""
    gamma: float = 0.99
    """Discount factor."""
    learning_rate: float = 1e-4
    """Step size of Adam."""
    batch_size: int = 32
    """Transitions of one gradient step."""
    buffer_size: int = 100_000
    """Transitions the replay holds."""
    learning_starts: int = 50_000
    """Env steps of random play before the first gradient step."""
    train_freq: int = 4
    """Env steps between two rounds of gradient steps."""
    gradient_steps: int = 1
    """Gradient steps of one round."""
    target_update_interval: int = 1_000
    """Env steps between two copies of the online network into the target network."""
    exploration_fraction: float = 0.1
    """Share of the run over which epsilon falls from its first to its last value."""
    exploration_initial_eps: float = 1.0
    """Epsilon at the start."""
    exploration_final_eps: float = 0.02
    """Epsilon after the fall."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient; longer ones are scaled down."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers for flat observations; images have their own networks."""
    atari_network: Literal["nature", "small"] = "nature"
    """For Atari frames: the network of Mnih et al. (2015), or theirs of 2013, which costs a third."""
    double: bool = False
    """Double DQN: the online network chooses the next action, the target network values it."""
    temperature: float = 0.0
    """Above 0, V is the soft maximum tau * logsumexp(Q / tau), in the target and in the potential."""
    potential: Literal["bootstrapped", "static", "random", "rescaled"] = "bootstrapped"
    """What eta scales: the current V; the V of the untrained network, kept; noise; or, as the control without
    shaping that the paper's TD(0) proposition suggests, nothing: learning rate * (1+eta), reward / (1+eta)."""
    potential_network: Literal["online", "target"] = "online"
    """The network whose V is the bootstrapped potential."""
    random_period: int = 1_000
    """Env steps after which the random potential is drawn anew."""
    terminal: Literal["zero", "keep"] = "zero"
    """Potential of terminal states: zero, as policy invariance needs, or V kept, as in the authors' Atari code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", "exploration_fraction", high=1.0)
        check_range(self, 0.0, "exploration_initial_eps", "exploration_final_eps", high=1.0)
        check_range(self, 1, "batch_size", "buffer_size", "train_freq", "gradient_steps", "target_update_interval")
        check_range(self, 1, "random_period")
        check_range(self, 0, "learning_starts", "temperature")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} is {getattr(self, name)}; expected a number above 0")
        if self.double and self.temperature:
            raise BadInput("double and temperature are both set; the soft maximum has no greedy action to choose")
        if self.potential == "rescaled":
            self._check_rescaled()

    def _check_rescaled(self) -> None:
        from bsrs.shaping import Constant, as_scale

        scale = as_scale(self.eta)
        if not isinstance(scale, Constant) or not scale.eta > -1:
            raise BadInput(f"potential rescaled has eta {self.eta!r}; expected a constant number above -1")
