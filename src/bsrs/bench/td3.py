"""TD3 and SAC on Pendulum in env steps per second: Stable-Baselines3's without shaping, ours without and with it.

Same hyperparameters, all of them learning from the first step. Once as one process on all threads, once as two
processes on one thread each, which is how a sweep runs; and populations of several members in one process, where a
step of each member counts as one.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from bsrs.bench.timing import Result, Runner, Tell, median_ratio, race, silent, time_shares
from bsrs.config.actor_critic import ActorCriticConfig
from bsrs.config.algorithms import preset
from bsrs.config.td3 import TD3Config
from bsrs.errors import MissingExtra

WARM_UP = 320  # past the first batches, which are drawn from few transitions


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    algorithm: str
    agent: str
    variant: str
    eta: float | str = 0.0
    members: int = 1

    def __str__(self) -> str:
        return f"{self.algorithm} {self.agent} {self.variant}" + (f" x {self.members}" if self.members > 1 else "")


VARIANTS = (
    Entry("td3", "sb3", "plain"),
    Entry("td3", "bsrs", "plain"),
    Entry("td3", "bsrs", "policy", 2.0),
    Entry("td3", "bsrs", "replay", 2.0),
    Entry("td3", "bsrs", "auto", "auto"),
)
SAC_VARIANTS = tuple(dataclasses.replace(entry, algorithm="sac") for entry in VARIANTS)
POPULATIONS = tuple(Entry("td3", "bsrs", "policy", 2.0, members) for members in (4, 16))


def bench(*, quick: bool, threads: int, tell: Tell = silent) -> dict[str, Any]:
    """Rows for the table, and for our agents the shares of time."""
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    for entries, processes in _contests(quick):
        results = _race(entries, processes, threads if processes == 1 else 1, quick, tell)
        for entry, result in results.items():
            constant = next((one for each, one in results.items() if each.variant == "policy"), None)
            rows.append(_row(entry, processes, result, results[entries[0]], constant))
            if entry.agent == "bsrs" and processes == 1:
                about = {"case": entry.algorithm, "variant": entry.variant, "members": entry.members}
                shares.append({**about, **result.report["shares"]})
    return {"rows": rows, "shares": shares}


def _contests(quick: bool) -> list[tuple[tuple[Entry, ...], int]]:
    """Who runs against whom, and in how many processes each. The first of each is the measure of the others."""
    populations = (VARIANTS[0], VARIANTS[2], *(POPULATIONS[:1] if quick else POPULATIONS))
    contests = [(VARIANTS, 1), (VARIANTS, 2), (populations, 1), (SAC_VARIANTS, 1)]
    return contests if not quick else [contests[0], contests[1], (populations[::2], 1), (SAC_VARIANTS[:3], 1)]


def _race(entries: tuple[Entry, ...], processes: int, threads: int, quick: bool, tell: Tell) -> dict[Entry, Result]:
    builds: dict[str, tuple[Callable[..., Runner], dict[str, Any]]] = {
        str(entry): (
            Sb3 if entry.agent == "sb3" else Ours,
            {"entry": entry, "threads": threads, "processes": processes},
        )
        for entry in entries
    }
    steps, rounds, warm_up = (48, 3, 64) if quick else (208, 11, WARM_UP)  # of whole steps of a population
    results = race(builds, steps=steps, rounds=rounds, warm_up=warm_up, tell=tell)
    return {entry: results[str(entry)] for entry in entries}


def _row(entry: Entry, processes: int, result: Result, sb3: Result, constant: Result | None) -> dict[str, Any]:
    return {
        "case": entry.algorithm,
        "agent": entry.agent,
        "variant": entry.variant,
        "eta": entry.eta,
        "processes": processes,
        "members": entry.members,
        "steps_per_s": round(result.steps_per_s, 1),
        "ratio_to_sb3": round(median_ratio(result, sb3), 3),
        "ratio_to_eta_2": None if constant is None else round(median_ratio(result, constant), 3),
        "matmul_share": round(result.steps_per_s / processes / result.report["matmul_limit"], 3),
        "peak_mb": round(result.report["peak_mb"]),
    }


def config_of(entry: Entry, seed: int = 0) -> ActorCriticConfig:
    """The paper's settings, with the entry's own."""
    potential = "replay" if entry.variant == "replay" else "policy"
    fields = {"potential": potential, "eta": entry.eta, "seed": seed}
    return cast(ActorCriticConfig, preset(entry.algorithm, "pendulum", env="Pendulum-v1", **fields))


# ---- contestants


class Ours:
    """Our agent in our loop."""

    def __init__(self, entry: Entry, threads: int) -> None:
        import torch

        from bsrs.run import Records, make_agent
        from bsrs.train import Loop

        torch.set_num_threads(threads)
        configs = [config_of(entry, seed) for seed in range(entry.members)]
        self._agent = make_agent(configs)
        self._loop = Loop(self._agent, configs[0], range(entry.members), [Records() for _ in configs])
        self._loop.start()
        self._config, self._shaped, self._block = configs[0], entry.eta != 0, 0
        self._members = entry.members

    def run(self, steps: int) -> None:
        self._block = steps
        for _ in range(steps // self._members):
            self._loop.advance()

    def report(self) -> dict[str, Any]:
        limit = matmul_rate() / matmul_operations(self._config, self._shaped)
        parts = {
            "env": (self._loop.members[0].envs, "step"),
            "acting": (self._agent, "act"),
            "sampling": (self._agent, "sample"),
            "update": (self._agent, "gradient_step"),
        }
        return {"matmul_limit": limit, "shares": time_shares(lambda: self.run(self._block), parts)}


_SAME_NAME = (
    "batch_size",
    "buffer_size",
    "gamma",
    "gradient_steps",
    "learning_rate",
    "learning_starts",
    "tau",
    "train_freq",
)
_SAME_NAME_TD3 = ("policy_delay", "target_policy_noise", "target_noise_clip")


class Sb3:
    """Stable-Baselines3's agent with our settings in its words."""

    def __init__(self, entry: Entry, threads: int) -> None:
        try:
            import stable_baselines3
        except ImportError:
            raise MissingExtra("bsrs bench td3", "sb3") from None
        import torch

        torch.set_num_threads(threads)
        self._config = config = config_of(entry)
        names = (*_SAME_NAME, *(_SAME_NAME_TD3 if entry.algorithm == "td3" else ()))
        self._model = getattr(stable_baselines3, entry.algorithm.upper())(
            "MlpPolicy",
            config.env,
            **{name: getattr(config, name) for name in names},
            policy_kwargs={"net_arch": list(config.hidden), "n_critics": config.n_critics},
            device="cpu",
            seed=0,
        )

    def run(self, steps: int) -> None:
        self._model.learn(steps, reset_num_timesteps=False)

    def report(self) -> dict[str, Any]:
        return {"matmul_limit": matmul_rate() / matmul_operations(self._config, shaped=False)}


