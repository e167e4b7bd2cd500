"""Envs that are no id of Gymnasium's registry: modules, objects and functions of the user's own."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium

from bsrs.errors import BadInput, unknown
from bsrs.naming import import_from_here, is_literal, read_arguments

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


def with_settings(env: str | Env | Maker, settings: Mapping[str, Any]) -> str | Env | Maker:
    """The env's name with settings that its maker takes: `Id(key=value)`."""
    if not settings:
        return env
    if not isinstance(env, str):
        raise BadInput("env_kwargs go with the id of an env; expected them in the function that makes yours")
    if env.endswith(")"):
        raise BadInput(f"env {env!r} has settings already; expected them there, or as env_kwargs")
    for key, value in settings.items():
        if not key.isidentifier() or not is_literal(value):
            raise BadInput(
                f"env_kwargs has {key}={str(value)[:40]}; expected names with numbers, text or lists of them"
            )
    return f"{env}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def split_settings(env: str) -> tuple[str, dict[str, Any]]:
    """The way back from `with_settings`."""
    name, bracket, rest = env.partition("(")
    if not bracket:
        return env, {}
    try:
        return name, read_arguments(bracket + rest)
    except (ValueError, SyntaxError):
        raise BadInput(f"env {env[:80]!r} cannot be read; expected settings as in Id(key=1, other='text')") from None


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
    found = getattr(module, name, None) if name else None
    if callable(found):
        return found  # type: ignore[no-any-return]
    own = sorted(id for id, spec in gymnasium.registry.items() if _belongs(spec.entry_point, module_name))
    classes = [key for key, part in vars(module).items() if isinstance(part, type) and issubclass(part, gymnasium.Env)]
    own += sorted(key for key in classes if vars(module)[key].__module__ == module_name)
    if not own:
        raise BadInput(
            f"the module {module_name!r} has no env {name!r}: it calls no gymnasium.register(id={name!r}, ...). If a"
            " function of its does, call that in a module of yours and name yours; what it registers with the older"
            " gym, shimmy's GymV21Environment-v0 converts"
        )
    if not name:
        raise BadInput(f"which env of the module {module_name!r}? It has {', '.join(own)}")
    raise unknown(f"env of the module {module_name!r}", name, own)


def _belongs(entry_point: Any, module: str) -> bool:
    """Whether an env is made by that module or package."""
    where = entry_point.partition(":")[0] if isinstance(entry_point, str) else str(entry_point.__module__)
    return f"{where}.".startswith(f"{module}.")


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
