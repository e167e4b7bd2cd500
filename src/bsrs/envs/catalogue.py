"""From a name to running envs: which kind a name stands for, and what is said when there is none."""

import importlib.util
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from bsrs.envs.actions import Actions
from bsrs.envs.given import given_env, module_env, split_settings
from bsrs.envs.observations import Observations
from bsrs.envs.single import GymSingle, Single
from bsrs.envs.spec import EnvSpec, Kind
from bsrs.envs.vector import Envs
from bsrs.errors import BadInput, MissingExtra, in_short, nearest, optional

_ATARI = re.compile(r"ALE/\w+-v5|\w+NoFrameskip-v[04]")
_MINATAR = {
    f"MinAtar/{game.title().replace('_', '')}-v{version}": (game, version == 1)
    for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
    for version in (0, 1)
}
_EXTRA_OF = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "mujoco"}

Built = tuple[EnvSpec, Single]


def make(env: str, n: int, seed: int, *, training: bool, render: bool = False) -> Envs:
    """Make n copies of `env`. The same seed gives the same episodes.

    `training` matters only on Atari: a lost life ends the episode and rewards are clipped to their sign. `render` is
    required for pictures.
    """
    if n < 1:
        raise BadInput(f"the number of envs is {n}; expected at least 1")
    build = _builder(env, training, render)
    built = [build() for _ in range(n)]
    return Envs(built[0][0], [single for _, single in built], seed)


def known_envs() -> list[str]:
    """Return all names that `make` accepts with the installed packages."""
    _register_atari()
    names = [name for name, spec in gymnasium.registry.items() if not _is_atari(spec) or _ATARI.fullmatch(name)]
    return sorted([*names, *_MINATAR])


def _builder(env: str, training: bool, render: bool) -> Callable[[], Built]:
    if env in _MINATAR:
        return lambda: _minatar(env)
    if maker := given_env(env):
        return lambda: _gym(env, maker())
    name, settings = split_settings(env)
    if ":" in name:
        found = module_env(name)
        if not isinstance(found, str):
            return lambda: _gym(env, _built(env, partial(found, **settings), render))
        name = found
    if _ATARI.fullmatch(name) and not _register_atari():
        raise MissingExtra(f"env {name!r}", "atari")
    if name not in gymnasium.registry:
        _register_atari()
    if name not in gymnasium.registry:
        raise BadInput(f"unknown env {name!r}: {_hint(name)}")
    if gymnasium.registry[name].entry_point is None:
        raise BadInput(f"env {name!r} makes many copies at once only; expected an id that makes a single env")
    if _is_atari(gymnasium.registry[name]):
        if settings:
            raise BadInput(f"env {env!r} is an Atari game, whose settings are those of the paper; expected {name}")
        return lambda: _atari(name, training)
    return lambda: _gym(env, _registered(env, name, settings, render))


# ids -> the package that has them, and the module that registers them. Only what people use with Gymnasium.
_PACKAGES = {
    r"MiniGrid-|BabyAI-": ("minigrid", "minigrid"),
    r"(highway|merge|roundabout|parking|intersection|racetrack|exit|u-turn|two-way|lane-keeping)-": (
        "highway-env", "highway_env",
    ),
    r"Meta-World/": ("metaworld", "metaworld"),
    r"Fetch|HandReach|HandManipulate|PointMaze|AntMaze|Adroit|FrankaKitchen": (
        "gymnasium-robotics", "gymnasium_robotics",
    ),
    r"popgym-": ("popgym", "popgym"),
    r"FlappyBird-": ("flappy-bird-gymnasium", "flappy_bird_gymnasium"),
    r"mo-|deep-sea-treasure|resource-gathering|minecart-|fruit-tree|water-reservoir|four-room": (
        "mo-gymnasium", "mo_gymnasium",
    ),
    r"Panda": ("panda-gym", "panda_gym"),
    r"MiniWorld-": ("miniworld", "miniworld"),
    r"gym_pusht/": ("gym-pusht", "gym_pusht"),
    r"PyFlyt/": ("PyFlyt", "PyFlyt.gym_envs"),
    r"Vizdoom": ("vizdoom", "vizdoom.gymnasium_wrapper"),
    r"dm_control/": ("shimmy[dm-control]", "shimmy"),
    r"bsuite/": ("shimmy[bsuite]", "shimmy"),
    r"stocks-v|forex-v": ("gym-anytrading", "gym_anytrading"),
    r"TradingEnv": ("gym-trading-env", "gym_trading_env"),
    r"rware-": ("rware", "rware"),
    r"Foraging-": ("lbforaging", "lbforaging"),
    r"Safety": ("safety-gymnasium", "safety_gymnasium"),
    r"tetris_gymnasium/": ("tetris-gymnasium", "tetris_gymnasium.envs.tetris"),
}  # fmt: skip


