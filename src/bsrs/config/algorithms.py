"""The registry of algorithms: a row each, from which the command line, the presets, sweeps and Python classes come.

Rows of the package name their classes as text, so that listing them imports nothing. Others come from outside:
`bsrs.register` adds a row when its module is imported, and such modules are found by the entry points of the group
`bsrs.algorithms` or named in BSRS_PLUGINS, which `bsrs --plugin MODULE` sets. See docs/adding-an-algorithm.md.
"""

import dataclasses
import importlib.metadata
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.resources import files
from pkgutil import resolve_name
from typing import Any, TypeVar

from bsrs.config.base import from_dict
from bsrs.config.training import TrainingConfig
from bsrs.errors import BadInput, unknown
from bsrs.naming import import_from_here

PLUGINS = "BSRS_PLUGINS"
GROUP = "bsrs.algorithms"
Value = TypeVar("Value")
AgentClass = TypeVar("AgentClass", bound=Callable[..., Any])


@dataclass(frozen=True)
class Algorithm:
    """One row of the registry. Classes and functions are given themselves, or as `module:name`."""

    name: str
    summary: str
    """What it is and where it is used, for the command line's help."""
    config: type[TrainingConfig] | str
    agent: Callable[..., Any] | str | None
    """Called with the members' configs, the env's spec, `device` and `shaping`; None without Gymnasium envs."""
    suits: Mapping[str, str]
    """Pattern of kind:env -> the preset that suits it; the first that matches counts."""
    own_presets: Mapping[str, Mapping[str, Any]] | None = None
    """Name -> fields; None reads the file in `presets/` with the algorithm's name."""
    member_fields: frozenset[str] = frozenset({"eta", "seed"})
    """The fields in which the members of one population may differ."""
    run: str = "bsrs.run:run"
    """Trains runs: a function of configs, folders and options, as `module:name`."""
    populations: Mapping[str, int] = field(default_factory=lambda: {"large:*": 1, "*": 16})
    """Pattern of kind:env -> members beyond which a core does not get faster; kind is `large` for large images."""

    @property
    def config_class(self) -> type[TrainingConfig]:
        found: type[TrainingConfig] = resolve_name(self.config) if isinstance(self.config, str) else self.config
        return found

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        if self.own_presets is not None:
            return self.own_presets
        return tomllib.loads(files("bsrs.config").joinpath("presets", f"{self.name}.toml").read_text())

    def make_agent(self, configs: Iterable[TrainingConfig], *arguments: Any, **options: Any) -> Any:
        """An agent with a member for each config."""
        configs = list(configs)
        values = [dataclasses.asdict(config) for config in configs]
        different = {name for each in values for name in each if each[name] != values[0].get(name)} - self.member_fields
        if different:
            *most, last = sorted(self.member_fields)
            allowed = f"{', '.join(most)} and {last}"
            raise BadInput(f"the members of one {self.name} agent differ in {min(different)}; expected {allowed} only")
        agent: Any = resolve_name(self.agent) if isinstance(self.agent, str) else self.agent
        return agent(configs, *arguments, **options)


def _agent(name: str, summary: str, suits: Mapping[str, str], **how: Any) -> Algorithm:
    """One of the package's own agents, whose classes go by its name."""
    config, agent = f"bsrs.config.agents:{name.upper()}Config", f"bsrs.agents.{name}:{name.upper()}Agent"
    return Algorithm(name, summary, config, agent, suits, **how)


_SCREENS = {"atari:*": "atari", "minatar:*": "minatar", "image:*": "image"}
_DISCRETE = {**_SCREENS, "gym:MountainCar-*": "mountain-car", "*": "classic"}
_ROBOTS = "Ant HalfCheetah Hopper Humanoid HumanoidStandup Pusher Reacher Swimmer Walker2d".split()
_CONTINUOUS = {
    "gym:Pendulum-*": "pendulum", "image:*": "image", **{f"gym:{name}-*": "mujoco" for name in _ROBOTS}, "*": "small",
}  # fmt: skip

