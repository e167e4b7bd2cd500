"""What training runs have in common: every one, and every off-policy one."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bsrs.errors import BadInput
from bsrs.shaping import Constant, as_scale

MOST_STEPS = 10**12
MOST_WEIGHTS = 10**9

Control = Literal["none", "scaled", "exact", "learning-rate", "faster-target", "rescaled"]
Comparator = Literal["none", "advantage", "persistent", "munchausen", "minto", "centering", "popart"]
Parts = Literal["cab", "ca", "cb", "ab", "c", "a", "b", "none"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """One run of one member: everything that its records depend on, and nothing else."""

    algorithm: ClassVar[str]
    added_later: ClassVar[tuple[str, ...]] = ()
    """Fields that older configs lack: at their defaults they do not count for a run's identity."""

    env: str
    """The env's id, for example CartPole-v1 or PongNoFrameskip-v4."""
    eta: float | str = 0.0
    """Shape-scale: a number, auto, linear:START:END:STEPS, cosine:START:END:STEPS or piecewise:STEP=ETA,STEP=ETA."""
    seed: int = 0
    """Every random draw of the run comes from named streams of this seed."""
    steps: int
    """Env steps in all."""
    n_envs: int = 1
    """Copies of the env that are stepped together."""
    log_every: int = 1_000
    """Env steps between two lines of training records."""
    eval_every: int = 10_000
    """Env steps between two evaluations; 0 evaluates at the end only."""
    eval_episodes: int = 10
    """Greedy episodes of one evaluation, raw scores."""

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        """A config that an older version wrote, in today's terms."""
        return data

    def __post_init__(self) -> None:
        check_finite(self)
        as_scale(self.eta)
        if not self.env.isprintable() or not 0 < len(self.env) <= 200:
            raise BadInput(f"env is {self.env[:40]!r}; expected a name of up to 200 printable characters")
        check_range(self, 1, "steps", "log_every", high=MOST_STEPS)
        check_range(self, 0, "eval_every", high=MOST_STEPS)
        check_range(self, 0, "seed", high=2**63 - 1)
        check_range(self, 1, "n_envs", "eval_episodes", high=10_000)


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(TrainingConfig):
    """A run that learns from a replay, with a target network: what DQN, TD3 and SAC share."""

    added_later: ClassVar[tuple[str, ...]] = ("parts", "control", "comparator", "comparator_alpha", "n_step")

    gamma: float
    """Discount factor."""
    learning_rate: float
    """Learning rate of Adam, for every network."""
    batch_size: int
    """Transitions of one gradient step."""
    buffer_size: int
    """Transitions the replay holds."""
    learning_starts: int
    """Env steps of random actions before the first gradient step."""
    train_freq: int
    """Env steps between two rounds of gradient steps."""
    gradient_steps: int
    """Gradient steps of one round."""
    hidden: tuple[int, ...]
    """Hidden layers of each network."""
    potential_network: Literal["online", "target", "split"] = "online"
    """The networks that the potential asks. split: the online one for V(s), the target network for V(s').
    eta = auto mixes the two itself."""
    parts: Parts = "cab"
    """The parts of BSRS to keep: c scales the reward by 1/(1+eta), a is advantage learning, b mixes the online network
    into the bootstrap. All three are BSRS; see docs/why-it-works.md."""
    control: Control = "none"
    """Instead of shaping, a control at the same eta. scaled: reward / (1+eta); exact: -eta*Q(s,a) in place of
    -eta*V(s); learning-rate: times 1+eta; faster-target: a target network as fast as shaping would make it;
    rescaled: learning rate times 1+eta and reward / (1+eta)."""
    comparator: Comparator = "none"
    """Besides or instead of shaping, what the field does. advantage: advantage learning; persistent: its persistent
    form; munchausen: scaled log-policy on the reward; minto: the least of the online and the target network in the
    bootstrap; centering: rewards without their mean; popart: networks that learn normalised targets (DQN)."""
    comparator_alpha: float = 0.9
    """Weight of the action gap in advantage, persistent and munchausen: as published; eta/(1+eta) matches shaping."""
    n_step: int = 1
    """Steps over which rewards are summed before the bootstrap."""
    random_period: int = 1_000
    """Env steps after which the random potential is drawn anew."""
    terminal: Literal["zero", "keep"] = "zero"
    """Potential of terminal states: zero, as policy invariance needs, or kept, as in the authors' code."""

    @classmethod
    def upgraded(cls, data: dict[str, Any]) -> dict[str, Any]:
        if data.get("potential") != "rescaled":
            return data
        return {**data, "potential": "bootstrapped", "control": "rescaled"}  # it was called a potential once

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 0.0, "gamma", high=1.0)
        check_range(self, 1, "buffer_size", "train_freq", "random_period", "n_step", high=MOST_STEPS)
        check_range(self, 0, "learning_starts", high=MOST_STEPS)
        check_range(self, 1, "batch_size", high=1_000_000)
        check_range(self, -1, "gradient_steps", high=1_000_000)
        check_range(self, 0.0, "comparator_alpha", high=1.0)
        check_range(self, 0, "learning_rate", above=True)
        if not 0 < len(self.hidden) <= 100 or min(self.hidden) < 1 or max(self.hidden) > 100_000:
            expected = "the sizes of 1 to 100 layers, each from 1 to 100000"
            raise BadInput(f"hidden is {str(self.hidden)[:80]}; expected {expected}")
        weights = sum(size * after for size, after in itertools.pairwise(self.hidden))
        if weights > MOST_WEIGHTS:
            what = f"hidden is {str(self.hidden)[:80]}: that is {weights:,} weights"
            raise BadInput(f"{what}; expected at most {MOST_WEIGHTS:,}")
        if self.control != "none":
            self._check_control()
        if self.comparator == "centering" and self.gamma == 1:
            raise BadInput("comparator centering has gamma 1; expected gamma below 1, or the mean has no potential")

    def _check_control(self) -> None:
        scale = as_scale(self.eta)
        if not isinstance(scale, Constant) or not scale.eta > -1:
            raise BadInput(f"control {self.control} has eta {self.eta!r}; expected a constant number above -1")
        if self.parts != "cab":
            raise BadInput(
                f"control {self.control} has parts {self.parts!r}; expected the default, a control has no parts"
            )


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
