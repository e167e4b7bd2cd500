"""What off-policy and on-policy shaping share: a model's settings, its current V, and the shaping term of a batch."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch import Tensor

from bsrs.adapting import BatchShaper, describe_array
from bsrs.errors import BadInput, say, unknown
from bsrs.rng import stream
from bsrs.sb3.arrays import decode, encode
from bsrs.sb3.values import Observations, map_obs, reader_for
from bsrs.shaping import Potential, RandomDynamic, Static

# (model, a batch of observations) -> one value per observation
ValueFunction = Callable[[Any, Any], Any]

UNUSUAL = 20.0
"""etas above this, and negative ones, print a notice."""


@dataclass(frozen=True)
class Settings:
    """The arguments of `shape`."""

    eta: Any
    potential: Potential | None = None
    network: str = "online"
    terminal: str = "zero"
    value_fn: ValueFunction | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.terminal not in ("zero", "keep"):
            raise unknown("terminal", self.terminal, ["zero", "keep"])
        if self.potential is not None and not callable(self.potential):
            raise BadInput(
                f"potential is {self.potential!r}; expected a function of the observations, or Static(table)"
            )
        if _takes_one_argument(self.potential):
            object.__setattr__(self, "potential", Static(self.potential))


def _takes_one_argument(potential: Any) -> bool:
    """Whether this is a bare function of the observations, not of (state, value, step)."""
    try:
        inspect.signature(potential).bind("state")
    except (TypeError, ValueError):
        return False
    return True


class Transitions(NamedTuple):
    """A batch of transitions with V at both ends; all but the observations are (B,)."""

    obs: Observations
    next_obs: Observations
    reward: Tensor
    value: Tensor
    next_value: Tensor
    terminated: Tensor
    gamma: Tensor | float
    bootstrap: Tensor | None = None


class ModelShaper(BatchShaper):
    """The shaping of one model. The model is an argument of every call, so that it can be copied with its shaping."""

    def __init__(self, model: Any, settings: Settings) -> None:
        super().__init__(settings.eta, settings.potential)
        self.settings = settings
        if isinstance(settings.potential, RandomDynamic) and isinstance(model.observation_space, spaces.Dict):
            raise BadInput("a random potential needs observations in one array; this model's are in a dict")
        if settings.value_fn is None and self.shaper.needs_value:
            reader_for(model, settings.network)
        if self.shaper.mixes or any(self.shaper.probes):
            _check_for_auto(model, settings)
        seed = (model.seed or 0) if settings.seed is None else settings.seed
        self._rng = stream(seed, "sb3 potential", model.num_timesteps)
        self._sum, self._count, self._mean = 0.0, 0, 0.0
        self._value: Tensor | None = None
        self._now_eta(model)

    def is_active_for(self, model: Any) -> bool:
        """Whether there is anything to add to the model's rewards now."""
        self.step = model.num_timesteps
        return self.is_active

    def value(self, model: Any, obs: Observations, count: int, *lstm_states: Any, network: str | None = None) -> Tensor:
        """Return V of `count` states by the current networks, (count,); zeros if the potential does not use V."""
        if not self.shaper.needs_value:
            return torch.zeros(count, device=model.device)
        return self._read(model, obs, count, self._rng, *lstm_states, network=network)

    @torch.no_grad()
    def _read(
        self, model: Any, obs: Observations, count: int, rng: Any, *lstm_states: Any, network: str | None = None
    ) -> Tensor:
        if self.settings.value_fn is not None:
            return _as_values(self.settings.value_fn(model, obs), count)
        network = network or self.settings.network
        return reader_for(model, network).read(model, obs, network, rng, *lstm_states)

    def terms(self, model: Any, batch: Transitions, env_reward: Tensor | None = None) -> Tensor:
        """Return what shaping adds to the rewards of a batch, (B,). Scales that learn are shown `env_reward`."""
        term = self.term(
            batch.value,
            batch.next_value,
            reward=batch.reward if env_reward is None else env_reward,
            gamma=batch.gamma,
            terminated=batch.terminated,
            bootstrap=batch.bootstrap,
            state=_state(model, batch.obs),
            next_state=_state(model, batch.next_obs),
            keep_terminal=self.settings.terminal == "keep",
        )
        self._value = batch.value
        self._sum, self._count = self._sum + self.metrics["mean"], self._count + 1
        return term

    def watch_model(self, model: Any, obs: Observations, size: int) -> None:
        """Show V to "auto" if a period of the target network is over; the first batches become the probes."""
        wanted = self.shaper.probes[0]
        if wanted:
            now, period = reader_for(model).clock(model, self.updates * size / model.batch_size)  # type: ignore[misc]
            few = map_obs(lambda part: part[:wanted].clone(), obs) if self._size < wanted else obs
            # The same random draws at every look: sampling must not look like movement.
            value = lambda part: self._read(model, part, wanted, stream(0, "sb3 probes"))  # noqa: E731
            self.watch(few, min(size, wanted), value, now, period)

    def _now_eta(self, model: Any) -> float:
        """Return the eta in force, and refuse one that is not a number."""
        self.step = model.num_timesteps
        try:
            eta = self.shaper.in_force(self.step)[0]["eta"]
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise BadInput(f"eta is {self.settings.eta!r}; expected one number at every step ({error})") from None
        if eta < 0 or eta > UNUSUAL:
            say(f"eta is {eta:g}: negative and very large values usually make training worse; 0.5 to 5 is common")
        return eta

    def log(self, model: Any) -> None:
        """Put eta, V and the shaping of the batches since the last log into the model's own logger."""
        record, self.step = model.logger.record, model.num_timesteps
        if self._count:  # without a batch since the last log, the last mean stands
            self._mean = float(self._sum) / self._count
        mean = self._mean if self.is_active else 0.0
        self._sum, self._count = 0.0, 0
        value: dict[str, Any] = {} if self._value is None else {"value": self._value.mean()}
        for name, number in {**self.shaper.in_force(self.step)[0], **value, "mean": mean}.items():
            record(f"shaping/{name}", float(number))
        episodes = [info for info in model.ep_info_buffer or () if "r" in info]
        if episodes:
            raw, length = (float(np.mean([info[name] for info in episodes])) for name in ("r", "l"))
            bonus = mean * length / getattr(vars(model).get("replay_buffer"), "n_steps", 1)
            if model._vec_normalize_env is not None:
                bonus = float(model._vec_normalize_env.unnormalize_reward(np.array(bonus)))
            record("shaping/ep_sum", bonus)
            record("shaping/ep_shaped_rew_mean", raw + bonus)

    def state(self) -> dict[str, Any]:
        """Return what a continued training needs besides the settings, as plain data."""
        watching = {"size": self._size, "looks": self._looks, "next_look": self._next_look}
        probes = [encode(part) for part in self._probes]
        return {**super().state(), "stream": self._rng.bit_generator.state, **watching, "probes": probes}

    def load_state(self, state: dict[str, Any], *, scale: bool = True, device: Any = "cpu") -> None:
        """Continue from where `state` was taken; a new scale starts from scratch."""
        self._rng.bit_generator.state = state["stream"]
        if scale:
            super().load_state({"step": 0, "updates": 0, **state})
            if state.get("probes"):  # go on watching the same observations
                self.shaper.load_state(state["scale"])
                self._probes = [decode(part, device) for part in state["probes"]]
                self._size, self._looks, self._next_look = (state[name] for name in ("size", "looks", "next_look"))


