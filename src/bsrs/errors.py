"""Errors that are the user's to fix: one sentence that says what, where, and what was expected."""

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from typing import Any


class BadInput(ValueError):
    """Input that cannot be used. The command line prints the message and exits with code 2."""


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


def in_short(error: BaseException) -> str:
    """What went wrong in code that is not ours, and where, in one line; what to do about a module that is missing."""
    first = next(iter(str(error).strip().splitlines()), "without a word")
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        installed = importlib.util.find_spec(package) is not None
        return f"{first}; " + (f"another version of {package} may have it" if installed else f"install {package}")
    frames = traceback.extract_tb(error.__traceback__)
    packages = [_package_of(frame.filename) for frame in frames]
    foreign = [package for package in packages if package not in ("bsrs", "gymnasium")]
    advice = f"; another version of {foreign[0]}, or of what it needs, may work" if foreign and foreign[0] else ""
    return f"{type(error).__name__}: {first} ({frames[-1].filename}:{frames[-1].lineno}){advice}"


def _package_of(file: str) -> str:
    """Return the installed package that a source file belongs to; nothing for your own files."""
    for folder in ("/site-packages/", "/dist-packages/", "/src/bsrs/"):
        if folder in (path := file.replace("\\", "/")):
            return (
                "bsrs" if folder == "/src/bsrs/" else path.rpartition(folder)[2].partition("/")[0].removesuffix(".py")
            )
    return ""


class EnvFault(BadInput):
    """An env broke its promises: it raised an error, or gave something that is not what its spaces say."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """`BadInput` for a name that is not among the known ones, with the nearest of them."""
    names = sorted(known)
    near = nearest(name, names, cutoff=0.5)
    hint = f"did you mean {near}?" if near else f"expected one of {listed(by_closeness(name, names))}"
    return BadInput(f"unknown {kind} {name!r}: {hint}")


def nearest(name: str, known: Iterable[str], cutoff: float, most: int = 3) -> str:
    """The known names that are most like `name`, the closest first, as a choice; empty if none is."""
    names = list(known)
    exact = [each for each in names if each.lower() == name.lower()]
    near = list(dict.fromkeys([*exact, *difflib.get_close_matches(name, names, n=most, cutoff=cutoff)]))[:most]
    return " or ".join(near)


def by_closeness(name: str, known: Iterable[str]) -> list[str]:
    """The known names, those most like `name` first."""
    return sorted(known, key=lambda each: -difflib.SequenceMatcher(None, name.lower(), each.lower()).ratio())


def listed(names: Iterable[str], most: int = 12) -> str:
    """Names as a list, which ends in "..." where it is cut."""
    names = list(names)
    return ", ".join([*names[:most], "..."] if len(names) > most else names)


def say(what: str) -> None:
    """A line that the user should see although nothing is wrong: what happens is not what everybody would expect."""
    print(f"bsrs: {printable(what)}", file=sys.stderr)


def printable(text: str, keep: str = "") -> str:
    """The text without anything that acts on a terminal: control characters and their kin are spelt out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
