"""What a run says about itself, as data: reading it needs no config class, so options can come and go.

    RunSettings.read(algorithm, fields)     from a run folder, whichever version wrote it
    RunSettings.of(config)                  from today's config
    settings.as_config()                    today's config, to load the run's model

Fields that every run has are typed attributes. The others are kept as written and are attributes too.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bsrs.config.algorithms import find_algorithm
from bsrs.config.base import from_dict, to_dict, typed
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput

# Options that not every version has, with the value that means the same as not having the option. A new option is added
# here when it gets a default that keeps the old behaviour; a retired one stays.
ABSENT: Mapping[str, Any] = {
    "n_step": 1, "network": "", "actor": "", "critic": "", "activation": "relu", "layer_norm": False,
    # Retired in version 0.2.
    "parts": "cab", "control": "none", "comparator": "none", "comparator_alpha": 0.9, "random_period": 1_000,
    "dueling": False, "atari_network": "nature",
}  # fmt: skip


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run. Two are equal if they mean the same, whichever versions wrote them."""

    algorithm: str
    env: str = field(compare=False)
    eta: float | str = field(compare=False)
    seed: int = field(compare=False)
    steps: int = field(compare=False)
    eval_every: int = field(compare=False)
    fields: Mapping[str, Any] = field(compare=False, repr=False)
    """Every field as it was written."""
    identity: str = field(init=False)
    """Twelve hex digits that stand for the algorithm and every setting."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", identity_of([self.algorithm, self.meaning]))

    @classmethod
    def read(cls, algorithm: str, fields: Mapping[str, Any], where: str = "config") -> "RunSettings":
        """Take the settings from plain data. A missing or mistyped field raises BadInput."""
        plain = {name: _as_tuple(value) for name, value in fields.items()}
        known = {name: _known(plain, name, where) for name in _TYPES}
        return cls(algorithm, **known, fields={**plain, **known})

    @classmethod
    def of(cls, config: TrainingConfig) -> "RunSettings":
        """Take the settings from a config."""
        return cls.read(config.algorithm, to_dict(config))

    @cached_property
    def meaning(self) -> dict[str, Any]:
        """The fields without those that say the same as their absence."""
        found = {name: v for name, v in self.fields.items() if name not in ABSENT or v != ABSENT[name]}
        if found.get("potential") in ("bootstrapped", "rescaled"):  # of DQN in version 0.1
            potential = found.pop("potential")
            found |= {"control": potential} if potential == "rescaled" else {}
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "fields":
            raise AttributeError(name)
        for found in (self.meaning, ABSENT, self.fields):
            if name in found:
                return found[name]
        raise AttributeError(f"the run has no setting {name!r}")

    def replaced(self, **changes: Any) -> "RunSettings":
        """Return the same settings with these changes."""
        return RunSettings.read(self.algorithm, {**self.fields, **changes})

    def as_config(self, **changes: Any) -> TrainingConfig:
        """Return today's config with the same meaning. BadInput if the run has an option that is no longer there."""
        fields = {**self.meaning, **changes}
        if fields.pop("dueling", False):
            fields["network"] = "dueling"
        if "atari_network" in fields:
            fields["network"] = fields.pop("atari_network")
        try:
            return from_dict(find_algorithm(self.algorithm).config_class, fields, f"the run with seed {self.seed}")
        except BadInput as error:
            raise BadInput(f"{error}; a run of another version of bsrs may need that version") from None


def folder_name(settings: RunSettings | TrainingConfig) -> str:
    """Return a readable name for the run folder that no other settings share."""
    if not isinstance(settings, RunSettings):
        settings = RunSettings.of(settings)
    env = re.sub(r"[^\w.,=+-]+", "-", settings.env)[:80].rstrip("-")
    eta = f"{settings.eta:g}" if isinstance(settings.eta, float) else re.sub(r"[^\w.,=+-]+", "-", settings.eta)[:60]
    return f"{settings.algorithm}-{env}-eta{eta}-seed{settings.seed}-{settings.identity}"


def identity_of(content: Any) -> str:
    """Twelve hex digits that stand for some plain data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def identity_in_format_1(algorithm: str, fields: Mapping[str, Any]) -> str:
    """The identity that version 0.1 wrote: by the config's class, without the options that were new then."""
    was_new = ("parts", "control", "comparator", "comparator_alpha", "n_step", "dueling")
    counted = {name: value for name, value in fields.items() if name not in was_new or value != ABSENT[name]}
    name = "TableRunConfig" if algorithm == "tabular" else f"{algorithm.upper()}Config"
    return identity_of([name, counted])


_TYPES = {"env": str, "eta": float | str, "seed": int, "steps": int, "eval_every": int}


def _known(fields: Mapping[str, Any], name: str, where: str) -> Any:
    """A field that every run has, with its type and size checked."""
    if name not in fields:
        raise BadInput(f"{where}: field {name!r} is missing")
    value = typed(fields[name], _TYPES[name], f"{where}: field {name!r}")
    if isinstance(value, int) and not 0 <= value < 2**63:
        raise BadInput(f"{where}: field {name!r} is {repr(value)[:80]}; expected a number from 0 to 2**63 - 1")
    if isinstance(value, str) and not (value.isprintable() and len(value) <= 200):
        raise BadInput(f"{where}: field {name!r} is {repr(value)[:80]}; expected up to 200 printable characters")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value