def _hint(name: str) -> str:
    """What to do about an id that nobody has registered."""
    for ids, (package, module) in _PACKAGES.items():
        if re.match(ids, name):
            installed = importlib.util.find_spec(module.partition(".")[0]) is not None
            first = (
                "prefix it with its module" if installed else f"pip install {package}, and prefix it with its module"
            )
            return f"{first}: {module}:{name}"
    near = nearest(name, known_envs(), cutoff=0.75)
    return f"did you mean {near}?" if near else "expected an id of Gymnasium's, or module:Id for your own"


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


def _gym(env: str, made: Any) -> Built:
    if not isinstance(made, gymnasium.Env):
        what = f"{type(made).__module__}.{type(made).__qualname__}"
        raise BadInput(f"env {env!r} made a {what}; expected a gymnasium.Env: the package shimmy converts envs of gym")
    spaces = {name: getattr(made, name, None) for name in ("observation_space", "action_space")}
    if missing := [name for name, space in spaces.items() if not isinstance(space, gymnasium.Space)]:
        raise BadInput(f"env {env!r} has no {missing[0]}; expected one of gymnasium.spaces, set in its __init__")
    observations, actions = Observations.of(env, spaces["observation_space"]), Actions.of(env, spaces["action_space"])
    kind: Kind = "image" if len(observations.shape) == 3 else "gym"
    first = int(actions.space.start) if isinstance(actions.space, Discrete) else 0
    spec = _spec(
        kind, observations, n_actions=actions.n, action_low=actions.low, action_high=actions.high, first_action=first,
        actions=actions,
    )  # fmt: skip
    return spec, GymSingle(made, observations, actions)


def _channels_first(env: str, shape: tuple[int, int, int], brightest: int) -> Observations:
    return Observations(env, Box(0, brightest, shape, np.uint8), shape, "uint8", float(brightest), (0, 1, 2))


def _spec(kind: Kind, read: Observations, **fields: Any) -> EnvSpec:
    return EnvSpec(read.env, kind, read.shape, read.dtype, read.scale, observations=read, **fields)


def _registered(env: str, name: str, settings: dict[str, Any], render: bool) -> Any:
    """An env of Gymnasium's registry."""
    try:
        with warnings.catch_warnings():
            # The paper's envs have newer versions; which one is wanted is the user's choice.
            warnings.filterwarnings("ignore", message=".*is out of date", category=DeprecationWarning)
            return _built(env, partial(gymnasium.make, name, disable_env_checker=True, **settings), render)
    except gymnasium.error.DependencyNotInstalled as error:
        module = str(gymnasium.registry[name].entry_point)
        extra = next((extra for start, extra in _EXTRA_OF.items() if module.startswith(start)), None)
        if extra is None:
            raise BadInput(f"env {env!r} cannot be made: {error}") from None
        raise MissingExtra(f"env {env!r}", extra) from None


def _built(env: str, make: Callable[..., Any], render: bool) -> Any:
    """Make the env, with rendering where it is wanted and the env supports it."""
    if render:
        with suppress(TypeError):
            return make(render_mode="rgb_array")
    try:
        return make()
    except (BadInput, gymnasium.error.DependencyNotInstalled):
        raise
    except gymnasium.error.Error as error:
        raise BadInput(f"env {env!r} cannot be made: {error}") from None
    except (Exception, SystemExit) as error:  # whatever an env may do
        hint = "" if isinstance(error, ModuleNotFoundError) else f"; {_OTHER_SETTINGS}"
        raise BadInput(f"env {env!r} cannot be made: {in_short(error)}{hint}") from error


_OTHER_SETTINGS = (
    "--env-kwargs KEY=VALUE gives it other settings, and a function of your own, MODULE:NAME, anything else"
)
