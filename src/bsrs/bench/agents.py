"""DQN, TD3 and SAC in env steps per second: Stable-Baselines3's without shaping, ours without and with it.

Same env, same settings, same network, same threads, all of them learning from the start. Contests: one process on all
threads; one thread, where the networks are small; two processes on one thread each, which is how a sweep runs;
populations of several members in one process, where a step of each member counts as one.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bsrs.bench.sb3_models import sb3_model
from bsrs.bench.timing import (
    Result,
    Runner,
    Tell,
    matrix_rate,
    median_ratio,
    operations,
    race,
    seconds_of,
    silent,
    time_shares,
)
from bsrs.config.agents import DQNConfig
from bsrs.config.algorithms import preset
from bsrs.config.training import OffPolicyConfig


@dataclass(frozen=True)
class Case:
    """What is learnt, and how many env steps a block has."""

    algorithm: str
    preset: str
    env: str
    steps: int
    quick_steps: int


CASES = {
    "Pong": Case("dqn", "atari", "PongNoFrameskip-v4", 200, 80),
    "CartPole": Case("dqn", "classic", "CartPole-v1", 2_000, 200),
    "MinAtar Breakout": Case("dqn", "minatar", "MinAtar/Breakout-v1", 320, 48),
    "MinAtar Seaquest": Case("dqn", "minatar", "MinAtar/Seaquest-v1", 320, 48),
    "td3": Case("td3", "pendulum", "Pendulum-v1", 208, 48),
    "sac": Case("sac", "pendulum", "Pendulum-v1", 208, 48),
}


@dataclass(frozen=True)
class Entry:
    """One contestant."""

    case: str
    agent: str
    variant: str
    eta: float | str = 0.0
    members: int = 1

    def __str__(self) -> str:
        return f"{self.case} {self.agent} {self.variant}" + (f" x {self.members}" if self.members > 1 else "")

    def config(self, seed: int = 0) -> OffPolicyConfig:
        """The preset, learning from the first moment, with the entry's own settings."""
        case = CASES[self.case]
        potential = {"potential": self.variant} if self.variant in ("policy", "replay") else {}
        config = preset(case.algorithm, case.preset, env=case.env, eta=self.eta, seed=seed, **potential)
        assert isinstance(config, OffPolicyConfig)
        if not isinstance(config, DQNConfig):
            return config
        last = config.exploration_final_eps
        return dataclasses.replace(config, learning_starts=10, exploration_initial_eps=last, exploration_fraction=0.0)


@dataclass(frozen=True)
class Contest:
    """Who runs against whom: the first is the measure of the others. No `threads`: as many as are asked for."""

    entries: tuple[Entry, ...]
    processes: int = 1
    threads: int | None = None


def contests(names: Sequence[str], quick: bool) -> list[Contest]:
    """All contests of the cases."""
    found = []
    for name in names:
        sb3 = Entry(name, "sb3", "plain")
        variants: dict[str, float | str] = {"plain": 0.0, "auto": "auto"}
        variants |= {"shaped": 2.0} if CASES[name].algorithm == "dqn" else {"policy": 2.0, "replay": 2.0}
        ours = {variant: Entry(name, "bsrs", variant, eta) for variant, eta in variants.items()}
        everybody = (sb3, *ours.values())
        if name.startswith("MinAtar"):
            found.append(Contest((*everybody, dataclasses.replace(ours["shaped"], members=8)), threads=1))
            continue
        found.append(Contest(everybody))
        if name == "td3":
            found.append(Contest(everybody, processes=2, threads=1))
            members = (4,) if quick else (4, 16)
            one = ours["policy"]
            found.append(Contest((sb3, one, *(dataclasses.replace(one, members=n) for n in members))))
    return found


def bench(names: Sequence[str], *, quick: bool, threads: int, tell: Tell = silent) -> dict[str, Any]:
    """`rows` for the table, and for our agents the `shares` of time. Each row is told as soon as it is measured."""
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    for contest in contests(names, quick):
        contest = dataclasses.replace(contest, threads=contest.threads or threads)
        results = _race(contest, quick, tell)
        constant = next(result for entry, result in results.items() if entry.variant in ("shaped", "policy"))
        for entry, result in results.items():
            rows.append(_row(entry, contest, result, results[contest.entries[0]], constant))
            tell(json.dumps(rows[-1]))
            if entry.agent == "bsrs" and contest.processes == 1:
                about = {"case": entry.case, "variant": entry.variant, "members": entry.members}
                shares.append({**about, **result.report["shares"]})
    return {"rows": rows, "shares": shares}


