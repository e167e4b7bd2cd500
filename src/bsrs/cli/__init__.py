"""The command line: parsing and printing only.

A command is a row in `COMMANDS`. Its module is imported only when it is called, so that `bsrs --help` is quick;
its function takes one frozen config dataclass, from which tyro makes the flags.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bsrs.errors import BadInput, unknown

# words -> (where the function lives, what it does)
COMMANDS: dict[tuple[str, ...], tuple[str, str]] = {
    ("demo",): ("bsrs.cli.demo:demo", "the main job in two minutes: theory, a small sweep, a report"),
    ("tabular", "solve"): ("bsrs.cli.tabular:solve", "solve one table exactly, with any eta"),
    ("tabular", "sweep"): ("bsrs.cli.tabular:sweep", "operator applications to convergence, over etas and seeds"),
    ("tabular", "theory"): ("bsrs.cli.tabular:theory", "proven range, spectral and empirical limits, best eta"),
    ("train", "dqn"): ("bsrs.cli.train:dqn", "train self-shaped DQN: Atari, MinAtar, classic control"),
    ("train", "sac"): ("bsrs.cli.train:sac", "train self-shaped SAC: Pendulum, MuJoCo"),
    ("train", "td3"): ("bsrs.cli.train:td3", "train self-shaped TD3: Pendulum, MuJoCo"),
    ("play",): ("bsrs.cli.play:play", "watch a trained run, or film it"),
    ("reproduce", "tabular"): ("bsrs.cli.reproduce:tabular", "the paper's tabular figure, and where the best eta lies"),
    ("reproduce", "theory"): ("bsrs.cli.reproduce:theory", "the paper's statements on random tables, with verdicts"),
    ("reproduce", "atari"): ("bsrs.cli.reproduce:atari", "DQN on Atari: runs, figures, claims, report"),
    ("reproduce", "pendulum"): ("bsrs.cli.reproduce:pendulum", "TD3 on Pendulum"),
    ("reproduce", "mujoco"): ("bsrs.cli.reproduce:mujoco", "TD3 on Hopper and Humanoid"),
    ("reproduce", "target-ablation"): ("bsrs.cli.reproduce:target_ablation", "potential: online or target network"),
    ("reproduce", "rescaling"): ("bsrs.cli.reproduce:rescaling", "our control: shaping or mere rescaling"),
    ("reproduce", "all"): ("bsrs.cli.reproduce:everything", "all of them, and one report"),
    ("report",): ("bsrs.cli.report:report", "one HTML page about a folder of runs"),
    ("runs",): ("bsrs.cli.runs:runs", "list the runs below a folder, or ask DuckDB about them"),
    ("sweep",): ("bsrs.cli.sweep:preset", "carry out a preset or a TOML file of runs; again to continue"),
    ("sweep", "dqn"): ("bsrs.cli.sweep:dqn", "envs x etas x seeds of DQN; again to continue"),
    ("sweep", "sac"): ("bsrs.cli.sweep:sac", "envs x etas x seeds of SAC; again to continue"),
    ("sweep", "td3"): ("bsrs.cli.sweep:td3", "envs x etas x seeds of TD3; again to continue"),
    ("tune", "dqn"): ("bsrs.cli.tune:dqn", "search eta for DQN with Optuna; again to continue"),
    ("tune", "sac"): ("bsrs.cli.tune:sac", "search eta for SAC with Optuna; again to continue"),
    ("tune", "td3"): ("bsrs.cli.tune:td3", "search eta for TD3 with Optuna; again to continue"),
    ("bench", "dqn"): ("bsrs.cli.bench:dqn", "steps per second of DQN, beside Stable-Baselines3"),
    ("bench", "sb3"): ("bsrs.cli.bench:sb3", "what the one line adds to a gradient step of Stable-Baselines3"),
    ("bench", "tabular"): ("bsrs.cli.bench:tabular", "tabular solvers, beside quantecon and mdpsolver"),
    ("bench", "td3"): ("bsrs.cli.bench:td3", "steps per second of TD3 and SAC, beside Stable-Baselines3"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Bad input is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _dispatch(words)
    except BadInput as error:
        print(f"bsrs: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("bsrs: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def _dispatch(words: list[str]) -> None:
    if words and words[0] == "--version":
        from bsrs import __version__

        print(f"bsrs {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        _print_help(())
        return
    for length in (2, 1):
        name = tuple(words[:length])
        if name in COMMANDS:
            _run(name, words[length:])
            return
    group = [name for name in COMMANDS if name[0] == words[0] and len(name) == 2]
    if not group:
        raise unknown("command", words[0], {name[0] for name in COMMANDS})
    if len(words) == 1 or words[1] in ("-h", "--help"):
        _print_help((words[0],))
        return
    raise unknown(f"{words[0]} command", words[1], [name[1] for name in group])


def _print_help(group: tuple[str, ...]) -> None:
    rows = [(" ".join(name), text) for name, (_, text) in COMMANDS.items() if name[: len(group)] == group]
    width = max(len(name) for name, _ in rows)
    print(f"usage: bsrs {' '.join([*group, '<command>'])} [options]   (--help after a command lists its options)\n")
    for name, text in rows:
        print(f"  bsrs {name:<{width}}  {text}")


def _run(name: tuple[str, ...], words: list[str]) -> None:
    target, description = COMMANDS[name]
    module, _, function_name = target.partition(":")
    function: Callable[[Any], None] = getattr(importlib.import_module(module), function_name)
    import tyro  # after the module, which may fail quicker

    config_type = next(iter(_hints(function).values()))
    config = tyro.cli(config_type, args=words, prog=f"bsrs {' '.join(name)}", description=description)
    function(config)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    import typing

    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    assert all(dataclasses.is_dataclass(hint) for hint in hints.values()), f"{function} must take a config"
    return hints
