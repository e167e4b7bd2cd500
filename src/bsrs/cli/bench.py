"""`bsrs bench`: print what `bsrs.bench` measures."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bsrs.cli.show import print_json, print_table

CASES = {
    "dqn": ("DQN", ("Pong", "CartPole", "MinAtar Breakout", "MinAtar Seaquest")),
    "td3": ("TD3 and SAC on Pendulum", ("td3", "sac")),
}


@dataclass(frozen=True)
class BenchArguments:
    json: bool = False
    """Print one JSON document instead of a table."""
    quick: bool = False
    """Short blocks, rougher figures: done within a minute on two cores."""
    threads: int = 2
    """Threads, the same for all contestants."""


def agents_command(name: str) -> tuple[type, Callable[[Any], None]]:
    """`bsrs bench dqn` and `td3`: their flags and their function."""
    return BenchArguments, partial(_agents, *CASES[name])


def _agents(title: str, cases: tuple[str, ...], arguments: BenchArguments) -> None:
    from bsrs.bench.agents import bench

    document = bench(cases, quick=arguments.quick, threads=arguments.threads, tell=_tell)
    if arguments.json:
        print_json(document)
        return
    print_table(f"{title}, env steps per second while learning", document["rows"])
    print_table("where our time goes", document["shares"])


def sb3(json: bool = False, quick: bool = False) -> None:
    """What shaping adds to a gradient step of Stable-Baselines3: it counts one thread's processor time.

    Args:
        json: Print one JSON document instead of a table.
        quick: A few blocks: does it run, rather than how fast.
    """
    from bsrs.bench.sb3 import bench

    document = bench(quick=quick)
    if json:
        print_json(document)
    else:
        print_table("Stable-Baselines3, per gradient step", document["rows"])


@dataclass(frozen=True)
class BenchTabularArguments(BenchArguments):
    mdp: tuple[str, ...] = ()
    """Only these tables."""
    gamma: tuple[float, ...] = ()
    """Only these discounts."""
    limit: float = 30.0
    """A solver that takes more seconds than this is stopped."""


def tabular(arguments: BenchTabularArguments) -> None:
    """Seconds and applications of tabular solvers."""
    from bsrs.bench.tabular import FULL, GAMMAS, HORIZONS, QUICK, Plan, bench

    named = tuple((table, gamma) for table in arguments.mdp for gamma in arguments.gamma or GAMMAS)
    cases = named or (QUICK if arguments.quick else FULL)
    plan = Plan(
        cases=tuple(case for case in cases if not arguments.gamma or case[1] in arguments.gamma),
        rounds=2 if arguments.quick else 3,
        limit=min(arguments.limit, 5.0) if arguments.quick else arguments.limit,
        threads=arguments.threads,
        horizons=arguments.gamma or (HORIZONS[:3] if arguments.quick else HORIZONS),
    )
    document = bench(plan, tell=_tell)
    if arguments.json:
        print_json(document)
        return
    for table, gamma in plan.cases:
        rows = [row for row in document["rows"] if (row["mdp"], row["gamma"]) == (table, gamma)]
        shown = [{name: row[name] for name in row if name not in ("mdp", "gamma")} for row in rows]
        print_table(f"{table}, gamma {gamma:g}: median seconds; errors relative to the largest value", shown)
    for row in document["stopped"]:
        print(f"stopped after {row['limit']:g} s: {row['solver']} on {row['mdp']}, gamma {row['gamma']:g}")
    print_table(
        "applications of auto beside plain value iteration's: kept if below 1.05 times plus 3", document["promise"]
    )
    print_table("our fastest beside the peers' fastest", document["best"])
    print_table("one application, 1000x1000 deterministic grid, beside copying memory", [document["bandwidth"]])


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
