"""DQN in env steps per second: Stable-Baselines3's without shaping, ours without and with it.

Same env, same hyperparameters, same threads, all of them learning from the start (past the random phase).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast

from bsrs.bench.timing import Result, Runner, Tell, median_ratio, race, silent, time_shares
from bsrs.config.algorithms import preset
from bsrs.config.dqn import DQNConfig
from bsrs.errors import MissingExtra

CASES = {"Pong": ("atari", "PongNoFrameskip-v4"), "CartPole": ("classic", "CartPole-v1")}
ETAS = (0.0, 2.0, "auto")
CONSTANT = "bsrs eta=2"
WARM_UP = {"Pong": 200, "CartPole": 600}
STEPS = {"Pong": 200, "CartPole": 2_000}
QUICK_STEPS = {"Pong": 80, "CartPole": 200}


def bench(*, quick: bool, threads: int, cases: tuple[str, ...] = tuple(CASES), tell: Tell = silent) -> dict[str, Any]:
    """Rows for the table, and for our agents the shares of time."""
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    for case in cases:
        steps = QUICK_STEPS if quick else STEPS
        results = _race(case, threads, steps[case], rounds=3 if quick else 15, tell=tell)
        rows += [_row(case, name, result, results) for name, result in results.items()]
        ours = {name: result for name, result in results.items() if name != "sb3"}
        shares += [{"case": case, "eta": _eta(name), **result.report["shares"]} for name, result in ours.items()]
    return {"rows": rows, "shares": shares}


def _race(case: str, threads: int, steps: int, rounds: int, tell: Tell) -> dict[str, Result]:
    settings = {"case": case, "threads": threads}
    builds: dict[str, tuple[Callable[..., Runner], dict[str, Any]]] = {"sb3": (Sb3, settings)}
    builds |= {f"bsrs eta={_text(eta)}": (Ours, {**settings, "eta": eta}) for eta in ETAS}
    return race(builds, steps=steps, rounds=rounds, warm_up=WARM_UP[case], tell=tell)


def _row(case: str, name: str, result: Result, results: Mapping[str, Result]) -> dict[str, Any]:
    return {
        "case": case,
        "agent": name.split()[0],
        "eta": _eta(name),
        "steps_per_s": round(result.steps_per_s, 1),
        "ratio_to_sb3": round(median_ratio(result, results["sb3"]), 3),
        "ratio_to_eta_2": round(median_ratio(result, results[CONSTANT]), 3),
        "peak_mb": round(result.report["peak_mb"] + result.report["untouched_mb"]),
    }


def _text(eta: float | str) -> str:
    return eta if isinstance(eta, str) else f"{eta:g}"


def _eta(name: str) -> str:
    return "0" if name == "sb3" else name.partition("=")[2]


def config_of(case: str, eta: float | str) -> DQNConfig:
    """The preset, learning from the first moment with the last epsilon."""
    kind, env = CASES[case]
    config = cast(DQNConfig, preset("dqn", kind, env=env, eta=eta))
    final = config.exploration_final_eps
    return dataclasses.replace(config, learning_starts=100, exploration_initial_eps=final, exploration_fraction=0.0)


class Ours:
    """Our agent in our loop."""

    def __init__(self, case: str, threads: int, eta: float | str) -> None:
        import torch

        from bsrs.run import Records, make_agent
        from bsrs.train import Loop

        torch.set_num_threads(threads)
        config = config_of(case, eta)
        self._agent: Any = make_agent([config])
        self._loop = Loop(self._agent, config, [config.seed], [Records()])
        self._loop.start()
        self._block = 0

    def run(self, steps: int) -> None:
        self._block = steps
        for _ in range(steps):
            self._loop.advance()

    def report(self) -> dict[str, Any]:
        replay = self._agent.population.replays[0]
        return {
            "untouched_mb": _untouched_mb(replay.nbytes, len(replay), replay.capacity),
            "replay_mb": replay.nbytes / 1e6,
            "shares": self._shares(),
        }

    def _shares(self) -> dict[str, float]:
        """One more block, with a stopwatch on each part."""
        parts = {
            "env": (self._loop.members[0].envs, "step"),
            "acting": (self._agent, "act"),
            "sampling": (self._agent, "sample"),
            "update": (self._agent, "gradient_step"),
        }
        return time_shares(lambda: self.run(self._block), parts)


_SAME_NAME = (
    "learning_rate",
    "buffer_size",
    "learning_starts",
    "batch_size",
    "gamma",
    "train_freq",
    "gradient_steps",
    "target_update_interval",
    "max_grad_norm",
    "exploration_initial_eps",
    "exploration_final_eps",
)


class Sb3:
    """Stable-Baselines3's DQN with our settings in its words."""

    def __init__(self, case: str, threads: int) -> None:
        try:
            from stable_baselines3 import DQN
        except ImportError:
            raise MissingExtra("bsrs bench dqn", "sb3") from None
        import torch

        torch.set_num_threads(threads)
        config = config_of(case, 0.0)
        self._model = DQN(
            "CnnPolicy" if case == "Pong" else "MlpPolicy",
            _sb3_env(case, config.env),
            **{name: getattr(config, name) for name in _SAME_NAME},
            exploration_fraction=1e-9,
            policy_kwargs={} if case == "Pong" else {"net_arch": list(config.hidden)},
            device="cpu",
            seed=0,
        )

    def run(self, steps: int) -> None:
        self._model.learn(steps, reset_num_timesteps=False)

    def report(self) -> dict[str, Any]:
        buffer = self._model.replay_buffer
        arrays = (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones)
        nbytes = sum(array.nbytes for array in arrays)
        filled = buffer.buffer_size if buffer.full else buffer.pos
        return {"untouched_mb": _untouched_mb(nbytes, filled, buffer.buffer_size), "replay_mb": nbytes / 1e6}


def _sb3_env(case: str, env: str) -> Any:
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    if case == "Pong":
        import ale_py  # noqa: F401  registers the games

        return VecFrameStack(make_atari_env(env, n_envs=1, seed=0), n_stack=4)
    return make_vec_env(env, n_envs=1, seed=0)


def _untouched_mb(nbytes: int, filled: int, capacity: int) -> float:
    """What the replay will still take once it is full: the system gives memory out when it is first written."""
    return nbytes * (1 - filled / capacity) / 1e6
