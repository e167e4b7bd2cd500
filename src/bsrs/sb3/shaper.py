"""What off-policy and on-policy shaping share: a model's settings, its current V, the shaped reward of a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from bsrs.errors import BadInput, unknown
from bsrs.rng import stream
from bsrs.sb3.values import Observations, reader_for
from bsrs.shaping import Bootstrapped, Potential, RandomDynamic, Returned, Shaper, Shaping, as_scale

# (model, a batch of observations) -> one value per observation
ValueFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Settings:
    """What `shape` was asked for: its arguments."""

    eta: Any
    potential: Potential | None = None
    network: str = "online"
    terminal: str = "zero"
    value_fn: ValueFunction | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.terminal not in ("zero", "keep"):
            raise unknown("terminal", self.terminal, ["zero", "keep"])


class Transitions(NamedTuple):
    """A batch of transitions with V at both ends; all but the observations are of shape (B,)."""

    obs: Observations
    next_obs: Observations
    reward: torch.Tensor
    value: torch.Tensor
    next_value: torch.Tensor
    terminated: torch.Tensor
    gamma: torch.Tensor | float
    env_reward: torch.Tensor | None = None
    """Where SB3 has added something to `reward`."""

    def flat(self) -> Self:
        """With (B,) for (B, 1)."""
        numbers = {name: getattr(self, name).reshape(-1) for name in ("reward", "value", "next_value", "terminated")}
        return self._replace(**numbers)


class ModelShaper:
    """The one `bsrs.shaping.Shaper` at work on a model: reads its V, shapes its batches, shows them to the scale."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model, self.settings = model, settings
        scale, potential = as_scale(settings.eta), settings.potential or Bootstrapped()
        self._shaper = Shaper([Shaping(scale, potential)])
        if isinstance(potential, RandomDynamic) and isinstance(model.observation_space, spaces.Dict):
            raise BadInput("a random potential needs observations in one array; this model's are in a dict")
        self.mixes, self.reviews, self.learns = scale.mixes, scale.reviews_returns, self._shaper.learns
        self.is_always_active = self.learns or scale.depends_on_state
        if settings.value_fn is None and self._shaper.needs_value:
            self._read = reader_for(model, settings.network)
        if self.mixes or self.reviews:
            self._check_target_network()
        self.plain = type(potential) is Bootstrapped and settings.value_fn is None and not scale.depends_on_state
        """Whether V and one number are all there is: no function of the user's sees the tensors."""
        seed = (model.seed or 0) if settings.seed is None else settings.seed
        self._rng = stream(seed, "sb3 potential", model.num_timesteps)
        self.last: tuple[Transitions, torch.Tensor] | None = None
        """The last batch and its shaped rewards, for the logger."""
        self.eta()

    def _check_target_network(self) -> None:
        """For a scale that compares or mixes the online and the target network."""
        eta = f"eta {self.settings.eta!r}"
        if self.settings.value_fn is not None or self.settings.network != "online" or self.settings.terminal != "zero":
            raise BadInput(f"{eta} asks both networks itself: expected network, terminal and value_fn as by default")
        if not isinstance(self.model, OffPolicyAlgorithm):
            raise BadInput(f"{eta} needs a target network, and {type(self.model).__name__} has none")
        if "discounts" not in ReplayBufferSamples._fields:
            raise BadInput(f"{eta} needs Stable-Baselines3 2.7 or later")
        reader_for(self.model, "target")

    def eta(self) -> float:
        """The eta in force; its mean over the last batch where it depends on the state."""
        try:
            return self._shaper.in_force(self.model.num_timesteps)[0]
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise BadInput(f"eta is {self.settings.eta!r}; expected one number at every step ({error})") from None

    def share(self) -> float:
        """How much of V(s') is the online network's, where the scale mixes; the rest is the target network's."""
        return float(self._shaper.share(self.model.num_timesteps, None))

    def value(self, obs: Observations, count: int, *lstm_states: Any, network: str | None = None) -> torch.Tensor:
        """V of `count` states by the current networks, (count,); zeros where nothing asks for it."""
        if not self._shaper.needs_value:
            return torch.zeros(count, device=self.model.device)
        # Inference mode is faster, but what the user's own functions get must be ordinary tensors.
        with torch.inference_mode() if self.plain and not self.learns else torch.no_grad():
            if self.settings.value_fn is None:
                return self._read(self.model, obs, network or self.settings.network, self._rng, *lstm_states)
            return _as_values(self.settings.value_fn(self.model, obs), count)

    def shaped_reward(self, batch: Transitions) -> torch.Tensor:
        """The shaped rewards of a batch, (B,), by the one formula."""
        shaped: torch.Tensor = self._shaper(
            batch.reward,
            batch.value,
            batch.next_value,
            gamma=batch.gamma,
            terminated=batch.terminated if self.settings.terminal == "zero" else None,
            state=self._state(batch.obs),
            next_state=self._state(batch.next_obs),
            step=self.model.num_timesteps,
        )
        if type(shaped) is not type(batch.reward) or shaped.shape != batch.reward.shape:
            raise BadInput(  # (B, 1) would have become (B, B)
                f"the shaped rewards came out as a {_kind(shaped)}: potential and eta functions must return a tensor"
                f" with one number per state, here of shape {tuple(batch.reward.shape)}"
            )
        self.last = batch, shaped
        if self.learns:
            self.update(batch)
        return shaped

    def update(self, batch: Transitions) -> None:
        """Show a batch to the scale."""
        _, _, reward, value, next_value, terminated, _, env_reward = batch.flat()
        reward, step = reward if env_reward is None else env_reward, self.model.num_timesteps
        self._shaper.update(reward, value, next_value, terminated=terminated, step=step, members=False)

    def review(self, returned: Returned) -> None:
        """Show recent returns to the scale."""
        self._shaper.review(returned)

    def log(self) -> None:
        """Put the last batch into the model's own logger."""
        mean, absolute, potential = 0.0, 0.0, 0.0
        if self.last is not None and (self.is_always_active or self.eta()):
            batch, shaped = self.last
            bonus = shaped - batch.reward
            phi = self._shaper.phi(self._state(batch.obs), batch.value.reshape(-1), self.model.num_timesteps)
            mean, absolute, potential = (float(part.mean()) for part in (bonus, abs(bonus), phi))
        record = self.model.logger.record
        record("shaping/eta", self.eta())
        if self.mixes:
            record("shaping/share", self.share())
        record("shaping/mean", mean)
        record("shaping/abs", absolute)
        record("shaping/potential", potential)

    def state(self) -> dict[str, Any]:
        """What a continued training needs: the state of the random stream, and what the scale remembers."""
        return {"stream": self._rng.bit_generator.state, "scale": self._shaper.state()}

    def load_state(self, state: dict[str, Any] | None, *, scale: bool) -> None:
        """Continue from where `state` was taken, the scale only if it is the same one; older files have none."""
        if state is not None:
            self._rng.bit_generator.state = state["stream"]
            if scale:
                self._shaper.load_state(state["scale"])
                self.eta()

    def _state(self, obs: Observations) -> Observations:
        """The observations as potentials and eta(s) see them: a discrete state is a number, not a row of one."""
        return obs.reshape(-1) if isinstance(self.model.observation_space, spaces.Discrete) else obs


