"""The report as text: aligned for people and pipes, `|`-separated for scripts, coloured on a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ones_slurm.report.column import Column
from ones_slurm.report.columns import columns_of
from ones_slurm.report.figures import job_figures, totals
from ones_slurm.report.lines import job_line, lines_of, totals_line
from ones_slurm.report.segment_columns import COLUMNS, OF_THE_JOB
from ones_slurm.report.segments import JobHistory

if TYPE_CHECKING:
    from rich.console import Console

Chosen = Sequence[tuple[Column, int]]
DEFAULT: Chosen = tuple((column, 0) for column in COLUMNS if column.default and column.key not in OF_THE_JOB)
EVERYTHING: Chosen = tuple((column, 0) for column in COLUMNS)


def parsable(jobs: Sequence[JobHistory], columns: Chosen = EVERYTHING) -> Iterator[str]:
    """A header and one line a segment, `|` between the fields, as `sacct -P` has it; a `|` within one becomes `¦`."""
    yield "|".join(column.title for column, _ in columns)
    for job in jobs:
        for row in _rows(job, [(column, 0) for column, _ in columns]):
            yield "|".join(value.replace("|", "¦") for value in row)


def plain(jobs: Sequence[JobHistory], columns: Chosen = DEFAULT) -> Iterator[str]:
    """Column titles, then per job one line on it and one a segment, then the totals; as wide as the longest value."""
    titles = [_fitted(column.title, width) for column, width in columns]
    rows = {id(job): _rows(job, columns) for job in jobs}
    every = [titles, *(row for job in jobs for row in rows[id(job)])]
    widths = [max(map(len, values)) for values in zip(*every, strict=True)]
    yield _aligned(titles, columns, widths)
    for job in jobs:
        yield _printable(job_line(job, job_figures(job)))
        for row in rows[id(job)]:
            yield _aligned(row, columns, widths)
    yield totals_line(totals(map(job_figures, jobs)))


def default_of(by: str) -> Chosen:
    """The columns that a table of jobs or sums shows unasked."""
    return tuple((column, 0) for column in columns_of(by) if column.default)


def everything_of(by: str) -> Chosen:
    """All of them."""
    return tuple((column, 0) for column in columns_of(by))


def parsable_rows(lines: Sequence[Any], columns: Chosen) -> Iterator[str]:
    """A table of jobs or sums as `sacct -P` has it."""
    yield "|".join(column.title for column, _ in columns)
    for line in lines:
        yield "|".join(_printable(column.show(column.value(line))).replace("|", "¦") for column, _ in columns)


def plain_rows(lines: Sequence[Any], columns: Chosen) -> Iterator[str]:
    """A table of jobs or sums, as wide as its longest values."""
    titles = [_fitted(column.title, width) for column, width in columns]
    rows = [
        [_fitted(_printable(column.show(column.value(line))), width) for column, width in columns] for line in lines
    ]
    widths = [max(map(len, values)) for values in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        yield _aligned(row, columns, widths).removeprefix("  ")


def on_terminal(console: "Console", lines: Iterable[str]) -> None:
    """Lines in colours. One wider than the terminal runs on: that reads easier than folded cells."""
    from rich.text import Text  # here: most reports go into a file or a pipe

    for number, line in enumerate(lines):
        style = "dim" if number == 0 else "" if line.startswith(" ") else "bold"
        console.print(Text(line, style=style), soft_wrap=True)


def _rows(job: JobHistory, columns: Chosen) -> list[list[str]]:
    return [
        [_fitted(_printable(column.show(column.value(line))), width) for column, width in columns]
        for line in lines_of(job)
    ]


def _fitted(value: str, width: int) -> str:
    """To a width that was asked for, as Slurm cuts: a `+` marks what is missing. 0 asks for none."""
    if width == 0:
        return value
    cut = value if len(value) <= abs(width) else value[: abs(width) - 1] + "+"
    return cut.rjust(width) if width > 0 else cut.ljust(-width)


def _aligned(row: Sequence[str], columns: Chosen, widths: Sequence[int]) -> str:
    cells = [
        value.rjust(width) if column.right else value.ljust(width)
        for value, (column, _), width in zip(row, columns, widths, strict=True)
    ]
    return "  " + "  ".join(cells).rstrip()


def _printable(value: str) -> str:
    """Names of jobs are whatever users typed: nothing in them may steer a terminal or break a line."""
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else "?" for char in value)
