"""What off-policy and on-policy shaping share: a model's settings, its current V, and what its logger shows."""

import base64
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from bsrs.adapting import BatchShaper
from bsrs.errors import BadInput, say, unknown
from bsrs.rng import stream
from bsrs.sb3.values import Observations, map_obs, reader_for
from bsrs.shaping import Potential, RandomDynamic, Shaper

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
        for name, known in (("network", ["online", "target"]), ("terminal", ["zero", "keep"])):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known)


class ModelShaper(BatchShaper):
    """The shaping of one model. The model is an argument of every call, so that it can be copied with its shaping."""

    def __init__(self, model: Any, settings: Settings) -> None:
        super().__init__(settings.eta, settings.potential, keep_terminal=settings.terminal == "keep")
        self.settings = settings
        if isinstance(settings.potential, RandomDynamic) and isinstance(model.observation_space, spaces.Dict):
            raise BadInput("a random potential needs observations in one array; this model's are in a dict")
        self.reader = reader_for(model) if settings.value_fn is None and self.needs_value else None
        if self.reader and settings.network == "target" and not self.reader.clock:
            raise BadInput(f"{type(model).__name__} has no target network: expected network='online'")
        if self.needs_target:
            _check_for_auto(model, self)
        seed = (model.seed or 0) if settings.seed is None else settings.seed
        self._rng = stream(seed, "sb3 potential", model.num_timesteps)
        if not self.scale.depends_on_state:
            _check_eta(self, model.num_timesteps)

    @torch.no_grad()
    def value(
        self, model: Any, obs: Observations, count: int, *lstm_states: Any, network: str = "", rng: Any = None
    ) -> Tensor:
        """Return V of `count` states by the current networks, (count,); zeros if the potential does not use V."""
        if self.settings.value_fn is not None and self.needs_value:
            return _as_values(self.settings.value_fn(model, obs), count)
        if self.reader is None:
            return torch.zeros(count, device=model.device)
        return self.reader.read(model, obs, network or self.settings.network, rng or self._rng, *lstm_states)

    def states(self, model: Any, obs: Observations, next_obs: Observations) -> dict[str, Any]:
        """Return the observations for potentials and eta(s): a discrete state is a number, not a row of one."""
        if isinstance(model.observation_space, spaces.Discrete):
            obs, next_obs = obs.reshape(-1), next_obs.reshape(-1)
        return {"state": obs, "next_state": next_obs}

    def watch_model(self, model: Any, obs: Observations, size: int) -> None:
        """Show V to "auto" if a period of the target network is over; the first batches become the probes."""
        wanted = self.scale.probes
        now, period = self.reader.clock(model, self.updates * size / model.batch_size)  # type: ignore[misc, union-attr]
        few = map_obs(lambda part: part[:wanted].clone(), obs) if self._size < wanted else obs
        # The same random draws at every look: sampling must not look like movement.
        value = lambda part: self.value(model, part, wanted, rng=stream(0, "sb3 probes"))  # noqa: E731
        self.watch(few, min(size, wanted), value, now, period)

    def log(self, model: Any) -> None:
        """Put eta, V and the shaping of the batches since the last log into the model's own logger."""
        self.step = model.num_timesteps
        metrics = self.metrics()
        if self.last_value is not None:
            metrics["value"] = self.last_value.mean()
        for name, number in metrics.items():
            model.logger.record(f"shaping/{name}", float(number))
        episodes = [info for info in model.ep_info_buffer or () if "r" in info]
        if episodes:
            raw, length = (float(np.mean([info[name] for info in episodes])) for name in ("r", "l"))
            bonus = float(metrics["mean"]) * length / getattr(vars(model).get("replay_buffer"), "n_steps", 1)
            if model._vec_normalize_env is not None:
                bonus = float(model._vec_normalize_env.unnormalize_reward(np.array(bonus)))
            model.logger.record("shaping/ep_sum", bonus)
            model.logger.record("shaping/ep_shaped_rew_mean", raw + bonus)

    def state(self) -> dict[str, Any]:
        """Return what a continued training needs besides the settings, as plain data."""
        watching = {"size": self._size, "looks": self._looks, "next_look": self._next_look}
        probes = [encode(part) for part in self._watched]
        return {**super().state(), "stream": self._rng.bit_generator.state, **watching, "probes": probes}

    def load_state(self, state: dict[str, Any], *, scale: bool = True, device: Any = "cpu") -> None:
        """Continue from where `state` was taken; a new scale starts from scratch."""
        self._rng.bit_generator.state = state["stream"]
        if not scale:
            return
        super().load_state({"step": 0, "updates": 0, **state})
        if state.get("probes"):  # go on watching the same observations
            Shaper.load_state(self, state["scale"])
            self._watched = [decode(part, device) for part in state["probes"]]
            self._size, self._looks, self._next_look = (state[name] for name in ("size", "looks", "next_look"))


def encode(obs: Any) -> Any:
    """Return a tensor, or a dict of tensors, as text that JSON can hold."""
    if isinstance(obs, dict):
        return {name: encode(part) for name, part in obs.items()}
    file = io.BytesIO()
    np.save(file, obs.cpu().numpy(), allow_pickle=False)
    return base64.b64encode(zlib.compress(file.getvalue())).decode()


def decode(text: Any, device: Any) -> Any:
    """Return the tensors that `encode` was given."""
    if isinstance(text, dict):
        return {name: decode(part, device) for name, part in text.items()}
    array = np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False)
    return torch.from_numpy(array).to(device)


def _check_eta(shaper: ModelShaper, step: int) -> None:
    """Refuse an eta that is not a number, and print a notice if it is unusual."""
    try:
        eta = float(shaper.scale.at(shaper.memory, step))
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise BadInput(f"eta is {shaper.settings.eta!r}; expected one number at every step ({error})") from None
    if eta < 0 or eta > UNUSUAL:
        say(f"eta is {eta:g}: negative and very large values usually make training worse; 0.5 to 5 is common")


def _check_for_auto(model: Any, shaper: ModelShaper) -> None:
    """Refuse "auto" where it cannot work."""
    settings = shaper.settings
    if settings.network != "online" or settings.terminal != "zero" or settings.value_fn or settings.potential:
        needs = "network, terminal, value_fn and potential as by default"
    elif not (shaper.reader and shaper.reader.clock):
        needs = f"a target network, and {type(model).__name__} has none"
    elif model.tau == 0:
        needs = "a target network that moves, and tau is 0"
    else:
        return
    raise BadInput(f"eta={settings.eta!r} needs {needs}: choose a number, such as eta=0.5")


def _as_values(values: Any, count: int) -> Tensor:
    """Return what a `value_fn` returned as (count,)."""
    if not isinstance(values, (Tensor, np.ndarray)) or tuple(values.shape) not in ((count,), (count, 1)):
        found = f"a {type(values).__name__} of shape {tuple(getattr(values, 'shape', ()))}"
        raise BadInput(f"value_fn returned {found}; expected one value per observation, ({count},)")
    return torch.as_tensor(values).reshape(-1)
