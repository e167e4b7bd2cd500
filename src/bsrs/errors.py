"""Errors that are the user's to fix: one sentence that says what, where, and what was expected."""

import difflib
import importlib
import sys
from collections.abc import Iterable
from typing import Any


class BadInput(ValueError):
    """Something the user gave cannot be used. The command line prints the sentence and exits with code 2."""


class MissingExtra(BadInput):
    """A part that needs an optional dependency was asked for where that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs a package that is not installed: pip install 'bsrs[{extra}]'")


def optional(module: str, what: str, extra: str) -> Any:
    """The module of an optional dependency that `what` needs, or a sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(what, extra) from None


class EnvFault(RuntimeError):
    """An env broke its promises: it gave something that is not a number, or did not repeat itself."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """`BadInput` for a name that is not among the known ones, with the nearest of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(names[:12])}"
    return BadInput(f"unknown {kind} {name!r}: {hint}")


def say(what: str) -> None:
    """A line that the user should see although nothing is wrong: what happens is not what everybody would expect."""
    print(f"bsrs: {printable(what)}", file=sys.stderr)


def printable(text: str, keep: str = "") -> str:
    """The text without anything that acts on a terminal: control characters and their kin are spelt out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
