"""DQN, TD3 and SAC in env steps per second, next to Stable-Baselines3, SBX and rejax.

Same env, same settings, same network, all of them learning from the start, in one run. Every contestant has one thread,
and processor time is counted, so that other programs do not matter. They take turns in short blocks. A step of a
population counts once for each of its members.
"""

import dataclasses
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import sb3_model, sbx_model
from benchmarks.timing import Runner, matrix_rate, median_ratio, operations, race, tell
from bsrs.config.agents import DQNConfig
from bsrs.config.algorithms import preset
from bsrs.config.training import OffPolicyConfig
from bsrs.run import Records, make_agent
from bsrs.train import Loop

REJAX = Path(__file__).parent.parent / ".venv-rejax" / "bin" / "python"


WARM_UP = 160
"""Env steps of each member before the first block: past the first batches, which are drawn from few transitions."""


@dataclass(frozen=True)
class Case:
    """What is learned, and how many env steps a block has."""

    algorithm: str
    preset: str
    env: str
    steps: int
    quick_steps: int
    peers: tuple[str, ...] = ("sb3",)
    members: int = 8
    """Of our population."""
    times: int = 1
    """How many times as long a block is for those who compile whole steps, so that no block is over in no time."""


CASES = {
    "CartPole": Case("dqn", "classic", "CartPole-v1", 2_000, 200, ("sb3", "sbx", "rejax"), members=20, times=10),
    "Pendulum TD3": Case("td3", "pendulum", "Pendulum-v1", 208, 48, ("sb3", "sbx")),
    "Pendulum SAC": Case("sac", "pendulum", "Pendulum-v1", 208, 48, ("sb3", "sbx")),
    "MinAtar Breakout": Case("dqn", "minatar", "MinAtar/Breakout-v1", 320, 48, times=2),
    "MinAtar Seaquest": Case("dqn", "minatar", "MinAtar/Seaquest-v1", 320, 48, times=2),
    "Pong": Case("dqn", "atari", "PongNoFrameskip-v4", 200, 80),
}


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    case: str
    agent: str
    eta: float | str = 0.0
    members: int = 1

    def __str__(self) -> str:
        return f"{self.case} {self.agent} eta {self.eta} x {self.members}"

    def config(self, seed: int = 0) -> OffPolicyConfig:
        """The preset, learning from the start."""
        case = CASES[self.case]
        config = preset(case.algorithm, case.preset, env=case.env, eta=self.eta, seed=seed)
        assert isinstance(config, OffPolicyConfig)
        if not isinstance(config, DQNConfig):
            return config
        last = config.exploration_final_eps
        config = dataclasses.replace(
            config, learning_starts=100, exploration_initial_eps=last, exploration_fraction=0.0
        )
        if self.case != "CartPole":
            return config
        return dataclasses.replace(config, train_freq=1, gradient_steps=1)  # an update for every step


def entries(name: str) -> list[Entry]:
    """Every contestant of a case; the first is the measure of the others."""
    case = CASES[name]
    ours = [Entry(name, "bsrs", eta, members) for eta in (0.0, 2.0, "auto") for members in (1, case.members)]
    peers = [Entry(name, peer) for peer in case.peers]
    return [*peers, *([Entry(name, "rejax", 0.0, case.members)] if "rejax" in case.peers else []), *ours]


