"""Tables in text files, read row by row with errors that name file, line and column.

A file may be anything: empty, of another encoding, a line without an end. It is read no further than needed to say so.
"""

import csv
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ones_slurm.model.errors import NotFound, UsageError

# A longer line is no row of a trace (ours; the longest real ones, with a whole node list, have some thousand bytes).
MAX_LINE_BYTES = 1 << 20


class Column(msgspec.Struct, frozen=True):
    """`parse` makes a value of the text, or raises ValueError with what was wrong. Other columns are passed over."""

    name: str
    parse: Callable[[str], Any]


class BadRow(UsageError):
    """One row that cannot be used; the others may be."""

    def __init__(self, path: pathlib.Path, line: int, column: str, what: str, *, hint: str | None = None) -> None:
        where = f"{path}:{line}" + (f", column {column}" if column else "")
        super().__init__(f"{where}: {what}", hint=hint)
        self.line = line


def read_rows(
    path: str | os.PathLike[str],
    columns: Sequence[Column],
    *,
    delimiter: str = ",",
    bad: Callable[[BadRow], None] | None = None,
    read: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """The rows below the heading, as name → value, with the line number under "".

    A bad row is handed to `bad`, or raised where there is none; what makes all rows unreadable (no heading, a missing
    column) is always raised. `read` is told the bytes of each line, for a progress bar.
    """
    place = pathlib.Path(path)
    lines = _lines(place, read)
    named = _heading(place, lines, delimiter)
    table = _Table(place, columns, _places(place, named, columns), len(named))
    for number, line in lines:
        try:
            if isinstance(line, BadRow):
                raise line
            if line.strip():
                yield table.row(number, _cells(line, delimiter))
        except BadRow as error:
            if bad is None:
                raise
            bad(error)


def heading(path: pathlib.Path, delimiter: str = ",") -> list[str]:
    """The names of the columns. Raises `UsageError` for a file that has none."""
    return _heading(path, _lines(path, None), delimiter)


class _Table(NamedTuple):
    path: pathlib.Path
    columns: Sequence[Column]
    places: list[int]
    width: int

    def row(self, number: int, cells: list[str]) -> dict[str, Any]:
        if len(cells) != self.width:
            raise BadRow(self.path, number, "", f"{len(cells)} fields, and the heading has {self.width}")
        row: dict[str, Any] = {"": number}
        for column, place in zip(self.columns, self.places, strict=True):
            try:
                row[column.name] = column.parse(cells[place])
            except (ValueError, OverflowError) as error:
                said = f"{cells[place][:60]!r} cannot be read: {error}"
                raise BadRow(self.path, number, column.name, said) from error
        return row


def _heading(path: pathlib.Path, lines: Iterator[tuple[int, str | BadRow]], delimiter: str) -> list[str]:
    _, first = next(lines, (0, None))
    if first is None or first == "":
        raise UsageError(f"{path}: the file is empty", hint="its first line should name the columns")
    if isinstance(first, BadRow):
        raise first
    return [name.strip() for name in _cells(first, delimiter)]


def _places(path: pathlib.Path, named: list[str], columns: Sequence[Column]) -> list[int]:
    for column in columns:
        if column.name not in named:
            raise UsageError(
                f"{path}:1: there is no column {column.name!r}",
                hint=f"needed: {_names(columns)}; found: {', '.join(named)[:200]}",
            )
    return [named.index(column.name) for column in columns]


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, strict=False), [])


def _lines(path: pathlib.Path, read: Callable[[int], None] | None) -> Iterator[tuple[int, str | BadRow]]:
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if read is not None:
                    read(len(raw))
                if len(raw) > MAX_LINE_BYTES:
                    raise BadRow(path, number, "", f"longer than {MAX_LINE_BYTES} bytes, so it is no row of a table")
                yield number, _text(path, number, raw)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _text(path: pathlib.Path, number: int, raw: bytes) -> str | BadRow:
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in raw.rstrip(b"\r\n"):
        return BadRow(path, number, "", "holds a carriage return in the middle; lines end with \\n or \\r\\n")
    if b"\0" in raw:
        return BadRow(path, number, "", "holds zero bytes, so this is no text file")
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        hint = f"it may be GBK: iconv -f GBK -t UTF-8 {path.name} > utf8.csv" if _is_gbk(raw) else None
        column = str(raw[: error.start].count(b",") + 1)
        return BadRow(path, number, column, f"byte {error.start + 1} is not UTF-8", hint=hint)


def _is_gbk(raw: bytes) -> bool:
    try:
        raw.decode("gbk")
    except UnicodeDecodeError:
        return False
    return True


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)
