"""The ledger: what is known of the jobs of one cluster, in one SQLite file, for any question about the past.

It is filled from accounting as often as anybody likes (`ledger_intake.py`), in one transaction each time, and answers
from there. A reader sees all of an intake or nothing of it. There is nothing in it that accounting and the journal do
not have, so it can be deleted at any time.
"""

import os
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, Self

from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.report import ledger_schema
from ones_slurm.report.companions import folded
from ones_slurm.report.ledger_intake import Taken, derive, merge
from ones_slurm.report.segments import JobHistory, Oddity, Segment, in_order, settled
from ones_slurm.report.selection import Selection
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.hostlists import expand

# Ours: a reader waits that long for another's intake.
_BUSY_S = 60.0

# A number stands for all tasks and components, for the one that has it as its own id, and for a companion's base.
_NUMBERED = (
    "(job = ? or (job, job_id) in (select job, job_id from rows where raw_id = ? and raw_id <> job_id) "
    "or job in (select owner from jobs where base <> '' and job = ?))"
)


class Ledger:
    """One ledger file (`Ledger.open`), or one that is gone when it is closed (`Ledger.open(None)`)."""

    def __init__(self, db: sqlite3.Connection, place: str) -> None:
        self._db, self._place = db, place

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None) -> Self:
        """The ledger of that name, made if there is none. Raises `Failed` when the file cannot be used."""
        place = pathlib.Path(path) if path is not None else None
        try:
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch(mode=0o600)  # others' jobs may stand in it
            # Without a name SQLite keeps it in a temporary file, and removes that.
            db = sqlite3.connect(place or "", timeout=_BUSY_S, isolation_level=None)
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = normal")
            db.execute("pragma cache_size = -65536")
            ledger_schema.make(db, str(place))
        except OSError as error:
            raise Failed(
                f"cannot open the ledger {place}: {error.strerror}", hint="name another by --ledger"
            ) from error
        except sqlite3.Error as error:
            raise _unusable(str(place), error) from error
        return cls(db, str(place))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """An existing ledger, to ask and not to fill. Raises `NotFound` or `Failed`."""
        place = pathlib.Path(path).absolute()
        if not place.exists():
            raise NotFound(f"there is no ledger {place}", hint="`ones report --from DUMP --ledger FILE` makes one")
        try:
            db = sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None)
            db.execute("pragma cache_size = -65536")
            ledger_schema.make(db, str(place))
        except sqlite3.Error as error:
            raise _unusable(str(place), error) from error
        return cls(db, str(place))

    def close(self) -> None:
        """Ends the connection."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def until_s(self) -> float:
        """Until when anything is known: what goes on is counted until then."""
        return float(self._about("until_s", "0"))

    def take(
        self, rows: Iterable[AccountingRow], *, read_s: float, gpus_per_node: Mapping[str, int] | None = None
    ) -> Taken:
        """Merges rows that accounting gave at `read_s`, and makes the segments of their jobs anew.

        `gpus_per_node` (by partition) counts GPUs where Slurm does not. All or nothing.
        """
        with self._transaction():
            taken = merge(self._db, rows, read_s)
            derive(self._db, gpus_per_node or {}, list, lambda told: told)
            if read_s > self.until_s:
                self._note("until_s", repr(float(read_s)))
        return taken

    def histories(self, selection: Selection, *, now_s: float | None = None) -> list[JobHistory]:
        """The whole history of each selected job, its companions in it, ordered by first submission.

        What goes on is counted until `now_s`, or until the last that is known.
        """
        until_s = self.until_s if now_s is None else now_s
        self._choose(selection)
        own: dict[tuple[int, str, str], JobHistory] = {}
        lent: dict[tuple[int, str, str], list[JobHistory]] = {}
        based = {
            (job, job_id, user): (owner, base, user)
            for job, job_id, user, owner, base in self._db.execute(
                "select job, job_id, user, owner, base from jobs join chosen using (job, job_id, user) where base <> ''"
            )
        }
        for key, told in self._told():
            if key in based:
                lent.setdefault(based[key], []).append(settled(told, until_s))
            else:
                own[key] = settled(told, until_s)
        found = [folded(told, lent[key]) if key in lent else told for key, told in own.items()]
        return sorted(found, key=in_order)

    def _choose(self, selection: Selection) -> None:
        """The keys of the selected jobs and of their companions, in `temp.chosen`."""
        where, values = _where(selection)
        self._db.execute("drop table if exists temp.chosen")
        self._db.execute("create temp table chosen(job, job_id, user, primary key (job, job_id, user)) without rowid")
        self._db.execute(f"insert into chosen select job, job_id, user from jobs where {where}", values)
        self._db.execute(
            "insert or ignore into chosen select c.job, c.job_id, c.user "
            "from jobs c join chosen on c.owner = chosen.job where c.base <> ''"
        )

    def _told(self) -> Iterator[tuple[tuple[int, str, str], JobHistory]]:
        oddities: dict[tuple[int, str, str], list[Oddity]] = {}
        for job, job_id, user, kind, what in self._db.execute(
            "select job, job_id, user, kind, what from oddities join chosen using (job, job_id, user)"
        ):
            oddities.setdefault((job, job_id, user), []).append(Oddity(kind, what))
        rows = self._db.execute(
            "select s.* from chosen join segments s using (job, job_id, user) order by job, job_id, user, number"
        )
        for key, its_rows in groupby(rows, key=itemgetter(0, 1, 2)):
            segments = tuple(map(_segment, its_rows))
            yield (
                key,
                JobHistory(job_id=key[1], user=key[2], segments=segments, oddities=tuple(oddities.get(key, ()))),
            )

    def _about(self, key: str, default: str) -> str:
        row = self._db.execute("select value from about where key = ?", (key,)).fetchone()
        return str(row[0]) if row else default

    def _note(self, key: str, value: str) -> None:
        self._db.execute(
            "insert into about values (?, ?) on conflict do update set value = excluded.value", (key, value)
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. Raises `Failed` when the disk does not take it."""
        try:
            self._db.execute("begin immediate")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise _unusable(self._place, error) from error


