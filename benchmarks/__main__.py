"""`python -m benchmarks agents|tabular|sb3|rllib`: measure speed next to other libraries, a row as it is finished."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import tyro

from bsrs.cli import run_program
from bsrs.cli.flags import parse

PROGRAM = "python -m benchmarks"
Name = Literal["CartPole", "Pendulum TD3", "Pendulum SAC", "MinAtar Breakout", "MinAtar Seaquest", "Pong"]


@dataclass(frozen=True, kw_only=True)
class Arguments:
    json: bool = False
    """Print one JSON document, with a line for each row."""
    quick: bool = False
    """Short blocks: rougher figures, within a minute or two."""


@dataclass(frozen=True, kw_only=True)
class Agents(Arguments):
    case: tuple[Name, ...] = ()
    """Only these cases."""


@dataclass(frozen=True, kw_only=True)
class Tabular(Arguments):
    threads: int = 2
    """Threads, the same for all solvers."""
    mdp: tuple[str, ...] = ()
    """Only these tables."""
    gamma: tuple[float, ...] = ()
    """Only these discounts."""
    limit: float = 30.0
    """Seconds after which a solver is stopped."""


@dataclass(frozen=True, kw_only=True)
class Sb3(Arguments):
    pass


@dataclass(frozen=True, kw_only=True)
class Rllib(Arguments):
    pass


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


def _run(arguments: Arguments) -> None:
    with Rows(as_json=arguments.json) as rows:
        match arguments:
            case Agents():
                agents(arguments, rows)
            case Tabular():
                tabular(arguments, rows)
            case Rllib():
                rllib(arguments, rows)
            case _:
                sb3(arguments, rows)


class Rows:
    """Rows that are printed at once: as a table or as one JSON document, which is whole even if it is interrupted."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._more, self._printed = as_json, dict[str, Any](), 0
        self._widths: dict[str, int] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Print a row; the first one has the columns of all."""
        if self._as_json:
            before = "," if self._printed else '{"rows": ['
            print(f"{before}\n  {json.dumps(row)}", end="", flush=True)
        else:
            if self._widths.keys() != row.keys():
                self._widths = {name: max(len(name), 1 + len(_cell(value))) for name, value in row.items()}
                print("  ".join(f"{name:<{width}}" for name, width in self._widths.items()))
            print("  ".join(f"{_cell(row[name]):<{width}}" for name, width in self._widths.items()), flush=True)
        self._printed += 1

    def finish(self, **more: Any) -> None:
        """Keep what is known only at the end."""
        self._more = more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._as_json and self._printed:
            more = "".join(f",\n{json.dumps(name)}: {json.dumps(value)}" for name, value in self._more.items())
            print(f"]{more}}}", flush=True)
        for name, rows in () if self._as_json else self._more.items():
            print(f"\n{name}")
            for row in rows:
                self.add(row)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def agents(arguments: Agents, rows: Rows) -> None:
    """Env steps per second while learning."""
    from benchmarks.agents import CASES, bench

    for row in bench(arguments.case or tuple(CASES), quick=arguments.quick, tell=_tell):
        rows.add(row)


def sb3(arguments: Arguments, rows: Rows) -> None:
    """Milliseconds per gradient step of Stable-Baselines3."""
    from benchmarks.sb3 import bench

    for row in bench(quick=arguments.quick):
        rows.add(row)


def rllib(arguments: Arguments, rows: Rows) -> None:
    """Milliseconds per update of an RLlib Learner."""
    from benchmarks.rllib import bench

    for row in bench(quick=arguments.quick):
        rows.add(row)


def tabular(arguments: Tabular, rows: Rows) -> None:
    """Seconds and iterations of tabular solvers."""
    from benchmarks.tabular import FULL, GAMMAS, HORIZONS, QUICK, Plan, bench

    named = tuple((table, gamma) for table in arguments.mdp for gamma in arguments.gamma or GAMMAS)
    cases = named or (QUICK if arguments.quick else FULL)
    plan = Plan(
        cases=tuple(case for case in cases if not arguments.gamma or case[1] in arguments.gamma),
        rounds=2 if arguments.quick else 3,
        limit=min(arguments.limit, 5.0) if arguments.quick else arguments.limit,
        threads=arguments.threads,
        horizons=arguments.gamma or (HORIZONS[:3] if arguments.quick else HORIZONS),
    )
    document = bench(plan, tell=_tell, show=rows.add)
    rows.finish(**{name: found for name, found in document.items() if name != "rows"})


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
