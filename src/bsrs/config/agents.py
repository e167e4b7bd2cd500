"""The settings of DQN, TD3 and SAC runs. The defaults are the paper's tables: Atari for DQN, Pendulum for the rest."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bsrs.config.training import OffPolicyConfig, check_range, potential_of
from bsrs.errors import BadInput
from bsrs.shaping import BOOTSTRAPPED, Shaping, as_scale


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """DQN (Mnih et al., 2015) with bootstrapped reward shaping."""

    algorithm: ClassVar[str] = "dqn"

    steps: int = 10_000_000
    gamma: float = 0.99
    learning_rate: float = 1e-4
    batch_size: int = 32
    buffer_size: int = 100_000
    learning_starts: int = 50_000
    train_freq: int = 4
    gradient_steps: int = 1
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layer sizes for vector observations; images have their own networks."""
    target_update_interval: int = 1_000
    """Env steps between updates of the target network."""
    exploration_fraction: float = 0.1
    """Fraction of the run over which epsilon is annealed."""
    exploration_initial_eps: float = 1.0
    """Initial epsilon."""
    exploration_final_eps: float = 0.02
    """Final epsilon."""
    max_grad_norm: float = 10.0
    """Clip gradients to this norm."""
    network: str = ""
    """Q-network: mlp, dueling, nature (Mnih et al., 2015), small (Mnih et al., 2013; a third of the cost), minatar, or
    MODULE:FACTORY for your own. By default it suits the observations."""
    double: bool = False
    """Use Double DQN: the online network chooses the next action, the target network evaluates it."""
    temperature: float = 0.0
    """Above 0, V is the soft maximum tau * logsumexp(Q / tau), in the target and in the potential."""
    potential: str = BOOTSTRAPPED
    """Potential that eta scales: bootstrapped (the agent's own V), or MODULE:NAME of a function of the state."""

    def shaping(self) -> Shaping:
        return Shaping(as_scale(self.eta), potential_of(self.potential))

    def __post_init__(self) -> None:
        super().__post_init__()
        potential_of(self.potential)
        check_range(self, 0.0, "exploration_fraction", "exploration_initial_eps", "exploration_final_eps", high=1.0)
        check_range(self, 1, "gradient_steps", "target_update_interval")
        check_range(self, 0, "temperature")
        check_range(self, 0, "max_grad_norm", above=True)
        if self.double and self.temperature:
            raise BadInput("double and temperature are both set; the soft maximum has no greedy action to choose")


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
    """Gradient steps per round; -1 takes as many as there were env steps."""
    hidden: tuple[int, ...] = (400, 300)
    """Hidden layer sizes of the actor and of each critic."""
    tau: float = 0.005
    """Polyak coefficient: the target network moves this fraction towards the online network at each update."""
    n_critics: int = 2
    """Number of critics; the minimum over them is used."""
    potential: Literal["policy", "replay"] | str = "policy"
    """Potential that eta scales. policy: V at the actor's action (the paper's text). replay: Q at the replayed action
    for s and at the target actor's action for s' (the authors' figures). MODULE:NAME: a function of the state."""
    actor: str = ""
    """MODULE:FACTORY of your own actor."""
    critic: str = ""
    """MODULE:FACTORY of your own critic."""

    def shaping(self) -> Shaping:
        return Shaping(as_scale(self.eta), potential_of(self.potential, "policy", "replay"))

    def __post_init__(self) -> None:
        super().__post_init__()
        potential_of(self.potential, "policy", "replay")
        check_range(self, 0.0, "tau", high=1.0)
        check_range(self, 1, "n_critics", high=1_000)
        if self.gradient_steps < 1 and self.gradient_steps != -1:
            raise BadInput(f"gradient_steps is {self.gradient_steps}; expected at least 1, or -1 for one per env step")


@dataclass(frozen=True, kw_only=True)
class TD3Config(ActorCriticConfig):
    """TD3 (Fujimoto et al., 2018) with bootstrapped reward shaping."""

    algorithm: ClassVar[str] = "td3"

    policy_delay: int = 2
    """Critic updates per update of the actor and the target networks."""
    target_policy_noise: float = 0.2
    """Standard deviation of the target policy noise, for actions scaled to -1 to 1."""
    target_noise_clip: float = 0.5
    """Clip the target policy noise to this size."""
    exploration_noise: float = 0.0
    """Standard deviation of the exploration noise. The paper's code has none; rl-baselines3-zoo uses 0.1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, "policy_delay")
        check_range(self, 0, "target_policy_noise", "target_noise_clip", "exploration_noise")


@dataclass(frozen=True, kw_only=True)
class SACConfig(ActorCriticConfig):
    """SAC (Haarnoja et al., 2018) with bootstrapped reward shaping and a learned temperature."""

    algorithm: ClassVar[str] = "sac"

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layer sizes of the actor and of each critic."""
    alpha: float = 1.0
    """Initial entropy temperature."""
    fixed_alpha: bool = False
    """Keep the temperature fixed instead of adapting it to `target_entropy`."""
    target_entropy: float | None = None
    """Target entropy; by default minus the number of action dimensions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0, "alpha", above=True)
