"""Envs that are no id of Gymnasium's registry: modules, objects and functions of the user's own."""

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium

from bsrs.config.algorithms import import_from_here
from bsrs.errors import BadInput, unknown

Env: TypeAlias = gymnasium.Env[Any, Any]
Maker: TypeAlias = Callable[[], Env]
_PREFIX = "python/"

# name -> what was given, and a function that makes copies of it
_given: dict[str, tuple[Any, Maker]] = {}


def env_name(env: str | Env | Maker) -> str:
    """The name by which `bsrs.envs.make` knows `env`: an id, an env object, or a function that makes envs."""
    if isinstance(env, str):
        return env
    for name, (known, _) in _given.items():
        if known is env:
            return name
    if isinstance(env, gymnasium.Env):
        make, example = _copies_of(env), env
    elif callable(env):
        make, example = env, env()
        if not isinstance(example, gymnasium.Env):
            raise BadInput(f"the function given as env made a {type(example).__name__}; expected a gymnasium.Env")
    else:
        raise BadInput(f"env is a {type(env).__name__}; expected an id, a gymnasium.Env or a function that makes one")
    first = name = f"{_PREFIX}{type(example.unwrapped).__name__}"
    for number in range(2, len(_given) + 2):
        name = name if name not in _given else f"{first}-{number}"
    _given[name] = env, make
    return name


def given_env(name: str) -> Maker | None:
    """The function behind a name of `env_name`'s; None for every other name."""
    if not name.startswith(_PREFIX):
        return None
    if name not in _given:
        raise BadInput(
            f"env {name!r} was a Python object, which is not saved: pass it again, as in bsrs.DQN.load(folder, env=...)"
        )
    return _given[name][1]


def module_env(env: str) -> str | Maker:
    """`module:Id` after the import of its module: the id that it registered, or the class or function of that name."""
    module_name, _, name = env.partition(":")
    module = import_from_here(module_name, f"for the env {env!r}")
    if name in gymnasium.registry:
        return name
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    own = []
    for key, spec in gymnasium.registry.items():
        entry = spec.entry_point
        where = entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)
        own += [key] if where == module_name else []
    if not own:
        raise BadInput(
            f"the module {module_name!r} has no env {name!r}: it calls no gymnasium.register(id={name!r}, ...)"
        )
    raise unknown(f"env of the module {module_name!r}", name, own)


def _copies_of(env: Env) -> Maker:
    def make() -> Env:
        try:
            return copy.deepcopy(env)
        except Exception:  # whatever the env holds that cannot be copied
            if env.spec is None:
                what = f"the env {type(env.unwrapped).__name__} cannot be copied"
                raise BadInput(f"{what}; give a function that makes it instead of the object") from None
            again: Env = gymnasium.make(env.spec)
            return again

    return make
