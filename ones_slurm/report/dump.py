"""What somebody saved of `sacct -D`, as `-P` text or as JSON, of any cluster and release: read row by row.

Text may have any columns in any order, users' own text that holds the separator or line breaks, another dump behind the
first, and an end in the middle of a line. What cannot be read is counted and shown, never lost without a word.
"""

import functools
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

import msgspec

from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.slurm.accounting import read_row
from ones_slurm.slurm.accounting_json import RawRow, read_row_json, read_rows_json
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.jobids import read_job_id

NEEDED = ("JobID", "State", "Submit", "Start", "End", "NodeList")
USED = (*NEEDED, "JobIDRaw", "User", "Account", "Partition", "JobName", "Eligible", "NNodes", "NCPUS", "AllocTRES")
# A number last: in a last column that holds users' text nobody can tell a line break from the end of the row.
_ALSO_USED = ("Comment", "SubmitLine", "ExitCode", "Timelimit")
_HOW = f"make one with `sacct -D -P -X -a -S <when> -o {','.join((*USED, *_ALSO_USED))}`"
# Users' own text, in which the separator and line breaks may stand.
_FREE_TEXT = ("JobName", "Comment", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Extra", "Reason")
_NO_TIME = {"Unknown", "None", ""}
# Ours: a script in a `--wrap` has no more lines than that; a broken line must not swallow the rest of a file.
_MOST_LINES = 200
_SHOWN = 3


class Dump(msgspec.Struct, frozen=True):
    """The rows of jobs (steps are left out), and how many lines could not be read."""

    rows: tuple[AccountingRow, ...]
    unreadable: int = 0

    @property
    def last_s(self) -> float:
        """The latest moment that any row knows of: until then, at least, its running jobs ran."""
        return max(map(last_of, self.rows), default=0.0)


def read_dump(path: Path) -> Dump:
    """All of a file at once. Raises `NotFound` or `UsageError` that says how to make one."""
    saved = Saved(path)
    return Dump(tuple(saved), saved.unreadable)


def last_of(row: AccountingRow) -> float:
    """The latest moment that a row knows of."""
    return max(row.submit_s, row.start_s or 0.0, row.end_s or 0.0)


class Saved:
    """The rows of a file, to be gone through once; what is said about them is known afterwards.

    `unreadable` counts what is no row, `examples` shows the first of it, `others` counts rows of clusters other than
    the first (ids of two clusters mean different jobs), `last_s` is the latest moment that a row knows of.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable = 0
        self.examples: list[str] = []
        self.cluster = ""
        self.others: Counter[str] = Counter()
        self.last_s = 0.0

    @functools.cached_property
    def digest(self) -> bytes:
        """What tells this file from any other."""
        with self._opened() as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()

    @property
    def lost(self) -> list[str]:
        """What was left out, in words."""
        said = [f"{count} rows of cluster {name} are left out" for name, count in self.others.items()]
        if self.unreadable:
            shown = ", ".join(repr(line[:60]) for line in self.examples)
            said.append(f"{self.unreadable} lines are no rows of sacct and are not counted, such as {shown}")
        return said

    def __iter__(self) -> Iterator[AccountingRow]:
        with self._opened() as file:
            start = file.read(1024).lstrip()
        for row in self._of_json() if start.startswith(b"{") else self._of_text():
            self.last_s = max(self.last_s, last_of(row))
            yield row

    def _of_json(self) -> Iterator[AccountingRow]:
        text = self.path.read_bytes()
        try:
            yield from read_rows_json(text)
        except msgspec.MsgspecError as error:
            found = list(_salvaged(text.decode("utf-8", "replace")))
            if not found:
                raise UsageError(
                    f"{self.path} is no answer of sacct --json: {error}",
                    hint="make one with `sacct -D --json -a -S <when>`",
                ) from error
            self._lose([f"what follows {len(found)} jobs ({error})"])
            yield from found

    def _of_text(self) -> Iterator[AccountingRow]:
        with self._opened() as file:
            lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in file)
            header = next(lines, "")
            reader = _Reader(header, self.path)
            begun: list[str] = []  # lines that are no row, and may be the beginning of one
            for line in lines:
                found = reader.read(line)
                if found is None and line != header:  # two dumps, one behind the other
                    begun.append(line)
                    found = reader.read("\n".join(begun)) if reader.may_be_whole(begun) else None
                    if found is None:
                        begun = self._give_up(begun, reader)
                        continue
                    begun = []
                if begun:
                    self._lose(begun)
                    begun = []
                if found and self._is_ours(reader.cluster):
                    yield found[0]
            self._lose(begun)

    def _give_up(self, begun: list[str], reader: "_Reader") -> list[str]:
        """What may still become a row together with the next lines."""
        keep = begun[-1:] if reader.may_be_whole(begun) or len(begun) > _MOST_LINES else begun
        if reader.may_be_whole(keep):
            keep = []
        self._lose(begun[: len(begun) - len(keep)])
        return keep

    def _is_ours(self, cluster: str) -> bool:
        self.cluster = self.cluster or cluster
        if cluster and cluster != self.cluster:
            self.others[cluster] += 1
            return False
        return True

    def _lose(self, lines: Sequence[str]) -> None:
        lost = [line for line in lines if line.strip()]
        self.unreadable += len(lost)
        self.examples += lost[: _SHOWN - len(self.examples)]

    def _opened(self) -> BufferedReader:
        try:
            return self.path.open("rb")
        except FileNotFoundError as error:
            raise NotFound(f"there is no file {self.path}", hint=_HOW) from error
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", hint=_HOW) from error


def _salvaged(text: str) -> Iterator[AccountingRow]:
    """The jobs that stand whole at the beginning of an answer that breaks off, or goes wrong further on."""
    decoder = json.JSONDecoder()
    begin = re.search(r'"jobs"\s*:\s*\[', text)
    at = begin.end() if begin else len(text)
    while match := re.compile(r"[\s,]*(?={)").match(text, at):
        try:
            job, at = decoder.raw_decode(text, match.end())
            yield read_row_json(msgspec.convert(job, RawRow, strict=False))
        except (ValueError, msgspec.MsgspecError):
            return


class _Reader:
    """Reads lines by the columns that the first one names. `cluster` is that of the row last read."""

    def __init__(self, header: str, path: Path) -> None:
        self._names = header.split("|")
        missing = [name for name in NEEDED if name not in self._names]
        if missing:
            raise UsageError(f"the first line of {path} names no column {', '.join(missing)}", hint=_HOW)
        self._unasked = {name: "" for name in (*USED, *_ALSO_USED) if name not in self._names}
        self.cluster = ""

    def may_be_whole(self, lines: Sequence[str]) -> bool:
        """Whether these lines hold enough fields for a row."""
        return sum(line.count("|") for line in lines) >= len(self._names) - 1

    def read(self, line: str) -> list[AccountingRow] | None:
        """The row, nothing for a step, None for what is no row."""
        parts = line.split("|")
        for fields in self._ways_to_split(parts):
            fields.update(self._unasked)
            fields["JobIDRaw"] = fields["JobIDRaw"] or fields["JobID"]
            row = read_row(fields)
            if _is_row(row, fields):
                self.cluster = fields.get("Cluster", "")
                return [] if "." in row.job_id else [row]
        return None

    def _ways_to_split(self, parts: list[str]) -> Iterable[dict[str, str]]:
        """The fields by column; where there are too many, each free text in turn is taken to hold the separator."""
        extra = len(parts) - len(self._names)
        if extra == 0:
            return (dict(zip(self._names, parts, strict=True)),)
        return self._with_separators(parts, extra) if extra > 0 else ()

    def _with_separators(self, parts: list[str], extra: int) -> Iterator[dict[str, str]]:
        for at in (number for number, name in enumerate(self._names) if name in _FREE_TEXT):
            whole = "|".join(parts[at : at + extra + 1])
            yield dict(zip(self._names, [*parts[:at], whole, *parts[at + extra + 1 :]], strict=True))


def _is_row(row: AccountingRow, fields: dict[str, str]) -> bool:
    """Whether the columns stand where they belong."""
    return (
        row.submit_s > 0
        and (row.job_id.isdecimal() or read_job_id(row.job_id) is not None)
        and (row.start_s is not None or fields["Start"] in _NO_TIME)
        and (row.end_s is not None or fields["End"] in _NO_TIME)
        and row.state.isupper()
    )
