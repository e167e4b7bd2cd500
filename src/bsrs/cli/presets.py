"""`bsrs presets [NAME]`: what the presets say."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import tyro

from bsrs.cli.flags import OWN, as_text, preset_values
from bsrs.cli.print_table import print_table
from bsrs.config.algorithms import Algorithm, algorithms
from bsrs.errors import unknown
from bsrs.sweep.plan import preset_names, preset_text


@dataclass(frozen=True)
class PresetsArguments:
    """Which presets are meant."""

    name: Annotated[str, tyro.conf.Positional] = ""
    """An algorithm, for the settings that its presets give; or a sweep preset. Empty lists them all."""


def presets(arguments: PresetsArguments) -> None:
    """List the presets, or print one."""
    rows = {row.name: row for row in algorithms()}
    if arguments.name in rows:
        _print_algorithm(rows[arguments.name])
    elif arguments.name in preset_names():
        print(preset_text(arguments.name).strip())
    elif arguments.name:
        raise unknown("preset", arguments.name, [*rows, *preset_names()])
    else:
        for row in rows.values():
            print(f"{row.name}: {', '.join(row.presets)}")
        print(f"sweeps: {', '.join(preset_names())}")


def _print_algorithm(row: Algorithm) -> None:
    fields = [field for field in dataclasses.fields(row.config_class) if field.name not in OWN]
    table = [{"": f.name, **{name: as_text(v) for name, v in preset_values(row, f).items()}} for f in fields]
    print_table(f"presets of {row.name}", table)
    print("suit: " + ", ".join(f"{pattern} {name}" for pattern, name in row.suits.items()))
