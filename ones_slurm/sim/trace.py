"""Traces: who submitted what and when. One row kind for all formats, which are told apart by their headings.

`jobs` is our own format, with a column for each field of `Row`; the others are those of published traces.
"""

import datetime
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.sim.rows import BadRow, Column, heading, read_rows

# No job needs more (ours; it only keeps a slip of the pen from being simulated).
MAX_GPUS = 1_000_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a trace; `submit_s` counts from the trace's own zero.

    Either `duration_s` on `gpus` GPUs is known, or `application` says what it trains, at the global batch `batch`.
    `low_gpus` and `high_gpus` are the sizes between which it may be moved; 0 keeps it as it is. `line` is where it was.
    """

    job_id: str
    submit_s: float
    gpus: int
    duration_s: float = 0.0
    application: str = ""
    batch: int = 0
    low_gpus: int = 0
    high_gpus: int = 0
    time_limit_s: float = 0.0
    user: str = "user"
    partition: str = ""
    line: int = 0


class Format(msgspec.Struct, frozen=True):
    """`build` makes a row of the cells; `sorted_by` is the column that may not go backwards, if any."""

    columns: tuple[Column, ...]
    build: Callable[[dict[str, Any]], Row]
    sorted_by: str = ""


def seconds(text: str) -> float:
    """A finite number of seconds, not negative."""
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("a number of seconds from 0 is needed")
    return value


def some_seconds(text: str) -> float:
    """More than no seconds."""
    if (value := seconds(text)) <= 0:
        raise ValueError("more than 0 s is needed")
    return value


def gpus(text: str) -> int:
    """A number of GPUs, at least one."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or not 1 <= int(text) <= MAX_GPUS:
        raise ValueError(f"a number of GPUs from 1 to {MAX_GPUS} is needed")
    return int(text)


def whole(text: str) -> int:
    """A whole number, not negative."""
    if not re.fullmatch(r"[0-9]{1,12}", text.strip()):
        raise ValueError("a whole number from 0 is needed")
    return int(text)


def named(text: str) -> str:
    """A name of something."""
    if not text.strip():
        raise ValueError("it may not be empty")
    return text.strip()


def timestamp(text: str) -> float:
    """Seconds of a date and time without a zone, which is taken as UTC."""
    return datetime.datetime.fromisoformat(text.strip()).replace(tzinfo=datetime.UTC).timestamp()


def _own(cells: dict[str, Any]) -> Row:
    return Row(**{name: value for name, value in cells.items() if name}, line=cells[""])


def _pollux(cells: dict[str, Any]) -> Row:
    return Row(
        job_id=cells["name"],
        submit_s=cells["time"],
        gpus=cells["num_replicas"],
        application=cells["application"],
        batch=cells["batch_size"],
        line=cells[""],
    )


def _philly(cells: dict[str, Any]) -> Row:
    return Row(
        job_id=f"philly-{cells['']}",
        submit_s=cells["timestamp"],
        gpus=cells["num_gpus"],
        duration_s=cells["duration"],
        partition=cells["cluster"],
        line=cells[""],
    )


def _elasticflow(cells: dict[str, Any]) -> Row:
    return Row(
        job_id=cells["job_id"],
        submit_s=cells["submission_time"],
        gpus=cells["num_gpu"],
        duration_s=cells["duration"],
        line=cells[""],
    )


_OWN: dict[str, Callable[[str], Any]] = {
    "job_id": named,
    "submit_s": seconds,
    "gpus": gpus,
    "duration_s": seconds,
    "application": str.strip,
    "batch": whole,
    "low_gpus": whole,
    "high_gpus": whole,
    "time_limit_s": seconds,
    "user": named,
    "partition": str.strip,
}
FORMATS = {
    "jobs": Format(tuple(Column(name, parse) for name, parse in _OWN.items()), _own, "submit_s"),
    "pollux": Format(
        (
            Column("name", named),
            Column("time", seconds),
            Column("application", named),
            Column("num_replicas", gpus),
            Column("batch_size", whole),
        ),
        _pollux,
        "time",
    ),
    "philly": Format(
        (
            Column("timestamp", timestamp),
            Column("duration", some_seconds),
            Column("num_gpus", gpus),
            Column("cluster", str.strip),
        ),
        _philly,
    ),
    "elasticflow": Format(
        (
            Column("job_id", named),
            Column("submission_time", seconds),
            Column("num_gpu", gpus),
            Column("duration", some_seconds),
        ),
        _elasticflow,
    ),
}


def read_trace(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    bad: Callable[[BadRow], None] | None = None,
    read: Callable[[int], None] | None = None,
) -> list[Row]:
    """All jobs of a trace in the order of submission, from the first job's second on.

    `bad` and `read` as in `read_rows`. Raises `UsageError` for a file of no known format, and for one without a job.
    """
    place = pathlib.Path(path)
    form = FORMATS[name or format_of(place)]
    rows = sorted(_checked(place, form, bad, read), key=lambda row: (row.submit_s, row.line))
    if not rows:
        raise UsageError(f"{place}: there is no job in it that could be used")
    if rows[0].submit_s > 0 and form is FORMATS["philly"]:
        rows = [msgspec.structs.replace(row, submit_s=row.submit_s - rows[0].submit_s) for row in rows]
    return rows


def format_of(path: pathlib.Path) -> str:
    """The format whose columns a file has."""
    there = set(heading(path))
    for name, form in FORMATS.items():
        if {column.name for column in form.columns} <= there:
            return name
    near = max(FORMATS, key=lambda name: sum(column.name in there for column in FORMATS[name].columns))
    missing = next(column.name for column in FORMATS[near].columns if column.name not in there)
    raise UsageError(
        f"{path}:1: the heading is of no known trace; for one of {near} the column {missing!r} is missing",
        hint="; ".join(f"{name}: {', '.join(c.name for c in form.columns)}" for name, form in FORMATS.items()),
    )


def write_trace(rows: Iterable[Row]) -> Iterator[str]:
    """The lines of a file in our own format."""
    yield ",".join(_OWN) + "\n"
    for row in rows:
        yield ",".join(_cell(getattr(row, name)) for name in _OWN) + "\n"


def _checked(
    path: pathlib.Path, form: Format, bad: Callable[[BadRow], None] | None, read: Callable[[int], None] | None
) -> Iterator[Row]:
    latest_s, names = 0.0, set()
    for cells in read_rows(path, form.columns, bad=bad, read=read):
        row = form.build(cells)
        error = None
        if form.sorted_by and row.submit_s < latest_s:
            error = BadRow(path, row.line, form.sorted_by, f"{row.submit_s:g} goes back behind {latest_s:g}")
        elif row.job_id in names:
            error = BadRow(path, row.line, form.columns[0].name, f"there are two jobs {row.job_id!r}")
        elif not row.application and not row.duration_s:
            error = BadRow(path, row.line, "duration_s", "it has neither a duration nor an application")
        elif row.high_gpus < row.low_gpus:
            error = BadRow(path, row.line, "high_gpus", f"{row.high_gpus} is less than low_gpus, {row.low_gpus}")
        if error is None:
            latest_s = row.submit_s
            names.add(row.job_id)
            yield row
        elif bad is None:
            raise error
        else:
            bad(error)


def _cell(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def largest(rows: Sequence[Row]) -> Row:
    """The job that needs the most GPUs at least."""
    return max(rows, key=lambda row: row.low_gpus or row.gpus)
