"""Parse flags with tyro, report errors as one sentence, and complete flags in the shell.

An algorithm's flags come from its config class: each field is a flag that is unset unless the user gives it, so a
preset fills in the rest. The help texts are the docstrings of the config's fields.
"""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import itertools
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterable
from importlib.resources import files
from typing import Annotated, Any, Literal, TextIO, cast

import tyro

from bsrs.config.algorithms import Algorithm, find_algorithm
from bsrs.config.base import ALSO_CALLED
from bsrs.errors import BadInput, unknown

# Fields that every command takes in a form of its own.
OWN = {"env", "eta", "seed"}
_COLOURS = re.compile(r"(?:\x1b\[[0-9;]*m)*")
_EMPTY = re.compile(rf"\(default:{_COLOURS.pattern} ?{_COLOURS.pattern}(?:None|''|)\)")
# field -> what others call it
_ALIASES = {field: [f"--{name.replace('_', '-')}" for name in names] for field, names in ALSO_CALLED.items()}


def parse(takes: Any, words: list[str], prog: str, description: str) -> Any:
    """What the words spell: an instance of the dataclass, or the function, with its flags filled in."""
    flags = flags_of(takes)
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if re.fullmatch(r"--[a-z][\w-]*", flag) and flag not in flags and not flag.startswith(("--help", "--tyro-")):
            near = difflib.get_close_matches(flag, flags, n=1, cutoff=0.6)
            raise BadInput(f"unknown flag {flag}: {f'did you mean {near[0]}?' if near else f'{prog} --help lists all'}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(cast(TextIO, _Help(sys.stdout))):
            arguments, left = tyro.cli(takes, args=words, prog=prog, description=description, return_unknown_args=True)
    except SystemExit as stop:
        if stop.code:
            raise BadInput(f"{_sentence(said.getvalue(), words)} (see {prog} --help)") from None
        raise
    if left:
        raise BadInput(f"{left[0]!r} is one word too many for {prog} (see {prog} --help)")
    return arguments


class _Help:
    """Standard output for tyro's help, with blanks in place of defaults that say nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._stream.write(_EMPTY.sub(lambda found: " " * len(_COLOURS.sub("", found[0])), text))


def flags_of(takes: Any) -> dict[str, tuple[str, ...]]:
    """Every flag of a command, or of any of its subcommands -> the words it takes, where these are given."""
    flags: dict[str, tuple[str, ...]] = {}
    if typing.get_origin(takes) in (typing.Union, types.UnionType):
        for subcommand in (each.__origin__ for each in typing.get_args(takes)):
            flags |= flags_of(subcommand) if dataclasses.is_dataclass(subcommand) else {}
        return flags
    hints = typing.get_type_hints(takes, include_extras=True)
    for parameter in inspect.signature(takes).parameters:
        hint = hints[parameter]
        marks = getattr(hint, "__metadata__", ())
        if any("Positional" in str(mark) or "Suppress" in str(mark) for mark in marks):
            continue
        name = parameter.replace("_", "-")
        aliases = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
        pair = [f"--no-{name}"] if hint is bool else []
        flags |= dict.fromkeys([f"--{name}", *pair, *aliases], _choices(hint))
    return flags


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a Literal, wherever it is in the type."""
    if typing.get_origin(hint) is Literal:
        return tuple(map(str, typing.get_args(hint)))
    inner = (hint.__origin__,) if hasattr(hint, "__metadata__") else typing.get_args(hint)
    return tuple(word for part in inner for word in _choices(part))


def _sentence(box: str, words: list[str]) -> str:
    """tyro's error without its frame, its colours and all that follows the first paragraph."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    text = re.sub(r"^╭.*$|^[^\n]*\n *-+ *$", "", text, count=1, flags=re.MULTILINE)  # the title
    lines = [line.strip(" │") for line in text.strip().splitlines()]
    end = next((i for i, line in enumerate(lines) if set(line) <= set("─-")), len(lines))
    sentence = " ".join(" ".join(lines[:end]).split())
    sentence = re.sub(r"no type matching \{None\}\|(.+?) could be instantiated from", r"expected \1, not", sentence)
    if choice := re.fullmatch(r"invalid choice '(.*)' for argument '(--\S+)'\. Expected one of \((.*)\)\.?", sentence):
        return str(unknown(choice[2], choice[1], set(re.findall(r"'([^']*)'", choice[3])) - {"None"}))
    if (commands := re.fullmatch(r"Expected one of \{(.*)\}\.?", sentence)) and words and words[0][:1] != "-":
        return str(unknown("command", words[0], commands[1].split(", ")))
    sentence = re.sub(r"^Error parsing [A-Z]\w*: ", "", sentence)  # what a config itself says needs no name of a class
    return re.sub(r"Error parsing \S*/", "Error parsing ", sentence).rstrip(".")  # of several names the last


# --------------------------------------------------------------------------------------------------------------
# The flags of an algorithm.


def algorithm_flags(algorithm: str, base: type) -> type:
    """A frozen dataclass like `base` with a flag for each field of the algorithm's config."""
    row = find_algorithm(algorithm)
    hints, docs = typing.get_type_hints(row.config_class), _field_docs(row.config_class)
    fields = [
        (field.name, _flag(hints[field.name], docs.get(field.name, ""), field, row), _unset(hints[field.name]))
        for field in dataclasses.fields(row.config_class)
        if field.name not in OWN
    ]
    name = f"{row.config_class.__name__}{base.__name__}"
    return dataclasses.make_dataclass(name, fields, bases=(base,), frozen=True, kw_only=True)


def set_flags(arguments: Any, algorithm: str) -> dict[str, Any]:
    """The fields of the algorithm's config that the user gave."""
    config = find_algorithm(algorithm).config_class
    hints = typing.get_type_hints(config)
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(config) if f.name not in OWN}
    return {name: value for name, value in values.items() if value != _unset(hints[name])}


