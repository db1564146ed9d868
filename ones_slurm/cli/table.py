"""Tables as data: a column is declared once, and the terminal, a pipe, `-o` and the help all use it."""

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import click
import msgspec

from ones_slurm.model.errors import UsageError

Row = TypeVar("Row")


class Column(msgspec.Struct, Generic[Row], frozen=True):
    """`name` is what `-o` takes and, in capitals, the heading. `width` 0 is as wide as the longest cell.

    `what` explains it in the help, `default` says whether it is shown unasked.
    """

    name: str
    cell: Callable[[Row], str]
    right: bool = False
    width: int = 0
    what: str = ""
    default: bool = True


def choose(columns: Sequence[Column[Row]], format: str | None) -> list[Column[Row]]:
    """The columns of `-o name,name%width`, in that order; those shown unasked without `-o`.

    Raises `UsageError` that names every column there is.
    """
    if format is None:
        return [column for column in columns if column.default]
    known = {column.name: column for column in columns}
    chosen = []
    for word in format.split(","):
        name, sign, width = word.strip().lower().partition("%")
        if name not in known or (sign and not width.isdecimal()):
            raise UsageError(f"-o {word.strip()!r} is not a column", hint=f"columns: {', '.join(known)}; as name%width")
        chosen.append(msgspec.structs.replace(known[name], width=int(width or 0)))
    return chosen


def explained(columns: Sequence[Column[Row]]) -> str:
    """The columns with their meanings, for the end of a command's help."""
    width = max(len(column.name) for column in columns)
    return "\b\nColumns:\n" + "\n".join(f"  {column.name.ljust(width)}  {column.what}" for column in columns)


def render(columns: Sequence[Column[Row]], rows: Sequence[Row], *, fit: int | None = None, header: bool = True) -> str:
    """Plain text, one line a row. With `fit` the last column is cut so that a line has at most `fit` characters."""
    table = [[plain(column.cell(row)) for column in columns] for row in rows]
    if header:
        table.insert(0, [column.name.upper() for column in columns])
    widths = [column.width or max((len(line[i]) for line in table), default=0) for i, column in enumerate(columns)]
    lines = []
    for line in table:
        cells = [
            (cell[:width].rjust(width) if column.right else cell[:width].ljust(width))
            for cell, column, width in zip(line, columns, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip()[:fit])
    return "\n".join(lines)


def show(columns: Sequence[Column[Row]], rows: Sequence[Row], *, header: bool = True) -> None:
    """Prints the table: cut to the window and with a bold heading on a terminal, whole and plain elsewhere."""
    if not sys.stdout.isatty():
        click.echo(render(columns, rows, header=header))
        return
    text = render(columns, rows, fit=shutil.get_terminal_size().columns, header=header)
    heading, newline, body = text.partition("\n")
    click.echo(click.style(heading, bold=header) + newline + body)


def plain(cell: str) -> str:
    """Job names and reasons are untrusted: nothing in them may break a line or steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in cell)
