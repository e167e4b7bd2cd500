"""`python -m benchmarks agents|tabular|sb3|rllib`: measure speed next to other libraries, a row as it is finished."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from bsrs.cli import run_program
from bsrs.cli.flags import parse

PROGRAM = "python -m benchmarks"
Name = Literal["CartPole", "Pendulum TD3", "Pendulum SAC", "MinAtar Breakout", "MinAtar Seaquest", "Pong"]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    json: bool = False
    """Print one JSON document at the end."""
    quick: bool = False
    """Short blocks: rougher figures, within a minute or two."""


@dataclass(frozen=True, kw_only=True)
class Agents(Arguments):
    case: tuple[Name, ...] = ()
    """Only these cases."""

    def rows(self) -> Iterator[Row]:
        from benchmarks.agents import CASES, bench

        return bench(self.case or tuple(CASES), quick=self.quick)


@dataclass(frozen=True, kw_only=True)
class Tabular(Arguments):
    mdp: tuple[str, ...] = ()
    """Only these tables."""
    gamma: tuple[float, ...] = ()
    """Only these discounts."""

    def rows(self) -> Iterator[Row]:
        from benchmarks.tabular import bench, cases

        return bench(cases(self.mdp, self.gamma, quick=self.quick), quick=self.quick)


@dataclass(frozen=True, kw_only=True)
class Sb3(Arguments):
    def rows(self) -> Iterator[Row]:
        from benchmarks.sb3 import bench

        return bench(quick=self.quick)


@dataclass(frozen=True, kw_only=True)
class Rllib(Arguments):
    def rows(self) -> Iterator[Row]:
        from benchmarks.rllib import bench

        return bench(quick=self.quick)


Benchmark = (
    Annotated[Agents, tyro.conf.subcommand("agents", description="DQN, TD3 and SAC, next to SB3, SBX and rejax")]
    | Annotated[Tabular, tyro.conf.subcommand("tabular", description="solvers of tables, next to quantecon, mdpsolver")]
    | Annotated[Sb3, tyro.conf.subcommand("sb3", description="what the one line adds to a gradient step of SB3")]
    | Annotated[Rllib, tyro.conf.subcommand("rllib", description="what the one line adds to an update of RLlib")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one benchmark. Bad input is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_program("benchmarks", lambda: _run(parse(Benchmark, words, PROGRAM, "Measure speed next to other libraries.")))


def _run(benchmark: Agents | Tabular | Sb3 | Rllib) -> None:
    """Print rows as soon as they are measured, or one document, which has every row measured so far if it is
    interrupted."""
    found: list[Row] = []
    widths: dict[str, int] = {}
    try:
        for row in benchmark.rows():
            found.append(row)
            if not benchmark.json:
                if not widths:
                    widths = {name: max(len(name), 1 + len(_cell(value))) for name, value in row.items()}
                    print("  ".join(f"{name:<{width}}" for name, width in widths.items()))
                print("  ".join(f"{_cell(row[name]):<{width}}" for name, width in widths.items()), flush=True)
    finally:
        if benchmark.json:
            print(json.dumps({"rows": found}, indent=1), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