def _where(selection: Selection) -> tuple[str, list[Any]]:
    """The condition on `jobs` for a selection, and its values."""
    parts = ["base = ''", "(end_s is null or end_s >= ?)"]
    values: list[Any] = [selection.since_s]
    if selection.until_s is not None:
        parts.append("submit_s <= ?")
        values.append(selection.until_s)
    for column, names in (("user", selection.users), ("account", selection.accounts)):
        if names:
            parts.append(f"{column} in ({', '.join('?' * len(names))})")
            values += names
    if selection.partitions:
        parts.append(_either(["instr(',' || partitions || ',', ?)"] * len(selection.partitions)))
        values += [f",{name}," for name in selection.partitions]
    if selection.job_ids:
        parts.append(_either([_NUMBERED if wanted.isdecimal() else "job_id = ?" for wanted in selection.job_ids]))
        for wanted in selection.job_ids:
            values += [int(wanted), wanted, int(wanted)] if wanted.isdecimal() else [wanted]
    return " and ".join(parts), values


def _either(conditions: Sequence[str]) -> str:
    return f"({' or '.join(conditions)})"


def _segment(row: Sequence[Any]) -> Segment:
    return Segment(
        job_id=row[1],
        user=row[2],
        account=row[4],
        partition=row[5],
        name=row[6],
        submit_s=row[7],
        start_s=row[8],
        end_s=row[9],
        open=bool(row[10]),
        nodes=expand(row[11]),
        gpus=row[12],
        wait_since_s=row[13],
        ended_by=row[14],
        ended_how=row[15],
        restart_cost_s=row[16],
        batch=row[17],
        samples=row[18],
        move=row[19],
        reason=row[20],
        time_limit_s=row[21],
    )


def _unusable(place: str, error: sqlite3.Error) -> Failed:
    return Failed(f"cannot use the ledger {place}: {error}", hint="is the disk full, or the file no ledger?")
