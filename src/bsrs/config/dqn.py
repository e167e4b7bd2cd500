"""The settings of a DQN run. The defaults are the paper's table for Atari."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import OffPolicyConfig, check_positive, check_range
from bsrs.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """DQN (Mnih et al., 2015) with bootstrapped reward shaping."""

    algorithm: ClassVar[str] = "dqn"
    added_later = (*OffPolicyConfig.added_later, "dueling")

    steps: int = 10_000_000
    gamma: float = 0.99
    learning_rate: float = 1e-4
    batch_size: int = 32
    buffer_size: int = 100_000
    learning_starts: int = 50_000
    train_freq: int = 4
    gradient_steps: int = 1
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers for flat observations; images have their own networks."""
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
    atari_network: Literal["nature", "small"] = "nature"
    """For images: the network of Mnih et al. (2015), or theirs of 2013, which costs a third. Images too small for
    either get one 3x3 convolution."""
    double: bool = False
    """Double DQN: the online network chooses the next action, the target network values it."""
    dueling: bool = False
    """Dueling heads (Wang et al., 2016): V and advantages instead of Q."""
    temperature: float = 0.0
    """Above 0, V is the soft maximum tau * logsumexp(Q / tau), in the target and in the potential."""
    potential: Literal["bootstrapped", "static", "random"] = "bootstrapped"
    """What eta scales: the current V; the V of the untrained network, kept; or noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", high=1.0)
        check_range(self, 1, "gradient_steps", "target_update_interval")
        check_range(self, 0, "temperature")
        check_positive(self, "max_grad_norm")
        if self.double and self.temperature:
            raise BadInput("double and temperature are both set; the soft maximum has no greedy action to choose")
