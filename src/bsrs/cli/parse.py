"""From words to a command's dataclass, by tyro, with what is wrong in one sentence; and the flags of a command."""

import contextlib
import dataclasses
import difflib
import io
import re
import typing
from typing import Any, Literal

from bsrs.errors import BadInput


def parse(arguments_type: Any, words: list[str], prog: str, description: str) -> Any:
    """The dataclass that the words spell."""
    import tyro

    flags = flags_of(arguments_type)
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if re.fullmatch(r"--[a-z][\w-]*", flag) and flag not in flags and not flag.startswith(("--help", "--tyro-")):
            raise _unknown_flag(flag, flags, prog)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments, left = tyro.cli(
                arguments_type, args=words, prog=prog, description=description, return_unknown_args=True
            )
    except SystemExit as stop:
        if stop.code:
            raise BadInput(f"{_sentence(said.getvalue())} (see {prog} --help)") from None
        raise
    if left:
        raise BadInput(f"{left[0]!r} is one word too many for {prog} (see {prog} --help)")
    return arguments


def flags_of(arguments_type: Any) -> dict[str, tuple[str, ...]]:
    """Every flag of a command -> the words it takes, where these are given."""
    flags: dict[str, tuple[str, ...]] = {}
    hints = typing.get_type_hints(arguments_type, include_extras=True)
    for field in dataclasses.fields(arguments_type):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        if any("Positional" in str(mark) for mark in marks):
            continue
        name = field.name.replace("_", "-")
        aliases = [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]
        pair = [f"--no-{name}"] if (hint if not marks else hint.__origin__) is bool and not marks else []
        flags |= dict.fromkeys([f"--{name}", *pair, *aliases], _choices(hint))
    return flags


def _choices(hint: Any) -> tuple[str, ...]:
    """The words of a Literal, wherever it is in the type."""
    if typing.get_origin(hint) is Literal:
        return tuple(map(str, typing.get_args(hint)))
    inner = (hint.__origin__,) if hasattr(hint, "__metadata__") else typing.get_args(hint)
    return tuple(word for part in inner for word in _choices(part))


def _unknown_flag(flag: str, flags: dict[str, Any], prog: str) -> BadInput:
    near = difflib.get_close_matches(flag, flags, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"{prog} --help lists all"
    return BadInput(f"unknown flag {flag}: {hint}")


def _sentence(box: str) -> str:
    """tyro's error without its frame, its colours and all that follows the first paragraph."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    text = re.sub(r"^╭.*$|^[^\n]*\n *-+ *$", "", text, count=1, flags=re.MULTILINE)  # the title
    lines = [line.strip(" │") for line in text.strip().splitlines()]
    end = next((i for i, line in enumerate(lines) if set(line) <= set("─-")), len(lines))
    sentence = " ".join(" ".join(lines[:end]).split())
    sentence = re.sub(r"no type matching \{None\}\|(.+?) could be instantiated from", r"expected \1, not", sentence)
    sentence = sentence.replace("('None', ", "(")
    sentence = re.sub(r"^Error parsing [A-Z]\w*: ", "", sentence)  # what a config itself says needs no name of a class
    return re.sub(r"Error parsing \S*/", "Error parsing ", sentence).rstrip(".")  # of several names the last