def preset_values(row: Algorithm, field: dataclasses.Field[Any]) -> dict[str, Any]:
    """Preset -> its value of the field."""
    return {name: fields.get(field.name, field.default) for name, fields in row.presets.items()}


def as_text(value: Any) -> str:
    """A field's value as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(as_text, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unset(hint: Any) -> Any:
    """What stands for "not given". Switches are off unless given."""
    return False if hint is bool else None


def _flag(hint: Any, doc: str, field: dataclasses.Field[Any], row: Algorithm) -> Any:
    if hint is bool:
        return Annotated[bool, tyro.conf.arg(help=doc), tyro.conf.FlagCreatePairsOff]
    values = {name: as_text(value) for name, value in preset_values(row, field).items()}
    same = set(values.values())
    shown = f"default: {same.pop()}" if len(same) == 1 else f"depends on the preset: see `bsrs presets {row.name}`"
    metavar = {int: "INT", float: "FLOAT"}.get(hint)
    about = tyro.conf.arg(help=doc, metavar=metavar, help_behavior_hint=f"({shown})", aliases=_ALIASES.get(field.name))
    return Annotated[hint | None, about]


def _field_docs(config: type) -> dict[str, str]:
    """The string below each field in the source of the class and its parents."""
    docs: dict[str, str] = {}
    for cls in reversed([c for c in config.__mro__ if dataclasses.is_dataclass(c)]):
        try:
            body = cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
        except (OSError, TypeError):  # a class without a source file
            continue
        for field, doc in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                docs[cast(ast.Name, field.target).id] = " ".join(str(doc.value.value).split())
    return docs


# --------------------------------------------------------------------------------------------------------------
# Completion.


def completion(shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]] = "bash") -> None:
    """Print a script that lets the shell complete commands, flags and their values.

    Args:
        shell: Name the shell. For bash, add `source <(bsrs completion bash)` to ~/.bashrc; for zsh, the same with zsh
            to ~/.zshrc; for fish, `bsrs completion fish | source` to ~/.config/fish/config.fish.
    """
    from bsrs.cli import command_of, commands

    if shell == "fish":
        print(_fish(), end="")
        return
    names = sorted(commands(), key=len, reverse=True)  # `sweep dqn` before `sweep`
    cases = [_case(" ".join(name), flags_of(command_of(name)[0]), _below(names, name)) for name in names]
    groups = sorted({name[0] for name in names if len(name) == 2} - {name[0] for name in names if len(name) == 1})
    cases += [_case(group, {}, _below(names, (group,))) for group in groups]
    first = " ".join(sorted({name[0] for name in names}))
    script = files("bsrs").joinpath("data", "completion.bash").read_text() % {"first": first, "cases": "\n".join(cases)}
    print(script if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{script}", end="")


def _fish() -> str:
    """A line for each command, and one for each of its flags."""
    from bsrs.cli import command_of, commands

    lines, table = ["complete -c bsrs -f"], commands()
    for first in sorted({name[0] for name in table}):
        lines.append(f"complete -c bsrs -n __fish_use_subcommand -a {first}")
    for name, (_, about) in sorted(table.items()):
        given = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name)
        if len(name) == 2:
            told = about.replace("'", "")
            lines.append(f"complete -c bsrs -n '__fish_seen_subcommand_from {name[0]}' -a {name[1]} -d '{told}'")
        for flag, words in flags_of(command_of(name)[0]).items():
            choices = f" -x -a '{' '.join(words)}'" if words else ""
            lines.append(f"complete -c bsrs -n '{given}' -l {flag.removeprefix('--')}{choices}")
    return "\n".join(lines) + "\n"


def _below(names: Iterable[tuple[str, ...]], name: tuple[str, ...]) -> list[str]:
    """The second words of a group of commands."""
    return sorted(other[1] for other in names if len(other) == 2 and len(name) == 1 and other[0] == name[0])


def _case(command: str, flags: dict[str, tuple[str, ...]], more: list[str]) -> str:
    valued = [f'      {flag}) words="{" ".join(words)}" ;;' for flag, words in flags.items() if words]
    rest = f'      *) words="{" ".join([*more, *flags, "--help"])}" ;;'
    return "\n".join([f'    "{command} "*) case "$before" in', *valued, rest, "    esac ;;"])