def _race(contest: Contest, quick: bool, tell: Tell) -> dict[Entry, Result]:
    builds: dict[str, tuple[Callable[..., Runner], dict[str, Any]]] = {
        str(entry): (
            Sb3 if entry.agent == "sb3" else Ours,
            {"entry": entry, "threads": contest.threads, "quick": quick},
        )
        for entry in contest.entries
    }
    case = CASES[contest.entries[0].case]
    steps, rounds = (case.quick_steps, 3) if quick else (case.steps, 11)
    warm_up = max(160, steps)  # past the first batches, which are drawn from few transitions
    results = race(
        builds,
        steps=steps,
        rounds=rounds,
        warm_up=warm_up,
        processes=contest.processes,
        processor_time=contest.threads == 1,
        tell=tell,
    )
    return {entry: results[str(entry)] for entry in contest.entries}


def _row(entry: Entry, contest: Contest, result: Result, sb3: Result, constant: Result) -> dict[str, Any]:
    report, each_s = result.report, result.steps_per_s / contest.processes
    run_s = entry.config().eval_every * entry.members / each_s  # of training, between two evaluations
    evaluation = report.get("evaluation_s")
    return {
        "case": entry.case,
        "agent": entry.agent,
        "variant": entry.variant,
        "eta": entry.eta,
        "processes": contest.processes,
        "threads": contest.threads,
        "members": entry.members,
        "steps_per_s": round(result.steps_per_s, 1),
        "ratio_to_sb3": round(median_ratio(result, sb3), 3),
        "ratio_to_eta_2": round(median_ratio(result, constant), 3),
        "share_of_matrix_rate": round(each_s * report["operations"] / report["matrix_rate"], 3),
        "evaluation_share": None if evaluation is None else float(f"{evaluation / (evaluation + run_s):.2g}"),
        "peak_mb": round(report["peak_mb"] + report["untouched_mb"]),
    }


class Ours:
    """Our agent in our loop."""

    def __init__(self, entry: Entry, threads: int, quick: bool) -> None:
        import torch

        from bsrs.run import Records, make_agent
        from bsrs.train import Loop

        torch.set_num_threads(threads)
        configs = [entry.config(seed) for seed in range(entry.members)]
        self._config = configs[0]
        self._agent: Any = make_agent(configs)
        self._loop = Loop(self._agent, configs[0], range(entry.members), [Records() for _ in configs])
        self._loop.start()
        self._evaluates = not (quick and entry.case == "Pong")
        self._members, self._block = entry.members, 0

    def run(self, steps: int) -> None:
        self._block = steps
        for _ in range(steps // self._members):
            self._loop.advance()

    def report(self) -> dict[str, Any]:
        parts = {
            "env": (self._loop.members[0].envs, "step"),
            "acting": (self._agent, "act"),
            "sampling": (self._agent, "sample"),
            "update": (self._agent, "gradient_step"),
        }
        replay = self._agent.population.replays[0]
        report = _report(self.run, self._block, replay.nbytes, len(replay) / replay.capacity, self._members)
        if self._evaluates:
            report["evaluation_s"] = self._evaluation_s()
        return {**report, "shares": time_shares(lambda: self.run(self._block), parts)}

    def _evaluation_s(self) -> float:
        from bsrs.train import evaluate

        return seconds_of(lambda: evaluate(self._agent, self._config, range(self._members)))


class Sb3:
    """Stable-Baselines3's agent with our settings in its words."""

    def __init__(self, entry: Entry, threads: int, quick: bool) -> None:
        import torch

        torch.set_num_threads(threads)
        self.model = sb3_model(CASES[entry.case].algorithm, entry.config())
        self._block = 0

    def run(self, steps: int) -> None:
        self._block = steps
        self.model.learn(steps, reset_num_timesteps=False)

    def report(self) -> dict[str, Any]:
        buffer = self.model.replay_buffer
        arrays = (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones)
        filled = 1.0 if buffer.full else buffer.pos / buffer.buffer_size
        return _report(self.run, self._block, sum(array.nbytes for array in arrays), filled)


def _report(
    run: Callable[[int], None], block: int, replay_bytes: int, filled: float, members: int = 1
) -> dict[str, float]:
    """One more block, counted; what the replays will still take once they are full: the system gives memory out when
    it is first written."""
    return {
        "operations": operations(lambda: run(block)) / block,
        "matrix_rate": matrix_rate(),
        "untouched_mb": members * replay_bytes * (1 - filled) / 1e6,
    }
