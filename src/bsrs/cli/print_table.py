"""Tables in a terminal."""

from typing import Any

from bsrs.errors import printable


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Rows that share their keys, as a table; nothing where there are none."""
    if not rows:
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    Console().print(table)


def _cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else "–" if value is None else printable(str(value))
