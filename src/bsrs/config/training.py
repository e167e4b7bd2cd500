"""What training runs have in common: every one, and every off-policy one."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bsrs.errors import BadInput
from bsrs.naming import is_object_name
from bsrs.scales import check_eta
from bsrs.shaping import BOOTSTRAPPED, Shaping, as_scale

MOST_STEPS = 10**12
MOST_WEIGHTS = 10**9


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One run of one member: everything that its records depend on, and nothing else."""

    algorithm: ClassVar[str]

    env: str
    """Env id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: float | str = 0.0
    """Eta: a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS, piecewise:STEP=ETA,STEP=ETA, or
    MODULE:NAME for your own."""
    seed: int = 0
    """Seed of every random draw in the run."""
    steps: int
    """Total env steps."""
    n_envs: int = 1
    """Number of env copies that are stepped together."""
    log_every: int = 1_000
    """Env steps between training records."""
    eval_every: int = 10_000
    """Env steps between evaluations; 0 evaluates only at the end."""
    eval_episodes: int = 10
    """Greedy episodes per evaluation, with raw scores."""

    def __post_init__(self) -> None:
        check_finite(self)
        if not isinstance(self.eta, (int, float, str)):
            raise BadInput(f"eta is a {type(self.eta).__name__}; a config holds a number or text: DQN.of takes objects")
        check_eta(self.eta)
        if not self.env.isprintable() or not 0 < len(self.env) <= 200:
            raise BadInput(f"env is {self.env[:40]!r}; expected a name of up to 200 printable characters")
        check_range(self, 1, "steps", "log_every", high=MOST_STEPS)
        check_range(self, 0, "eval_every", high=MOST_STEPS)
        check_range(self, 0, "seed", high=2**63 - 1)
        check_range(self, 1, "n_envs", "eval_episodes", high=10_000)


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(TrainingConfig):
    """A run that learns from a replay, with a target network: what DQN, TD3 and SAC share."""

    gamma: float
    """Discount factor."""
    learning_rate: float
    """Learning rate of Adam, for every network."""
    batch_size: int
    """Transitions per gradient step."""
    buffer_size: int
    """Transitions in the replay buffer."""
    learning_starts: int
    """Env steps with random actions before the first gradient step."""
    train_freq: int
    """Env steps between rounds of gradient steps."""
    gradient_steps: int
    """Gradient steps per round."""
    hidden: tuple[int, ...]
    """Hidden layer sizes of each network."""
    potential_network: Literal["online", "target", "split"] = "online"
    """Network that provides V. split takes V(s) from the online and V(s') from the target network."""
    n_step: int = 1
    """Number of steps in n-step returns."""
    terminal: Literal["zero", "keep"] = "zero"
    """Potential of terminal states: zero, which policy invariance requires, or keep, as in the authors' code."""
    activation: Literal["relu", "tanh", "elu", "gelu", "silu"] = "relu"
    """Activation of the built-in networks for flat observations."""
    layer_norm: bool = False
    """Put a LayerNorm before every activation of the built-in networks for flat observations."""

    def shaping(self) -> Shaping:
        """Return the shaping that the settings ask for. Names of your own objects are looked up here."""
        return Shaping(as_scale(self.eta))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", high=1.0)
        check_range(self, 1, "buffer_size", "train_freq", "n_step", high=MOST_STEPS)
        check_range(self, 0, "learning_starts", high=MOST_STEPS)
        check_range(self, 1, "batch_size", high=1_000_000)
        check_range(self, -1, "gradient_steps", high=1_000_000)
        check_range(self, 0, "learning_rate", above=True)
        if not 0 < len(self.hidden) <= 100 or min(self.hidden) < 1 or max(self.hidden) > 100_000:
            expected = "the sizes of 1 to 100 layers, each from 1 to 100000"
            raise BadInput(f"hidden is {str(self.hidden)[:80]}; expected {expected}")
        weights = sum(size * after for size, after in itertools.pairwise(self.hidden))
        if weights > MOST_WEIGHTS:
            what = f"hidden is {str(self.hidden)[:80]}: that is {weights:,} weights"
            raise BadInput(f"{what}; expected at most {MOST_WEIGHTS:,}")


def potential_of(setting: str, *others: str) -> str:
    """The setting where it says what takes the place of V; `others` say something else. BadInput for anything else."""
    if is_object_name(setting):
        return setting
    if setting not in (BOOTSTRAPPED, *others):
        known = ", ".join(others or (BOOTSTRAPPED,))
        raise BadInput(f"potential is {setting[:80]!r}; expected {known}, or MODULE:NAME of your own")
    return BOOTSTRAPPED


def check_finite(config: Any) -> None:
    """BadInput unless every number is finite, and small enough to count with."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise BadInput(f"{field.name} is {number}; expected a finite number")
            if isinstance(number, int) and abs(number) >= 2**63:
                raise BadInput(f"{field.name} has more than 18 digits; expected a smaller number")


def check_range(config: Any, low: float, *names: str, high: float = float("inf"), above: bool = False) -> None:
    """BadInput unless each named field lies in [low, high] and, if so asked, above `low`."""
    for name in names:
        value = getattr(config, name)
        if above and not value > low:
            raise BadInput(f"{name} is {value}; expected a number above {low:g}")
        if not low <= value <= high:
            expected = f"at least {low:g}" if value < low and high > 1 else f"between {low:g} and {high:g}"
            raise BadInput(f"{name} is {value}; expected {expected}")


def check_default(config: Any, *names: str) -> None:
    """BadInput if a named field is not as it is by default: for variants of an algorithm that lack an option."""
    for field in dataclasses.fields(config):
        if field.name in names and getattr(config, field.name) != field.default:
            raise BadInput(
                f"{field.name} is {getattr(config, field.name)}; {config.algorithm} has {field.default} only"
            )