_ROWS: dict[str, Algorithm] = {
    "dqn": _agent("dqn", "DQN: Atari, MinAtar, classic control, images", _DISCRETE),
    "sac": _agent("sac", "SAC: Pendulum, MuJoCo", _CONTINUOUS, populations={"*": 4}),
    "td3": _agent("td3", "TD3: Pendulum, MuJoCo", _CONTINUOUS, populations={"*": 4}),
    "tabular": Algorithm(
        "tabular",
        "exact value iteration on tabular MDPs",
        "bsrs.config.tabular:TableRunConfig",
        agent=None,
        suits={"*": "exact"},
        run="bsrs.sweep.tables:solve_runs",
        populations={"*": 1},
    ),
}


def register(
    config: type[TrainingConfig],
    *,
    summary: str = "",
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    suits: Mapping[str, str] | None = None,
    member_fields: Iterable[str] = ("eta", "seed"),
    like: str = "",
) -> Callable[[AgentClass], AgentClass]:
    """Register an agent class under the name in `config.algorithm`. Use it as a decorator.

    Args:
        config: Frozen dataclass with the settings.
        summary: One line for the command line's help.
        presets: Map from preset names to fields. By default there is one preset, "default", with the config's defaults.
        suits: Map from patterns of kind:env, such as "gym:CartPole-*", to presets. By default the first preset suits
            every env.
        member_fields: Fields that may differ between the members of a population. Keep "eta" and "seed" if the agent
            trains any number of members.
        like: Another algorithm whose presets and patterns are used if none are given.
    """
    if like:
        presets, suits = presets or find_algorithm(like).presets, suits or find_algorithm(like).suits
    presets = presets or {"default": {}}

    def add(agent: AgentClass) -> AgentClass:
        name = config.algorithm
        known = _ROWS.get(name)
        if known and (isinstance(known.config, str) or known.config.__module__ != config.__module__):
            raise BadInput(f"the algorithm {name!r} is registered already; choose another name")
        _ROWS[name] = Algorithm(
            name,
            summary or (config.__doc__ or name).strip().splitlines()[0],
            config,
            agent,
            suits or {"*": next(iter(presets))},
            presets,
            frozenset(member_fields),
        )
        return agent

    return add


def algorithms() -> list[Algorithm]:
    """Every algorithm by name, those of plugins among them."""
    _import_plugins()
    return sorted(_ROWS.values(), key=lambda row: row.name)


def find_algorithm(name: str) -> Algorithm:
    if name not in _ROWS:
        _import_plugins()
    if name not in _ROWS:
        hint = "" if os.environ.get(PLUGINS) else " (one of your own needs --plugin MODULE)"
        raise BadInput(f"{unknown('algorithm', name, _ROWS)}{hint}")
    return _ROWS[name]


def preset(algorithm: str, name: str, /, **fields: Any) -> TrainingConfig:
    """The config of a preset, with `fields` (at least `env`) in place of what it says."""
    row = find_algorithm(algorithm)
    if name not in row.presets:
        raise unknown(f"{algorithm} preset", name, row.presets)
    return from_dict(row.config_class, {**row.presets[name], **fields}, f"{algorithm} preset {name}")


def use_plugin(module: str) -> None:
    """Take the algorithms that `module` registers, in this process and in the workers that it starts."""
    import_from_here(module, "to be a plugin")
    os.environ[PLUGINS] = ",".join(filter(None, (os.environ.get(PLUGINS), module)))


def _import_plugins() -> None:
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            raise BadInput(f"the installed plugin {point.name!r} cannot be imported: {error}") from error
    for name in filter(None, os.environ.get(PLUGINS, "").split(",")):
        import_from_here(name, "to be a plugin")


def first_match(table: Mapping[str, Value], kind: str, env: str) -> Value:
    """Return the first value of a table whose pattern matches kind:env, for example of `suits`."""
    return next(value for pattern, value in table.items() if fnmatch(f"{kind}:{env}", pattern))