def _check_for_auto(model: Any, settings: Settings) -> None:
    """Refuse "auto" where it cannot work."""
    eta = f"eta={settings.eta!r}"
    if settings.network != "online" or settings.terminal != "zero" or settings.value_fn or settings.potential:
        raise BadInput(
            f"{eta} needs the model's own V of both networks: leave network, terminal, value_fn and potential"
            " as by default, or choose a number, such as eta=0.5"
        )
    if not isinstance(model, OffPolicyAlgorithm) or not reader_for(model).clock:
        raise BadInput(
            f"{eta} needs a target network, and {type(model).__name__} has none: choose a number, such as eta=0.5"
        )
    if model.tau == 0:
        raise BadInput(f"{eta} needs a target network that moves, and tau is 0: choose a number, such as eta=0.5")


def _state(model: Any, obs: Observations) -> Observations:
    """Return the observations for potentials and eta(s): a discrete state is a number, not a row of one."""
    return obs.reshape(-1) if isinstance(model.observation_space, spaces.Discrete) else obs


def _as_values(values: Any, count: int) -> Tensor:
    """Return what a `value_fn` returned as (count,)."""
    if not isinstance(values, (Tensor, np.ndarray)) or tuple(values.shape) not in ((count,), (count, 1)):
        raise BadInput(f"value_fn returned {describe_array(values)}; expected one value per observation, ({count},)")
    return torch.as_tensor(values).reshape(-1)