# ---- how near to the machine's own speed


def matmul_rate(size: int = 1024, repetitions: int = 20) -> float:
    """Floating-point operations per second of a large matrix product, on the threads in use."""
    import torch

    a, b = torch.randn(size, size), torch.randn(size, size)
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    return float(2 * size**3 / sorted(seconds)[repetitions // 4])


def matmul_operations(config: ActorCriticConfig, shaped: bool) -> float:
    """Floating-point operations in the matrix products that one env step of one member cannot do without.

    A pass through a network costs one forward; its gradients cost one more for the weights, and one without the
    first layer for what is before them.
    """
    n_obs, n_actions, n = 3, 1, config.n_critics  # Pendulum
    is_td3 = isinstance(config, TD3Config)
    critic_first, critic = _forward((n_obs + n_actions, *config.hidden, 1), config.batch_size)
    actor_first, actor = _forward((n_obs, *config.hidden, n_actions * (1 if is_td3 else 2)), config.batch_size)
    update_critics = n * (3 * critic - critic_first) + n * critic  # with the target
    update_actor = (3 * actor - actor_first) + (1 if is_td3 else n) * 2 * critic
    every = config.policy_delay if isinstance(config, TD3Config) else 1
    total = update_critics + actor + update_actor / every
    if shaped and config.potential == "policy":
        total += 2 * n * critic + ((2 - 1 / every) * actor if is_td3 else 0)
    elif shaped:
        total += n * critic
    return total


def _forward(sizes: tuple[int, ...], batch: int) -> tuple[float, float]:
    """Operations of the first layer, and of all of them."""
    each = [2.0 * batch * a * b for a, b in itertools.pairwise(sizes)]
    return each[0], sum(each)