def bench(names: Sequence[str], *, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each contestant, as soon as its case is measured."""
    for name in names:
        case, here = CASES[name], []
        for entry in entries(name):
            if why := missing(entry.agent):
                tell(f"{entry}: {why}")
            else:
                here.append(entry)
        block = case.quick_steps if quick else case.steps
        results = race(
            {entry: partial(RUNNERS[entry.agent], entry) for entry in here},
            steps={entry: block * (case.times if entry.agent in ("bsrs", "rejax") else 1) for entry in here},
            rounds=3 if quick else 11,
        )
        rate = matrix_rate()
        counts = {eta: operations_per_step(name, eta) for eta in (0.0, 2.0, "auto")}
        for entry in here:
            peers = {peer: results.get(Entry(name, peer)) for peer in ("sb3", "rejax")}
            yield row_of(entry, results[entry], peers, counts[entry.eta] / rate)


def missing(agent: str) -> str:
    """Say why a contestant is left out, or nothing."""
    if agent == "rejax" and not REJAX.exists():
        return "left out, because its environment is not there; benchmarks/rejax_env.sh makes it"
    if agent == "sbx":
        try:
            import sbx  # noqa: F401
        except ImportError:
            return "left out, because sbx-rl is not installed"
    return ""


def row_of(
    entry: Entry, rates: Sequence[float], peers: Mapping[str, Sequence[float] | None], seconds: float
) -> dict[str, Any]:
    """`seconds` is how long the arithmetic of one step takes at the machine's rate in large products."""
    ratios = {f"ratio_to_{name}": peer and round(median_ratio(rates, peer), 3) for name, peer in peers.items()}
    return {
        "case": entry.case,
        "agent": entry.agent,
        "eta": entry.eta,
        "members": entry.members,
        "steps_per_s": round(statistics.median(rates), 1),
        **ratios,
        "share_of_matrix_rate": round(statistics.median(rates) * seconds, 3),
    }


def operations_per_step(name: str, eta: float | str, steps: int = 16) -> float:
    """Count the floating-point operations in the matrix products of an env step, as our reference agent takes them."""
    ours = Ours(Entry(name, "bsrs", eta), use_kernels=False)
    return operations(lambda: ours.run(steps)) / steps


class Ours:
    """Our agent in our loop."""

    def __init__(self, entry: Entry, use_kernels: bool = True) -> None:
        torch.set_num_threads(1)
        configs = [entry.config(seed) for seed in range(entry.members)]
        self.agent: Any = make_agent(configs, use_kernels=use_kernels)
        self.loop = Loop(self.agent, configs[0], range(entry.members), [Records() for _ in configs])
        self.loop.start()
        self.run(WARM_UP * entry.members)

    def run(self, steps: int) -> None:
        for _ in range(steps // self.agent.members):
            self.loop.advance()


class Peer:
    """An agent with Stable-Baselines3's interface, our settings in its words."""

    def __init__(self, entry: Entry) -> None:
        torch.set_num_threads(1)
        make = {"sb3": sb3_model, "sbx": sbx_model}[entry.agent]
        self.model = make(CASES[entry.case].algorithm, entry.config())
        self.run(WARM_UP)

    def run(self, steps: int) -> None:
        self.model.learn(steps, reset_num_timesteps=False)


class Rejax:
    """rejax's DQN, compiled as a whole, in its own environment. Compiling is not timed."""

    def __init__(self, entry: Entry) -> None:
        config = entry.config()
        assert isinstance(config, DQNConfig)
        self._members = entry.members
        self._process = subprocess.Popen(
            [REJAX, Path(__file__).with_name("rejax_server.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        names = ("env", "buffer_size", "batch_size", "learning_rate", "gamma", "max_grad_norm")
        own = {name: getattr(config, name) for name in names}
        epsilon = {"eps_start": config.exploration_final_eps, "eps_end": config.exploration_final_eps}
        interval = {"target_update_freq": config.target_update_interval, "fill_buffer": config.learning_starts}
        self._send({**own, **epsilon, **interval, "members": entry.members})
        self.run(WARM_UP * entry.members)

    def _send(self, message: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def run(self, steps: int) -> float:
        self._send(["run", steps // self._members])
        assert self._process.stdout
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("rejax's process died: its error is printed above")
        return float(json.loads(answer))


RUNNERS: dict[str, Callable[..., Runner]] = {"bsrs": Ours, "sb3": Peer, "sbx": Peer, "rejax": Rejax}
