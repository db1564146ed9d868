"""What somebody saved of `sacct`, as text or as JSON."""

import pathlib

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.report.dump import Dump, read_dump
from ones_slurm.slurm.accounting_json import read_rows_json


def read_saved(path: pathlib.Path) -> Dump:
    """The rows of `sacct -D -P` or `sacct -D --json`. Raises `NotFound` or `UsageError` that names the file."""
    if not _is_json(path):
        return read_dump(path)
    try:
        return Dump(tuple(read_rows_json(path.read_bytes())))
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path} is no answer of sacct --json: {error}", hint="make one with `sacct -D --json -a -S <when>`"
        ) from error


def is_saved(path: pathlib.Path) -> bool:
    """Whether a file looks like an answer of sacct, rather than like a trace."""
    try:
        with path.open("rb") as file:
            heading = file.read(4096).partition(b"\n")[0]
    except OSError:
        return False
    return _is_json(path) or b"JobID" in heading.strip().split(b"|")


def _is_json(path: pathlib.Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(1024).lstrip().startswith(b"{")
    except OSError:
        return False  # the reader of text says why
