"""`bsrs completion SHELL`: a script that lets the shell complete commands, flags and their values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class CompletionArguments:
    """Which shell is meant."""

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional] = "bash"
    """For bash put `source <(bsrs completion bash)` into ~/.bashrc; likewise zsh into ~/.zshrc."""


def completion(arguments: CompletionArguments) -> None:
    """Print the script."""
    from bsrs.cli import arguments_of, commands
    from bsrs.cli.parse import flags_of

    names = sorted(commands(), key=len, reverse=True)  # `sweep dqn` before `sweep`
    cases = [_case(" ".join(name), flags_of(arguments_of(name)), _below(names, name)) for name in names]
    groups = sorted({name[0] for name in names if len(name) == 2} - {name[0] for name in names if len(name) == 1})
    cases += [_case(group, {}, _below(names, (group,))) for group in groups]
    first = " ".join(sorted({name[0] for name in names}))
    print(_SCRIPT[arguments.shell] % {"first": first, "cases": "\n".join(cases)})


def _below(names: Iterable[tuple[str, ...]], name: tuple[str, ...]) -> list[str]:
    """The second words of a group of commands."""
    return sorted(other[1] for other in names if len(other) == 2 and len(name) == 1 and other[0] == name[0])


def _case(command: str, flags: dict[str, tuple[str, ...]], more: list[str]) -> str:
    valued = [f'      {flag}) words="{" ".join(words)}" ;;' for flag, words in flags.items() if words]
    rest = f'      *) words="{" ".join([*more, *flags, "--help"])}" ;;'
    return "\n".join([f'    "{command} "*) case "$before" in', *valued, rest, "    esac ;;"])


_BASH = """_bsrs() {
  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""
  case "${COMP_WORDS[*]:1:COMP_CWORD-1} " in
    " ") words="%(first)s --help --version" ;;
%(cases)s
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _bsrs bsrs"""
_SCRIPT = {"bash": _BASH, "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}"}