def _as_values(values: Any, count: int) -> torch.Tensor:
    """What a `value_fn` returned, as (count,)."""
    if not isinstance(values, (torch.Tensor, np.ndarray)) or tuple(values.shape) not in ((count,), (count, 1)):
        raise BadInput(f"value_fn returned a {_kind(values)}; expected one value per observation, shape ({count},)")
    return torch.as_tensor(values).reshape(-1)


def _kind(array: Any) -> str:
    return f"{type(array).__name__} of shape {tuple(getattr(array, 'shape', ()))}"


# --------------------------------------------------------------------------------------------------------------
# A model or a buffer becomes a shaped one in place: its class is replaced by a subclass of it. So it stays what it was
# for everything else (`isinstance`, its attributes, its other methods), nothing has to be delegated, and giving it its
# own class again undoes it.


def become(thing: Any, make_subclass: Callable[[Any], Any]) -> None:
    """Make `thing` an instance of the subclass of its own class that `make_subclass` makes."""
    thing.__class__ = make_subclass(type(thing))


def become_plain(thing: Any) -> None:
    """Undo `become`."""
    thing.__class__ = type(thing).__base__


def reduce_as_plain(buffer: Any, protocol: Any) -> Any:
    """How a shaped buffer is saved and copied: as a plain one, which SB3 alone can load and which holds no model."""
    state = {name: part for name, part in buffer.__getstate__().items() if name not in ("shaper", "steps")}
    return object.__new__, (type(buffer).__base__,), state
