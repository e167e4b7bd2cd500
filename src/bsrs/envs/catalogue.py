"""From a name to running envs: which kind a name stands for, and what is said when there is none."""

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from bsrs.envs.given import given_env, module_env
from bsrs.envs.observations import Observations
from bsrs.envs.single import GymSingle, Single
from bsrs.envs.spec import EnvSpec, Kind
from bsrs.envs.vector import Envs
from bsrs.errors import BadInput, MissingExtra, optional

_ATARI = re.compile(r"ALE/\w+-v5|\w+NoFrameskip-v[04]")
_MINATAR = {
    f"MinAtar/{game.title().replace('_', '')}-v{version}": (game, version == 1)
    for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
    for version in (0, 1)
}
_EXTRA_OF = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "mujoco"}

Built = tuple[EnvSpec, Single]


def make(env: str, n: int, seed: int, *, training: bool, render: bool = False) -> Envs:
    """n copies of `env`. Two calls with one seed give the same episodes, two seeds different ones.

    `training` matters to Atari only: there a lost life ends an episode and rewards are clipped to their sign.
    `render` is asked for where pictures will be.
    """
    if n < 1:
        raise BadInput(f"the number of envs is {n}; expected at least 1")
    build = _builder(env, training, render)
    built = [build() for _ in range(n)]
    return Envs(built[0][0], [single for _, single in built], seed)


def known_envs() -> list[str]:
    """Every name that `make` takes here, with the packages that are installed."""
    _register_atari()
    names = [name for name, spec in gymnasium.registry.items() if not _is_atari(spec) or _ATARI.fullmatch(name)]
    return sorted([*names, *_MINATAR])


def _builder(env: str, training: bool, render: bool) -> Callable[[], Built]:
    if env in _MINATAR:
        return lambda: _minatar(env)
    if maker := given_env(env):
        return lambda: _gym(env, maker())
    if ":" in env:
        found = module_env(env)
        return lambda: _gym(env, _made(found, render) if isinstance(found, str) else _shown(found, render))
    if _ATARI.fullmatch(env) and not _register_atari():
        raise MissingExtra(f"env {env!r}", "atari")
    if env not in gymnasium.registry:
        _register_atari()
    if env not in gymnasium.registry:
        near = get_close_matches(env, known_envs(), n=3, cutoff=0.75)
        hint = "expected an id of Gymnasium's, or module:Id for your own"
        hint = f"did you mean {' or '.join(near)}?" if near else hint
        raise BadInput(f"unknown env {env!r}: {hint}")
    if _is_atari(gymnasium.registry[env]):
        return lambda: _atari(env, training)
    return lambda: _gym(env, _made(env, render))


def _register_atari() -> bool:
    """Importing ale-py adds its games to Gymnasium's registry."""
    try:
        import ale_py  # noqa: F401
    except ImportError:
        return False
    return True


def _is_atari(spec: Any) -> bool:
    return str(spec.entry_point).startswith("ale_py")


def _atari(env: str, training: bool) -> Built:
    from bsrs.envs.atari import SIDE, STACK, AtariSingle

    settings = gymnasium.registry[env].kwargs
    if not _ATARI.fullmatch(env):
        name = env.partition("-")[0]
        raise BadInput(f"env {env!r} skips frames at random; expected {name}NoFrameskip-v4 or ALE/{name}-v5")
    single = AtariSingle(settings["game"], settings["repeat_action_probability"], training)
    images = _channels_first(env, (STACK, SIDE, SIDE), 255)
    return _spec("atari", images, frame_stack=STACK, n_actions=single.n_actions), single


def _minatar(env: str) -> Built:
    single = optional("bsrs.envs.minatar", f"env {env!r}", "atari").MinAtarSingle(*_MINATAR[env])
    images = _channels_first(env, (single.channels, 10, 10), 1)
    return _spec("minatar", images, n_actions=single.n_actions), single


def _gym(env: str, made: gymnasium.Env[Any, Any]) -> Built:
    observations = Observations.of(env, made.observation_space)
    kind: Kind = "image" if len(observations.shape) == 3 else "gym"
    spec = _spec(kind, observations, **_actions(env, made.action_space))
    return spec, GymSingle(made, observations, spec.first_action)


def _channels_first(env: str, shape: tuple[int, int, int], brightest: int) -> Observations:
    return Observations(env, Box(0, brightest, shape, np.uint8), shape, "uint8", float(brightest), (0, 1, 2))


def _spec(kind: Kind, read: Observations, **fields: Any) -> EnvSpec:
    return EnvSpec(read.env, kind, read.shape, read.dtype, read.scale, observations=read, **fields)


def _made(env: str, render: bool) -> gymnasium.Env[Any, Any]:
    try:
        with warnings.catch_warnings():
            # The paper's envs have newer versions; which one is wanted is the user's choice.
            warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
            return _shown(partial(gymnasium.make, env, disable_env_checker=True), render)
    except gymnasium.error.DependencyNotInstalled as error:
        module = str(gymnasium.registry[env].entry_point)
        extra = next((extra for start, extra in _EXTRA_OF.items() if module.startswith(start)), None)
        if extra is None:
            raise BadInput(f"env {env!r} cannot be made: {error}") from None
        raise MissingExtra(f"env {env!r}", extra) from None
    except (gymnasium.error.Error, ImportError) as error:
        raise BadInput(f"env {env!r} cannot be made: {error}") from None


def _shown(make: Callable[..., Any], render: bool) -> Any:
    """The env, one that can be drawn where that is wanted and it has the option, which one's own may lack."""
    if render:
        with suppress(TypeError):
            return make(render_mode="rgb_array")
    return make()


def _actions(env: str, space: Any) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"n_actions": int(space.n), "first_action": int(space.start)}
    if isinstance(space, Box) and len(space.shape) == 1:
        return {"action_low": tuple(map(float, space.low)), "action_high": tuple(map(float, space.high))}
    raise BadInput(f"env {env!r} has the action space {space}; expected discrete actions or a vector of numbers")
