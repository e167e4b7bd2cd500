"""`bsrs bench`: print what `bsrs.bench` measures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BenchArguments:
    """What every benchmark takes."""

    json: bool = False
    """Print one JSON document instead of a table."""
    quick: bool = False
    """Short blocks, rougher figures: done within a minute on two cores."""
    threads: int = 2
    """Threads of PyTorch, the same for all contestants."""


def dqn(arguments: BenchArguments) -> None:
    """Env steps per second of DQN."""
    from bsrs.bench.dqn import bench

    document = bench(quick=arguments.quick, threads=arguments.threads)
    if arguments.json:
        print(json.dumps(document))
        return
    print_table("DQN, env steps per second while learning", document["rows"])
    print_table("where our time goes", document["shares"])


def td3(arguments: BenchArguments) -> None:
    """Env steps per second of TD3 and SAC."""
    from bsrs.bench.td3 import bench

    document = bench(quick=arguments.quick, threads=arguments.threads)
    if arguments.json:
        print(json.dumps(document))
        return
    print_table("TD3 and SAC on Pendulum, env steps per second while learning", document["rows"])
    print_table("where our time goes", document["shares"])


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows that share their keys, as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(f"{value:,g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)
