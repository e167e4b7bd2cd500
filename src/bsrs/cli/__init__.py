"""The command line: parsing and printing only.

A command is a row in `COMMANDS`. Its module is imported only when it is called, so that `bsrs --help` is quick.
tyro makes the flags of its function's parameters, or of the one frozen dataclass that it takes.
"""

import dataclasses
import functools
import io
import os
import pkgutil
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from bsrs.config.algorithms import algorithms, use_plugin
from bsrs.errors import BadInput, printable, unknown

# words -> (module and function, what it does); `*` stands for every algorithm
Commands = dict[tuple[str, ...], tuple[str, str]]
COMMANDS: Commands = {
    ("demo",): ("demo:demo", "train with and without shaping in two minutes, and write a report"),
    ("lab",): ("tabular:lab", "draw a maze in the browser, move eta and watch three learners race"),
    ("train", "*"): ("training:train_command", "train {}"),
    ("sweep", "*"): ("training:sweep_command", "train envs x etas x seeds of {}"),
    ("sweep",): ("training:sweep_preset", "train the runs of a sweep preset or a TOML file; repeat it to continue"),
    ("presets",): ("training:presets", "list the presets, or print the settings of one"),
    ("runs",): ("results:runs", "list the runs below a folder, or query them with DuckDB"),
    ("recommend",): ("results:recommend", "recommend an eta, and say how sure that is"),
    ("report",): ("results:report", "write one HTML page about a folder of runs"),
    ("play",): ("results:play", "watch a trained run, or record a video of it"),
    ("export",): ("results:export", "write a trained policy as an ONNX or TorchScript file"),
    ("completion",): ("flags:completion", "completion of commands and flags for bash, zsh or fish"),
    ("tabular", "solve"): ("tabular:solve", "solve one table exactly, with any eta"),
    ("tabular", "sweep"): ("tabular:sweep", "count iterations to convergence, over etas and seeds"),
    ("tabular", "theory"): (
        "tabular:theory",
        "print the proven range, the spectral and empirical limits, and the best eta",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Bad input is one sentence on standard error and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_program("bsrs", lambda: _dispatch(_take_plugins(words)))


def run_program(name: str, body: Callable[[], None]) -> None:
    """Run a program's body, and end it with one sentence where something is wrong: exit code 2 for bad input."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text
    try:
        body()
    except BadInput as error:
        _refuse(name, str(error))
    except KeyboardInterrupt:
        _end(name, "interrupted", 130)
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): not an error of ours.
        _silence()
        raise SystemExit(0) from None
    except OSError as error:
        _refuse(name, f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except MemoryError as error:
        _refuse(name, f"there is not enough memory for this {f'({error})' if str(error) else ''}".rstrip())
    except RuntimeError as error:
        if not any(words in str(error) for words in _NO_MEMORY):
            raise
        _refuse(name, "there is not enough memory for this: choose a smaller buffer_size, batch_size or network")


# How PyTorch says so, which has no exception of its own for it on a CPU.
_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory")


def _refuse(name: str, why: str) -> NoReturn:
    _end(name, why, 2)


def _end(name: str, why: str, code: int) -> NoReturn:
    try:
        print(f"{name}: {printable(why, keep=chr(10))}", file=sys.stderr, flush=True)
    except OSError:  # nobody listens
        _silence()
    raise SystemExit(code) from None


def _silence() -> None:
    """Send what is left in the buffers nowhere, where Python would print an error about it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def _open_standard_streams() -> None:
    """Give closed streams (`2>&-`) a place: the next file opened, such as a run's records, would take their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def commands() -> Commands:
    """Every command, `*` replaced by each algorithm of the registry."""
    table: Commands = {}
    for name, (target, text) in COMMANDS.items():
        if name[-1] == "*":
            rows = [row for row in algorithms() if row.agent]
            table |= {(*name[:-1], row.name): (target, text.format(row.summary)) for row in rows}
        else:
            table[name] = (target, text)
    return table


def _dispatch(words: list[str]) -> None:
    if words and words[0] == "--version":
        from bsrs import __version__

        print(f"bsrs {__version__}")
        return
    table = commands()
    if not words or words[0] in ("-h", "--help"):
        _print_help(table)
        return
    for length in (2, 1):
        name = tuple(words[:length])
        if name in table:
            _run(name, table[name][1], words[length:])
            return
    group: Commands = {name: row for name, row in table.items() if name[0] == words[0] and len(name) == 2}
    if not group:
        raise unknown("command", words[0], {name[0] for name in table})
    if len(words) == 1 or words[1] in ("-h", "--help"):
        _print_help(group, words[0])
        return
    raise unknown(f"{words[0]} command", words[1], [name[1] for name in group])


def _take_plugins(words: list[str]) -> list[str]:
    """The words without `--plugin MODULE`, wherever it stands; the modules are imported."""
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--plugin=") else [word])]
    while "--plugin" in words:
        at = words.index("--plugin")
        if at + 1 == len(words):
            raise BadInput("--plugin has no module; expected the name of a module that registers an algorithm")
        use_plugin(words[at + 1])
        words = words[:at] + words[at + 2 :]
    return words


def _print_help(table: Commands, group: str = "") -> None:
    names = [" ".join(name) for name in table]
    width = max(map(len, names))
    print(f"usage: bsrs {f'{group} <command>'.strip()} [options]   (--help after a command lists its options)\n")
    for name in names:
        print(f"  bsrs {name:<{width}}  {table[tuple(name.split())][1]}")
    if not group:
        print("\n  --plugin MODULE  algorithms of your own (docs/adding-an-algorithm.md)")


def _run(name: tuple[str, ...], description: str, words: list[str]) -> None:
    takes, call = command_of(name)
    from bsrs.cli.flags import parse  # after the command's module, which may fail quicker

    call(parse(takes, words, f"bsrs {' '.join(name)}", description))


def command_of(name: tuple[str, ...]) -> tuple[Any, Callable[[Any], Any]]:
    """What a command's flags are made of, and what to do with what comes of them."""
    function: Callable[..., Any] = pkgutil.resolve_name(f"bsrs.cli.{commands()[name][0]}")
    if function.__name__.endswith("_command"):  # one function for several commands
        takes, call = function(name[1])
        return takes, call
    parameters = [hint for key, hint in typing.get_type_hints(function).items() if key != "return"]
    if dataclasses.is_dataclass(parameters[0]):
        return parameters[0], function
    return functools.wraps(function)(functools.partial(functools.partial, function)), lambda call: call()
