"""The ledger: what is known of the jobs of one cluster, in one SQLite file, for any question about the past.

It is filled from accounting as often as anybody likes (`ledger_intake.py`), in one transaction each time, and answers
from there. A reader sees all of an intake or nothing of it. There is nothing in it that accounting and the journal do
not have, so it can be deleted at any time.
"""

import json
import math
import os
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any, Self

from ones_slurm.engine.records import Point
from ones_slurm.engine.transaction import transaction
from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.report import ledger_schema
from ones_slurm.report.companions import folded
from ones_slurm.report.dump import Saved
from ones_slurm.report.groups import Group, groups
from ones_slurm.report.join import Known, explained
from ones_slurm.report.ledger_choice import choose, condition
from ones_slurm.report.ledger_errors import unusable
from ones_slurm.report.ledger_intake import Taken, derive, merge, stored_rows, touch_nothing
from ones_slurm.report.ledger_journal import Kept
from ones_slurm.report.segments import JobHistory, Oddity, Segment, in_order, settled
from ones_slurm.report.selection import Selection
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.hostlists import expand

# Ours: a reader waits that long for another's intake.
_BUSY_S = 60.0
# Ours: an index of a million rows fits, and a small machine has as much.
_CACHE_KIB = 65536

# Number, job id, user: ids begin anew when a cluster's counter is reset.
_Key = tuple[int, str, str]


class Ledger:
    """One ledger file (`Ledger.open`), or one that is gone when it is closed (`Ledger.open(None)`)."""

    def __init__(self, db: sqlite3.Connection, place: str) -> None:
        self._db, self._place, self._kept = db, place, Kept(db)

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, *, gpus_per_node: Mapping[str, int] | None = None) -> Self:
        """The ledger of that name, made if there is none. Raises `Failed` when the file cannot be used.

        `gpus_per_node` (by partition) counts GPUs where Slurm does not; None leaves it as it was.
        """
        place = pathlib.Path(path) if path is not None else None
        try:
            if place is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch(mode=0o600)  # others' jobs may stand in it
        except OSError as error:
            raise Failed(
                f"cannot open the ledger {place}: {error.strerror}", hint="name another by --ledger"
            ) from error
        # Without a name SQLite keeps it in a temporary file, and removes that.
        ledger = cls._connected(str(place or ""), str(place))
        if gpus_per_node is not None:
            ledger._count_gpus(gpus_per_node)
        return ledger

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """An existing ledger, to ask and not to fill. Raises `NotFound` or `Failed`."""
        place = pathlib.Path(path).absolute()
        if not place.exists():
            raise NotFound(f"there is no ledger {place}", hint="`ones report --from DUMP --ledger FILE` makes one")
        return cls._connected(f"{place.as_uri()}?mode=ro", str(place))

    @classmethod
    def _connected(cls, uri: str, place: str) -> Self:
        try:
            # The journal mode is left as it is: a write-ahead log needs shared memory, and homes lie on network file
            # systems.
            db = sqlite3.connect(uri, uri=uri.startswith("file:"), timeout=_BUSY_S, isolation_level=None)
        except sqlite3.Error as error:
            raise unusable(place, error) from error
        try:
            db.execute(f"pragma cache_size = -{_CACHE_KIB}")
            ledger_schema.make(db, place)
        except (sqlite3.Error, Failed) as error:
            db.close()
            raise error if isinstance(error, Failed) else unusable(place, error) from error
        return cls(db, place)

    def close(self) -> None:
        """Ends the connection."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error | json.JSONDecodeError):  # what is in it came out of no ledger
            raise unusable(self._place, error) from error

    @property
    def until_s(self) -> float:
        """Until when anything is known: what goes on is counted until then."""
        return float(self._about("until_s", "0"))

    def take(
        self, rows: Iterable[AccountingRow], *, read_s: float, covers: tuple[str, float, float] | None = None
    ) -> Taken:
        """Merges rows that accounting gave at `read_s`, and makes the segments of their jobs anew. All or nothing.

        `covers`: with them all jobs of a user ("": of all users) are known between two times.
        """
        with self._transaction():
            taken = merge(self._db, rows, lambda: read_s)
            self._derive()
            if read_s > self.until_s:
                self._note("until_s", repr(float(read_s)))
            if covers is not None:
                self._db.execute("insert or replace into fetched values (?, ?, ?)", covers)
        return taken

    def covered(self, user: str) -> tuple[float, float] | None:
        """Between which times all jobs of a user ("": of all users) are known."""
        found = self._db.execute(
            "select from_s, to_s from fetched where users in (?, '') order by to_s desc limit 1", (user,)
        ).fetchone()
        return (found[0], found[1]) if found else None

    def knows(self, number: int) -> bool:
        """Whether there is anything of a job."""
        return self._db.execute("select 1 from rows where job = ? limit 1", (number,)).fetchone() is not None

    def going_on(self, user: str | None) -> list[int]:
        """The numbers of the jobs (of a user) that have not ended, as far as is known."""
        rows = self._db.execute(
            "select distinct job from rows where end_s is null and (?1 is null or user = ?1)", (user,)
        )
        return [row[0] for row in rows]

    def take_saved(self, saved: Saved) -> Taken:
        """Takes a file of `sacct`; one that was taken before changes nothing. What was left out is in `lost`."""
        if self._db.execute("select 1 from sources where digest = ?", (saved.digest,)).fetchone():
            return Taken()
        with self._transaction():
            taken = merge(self._db, saved, lambda: saved.last_s)
            self._derive()
            if saved.last_s > self.until_s:
                self._note("until_s", repr(saved.last_s))
            lost = "; ".join(saved.lost)
            self._db.execute("insert into sources values (?, ?, ?)", (saved.digest, saved.path.name, lost))
        return taken

    @property
    def lost(self) -> list[str]:
        """What could not be taken, by file, in words."""
        return [f"{name}: {lost}" for name, lost in self._db.execute("select name, lost from sources where lost <> ''")]

    def unsettled(self, selection: Selection) -> list[tuple[str, bool]]:
        """The selected jobs of which the journal may know more than the ledger, and whether they had a wish."""
        choose(self._db, selection)
        return list(self._kept.unsettled())

    def learn(self, known: Known, job_ids: Iterable[str], *, now_s: float) -> None:
        """Keeps what the journal, or `onesd`, knows of these jobs."""
        with self._transaction():
            touch_nothing(self._db)
            for job_id in job_ids:
                if self._kept.learn(job_id, known, now_s):
                    self._db.execute("insert or ignore into touched select job from jobs where job_id = ?", (job_id,))
            self._derive()

    def points(self, job_id: str) -> Sequence[Point]:
        """How far a job was over time, as far as the journal was asked about it."""
        return self._kept.points(job_id)

    def histories(self, selection: Selection, *, now_s: float | None = None) -> list[JobHistory]:
        """The whole history of each selected job, its companions in it, ordered by first submission.

        What goes on is counted until `now_s`, or until the last that is known.
        """
        until_s = self.until_s if now_s is None else now_s
        choose(self._db, selection)
        own: dict[_Key, JobHistory] = {}
        lent: dict[_Key, list[JobHistory]] = {}
        based = {
            (job, job_id, user): (owner, base, user)
            for job, job_id, user, owner, base in self._db.execute(
                "select job, job_id, user, owner, base from jobs join chosen using (job, job_id, user) where not own"
            )
        }
        known = self._kept.jobs()
        for key, told in self._told():
            now = settled(told, until_s)
            if key in based:
                lent.setdefault(based[key], []).append(now)
            else:
                own[key] = explained(now, self._kept) if now.job_id in known else now
        found = [folded(told, lent[key]) if key in lent else told for key, told in own.items()]
        return sorted(found, key=in_order)

    def groups(self, selection: Selection, by: str, *, now_s: float | None = None) -> list[Group]:
        """Sums by user, account, partition or day over the time of the selection, of all its jobs."""
        until_s = self.until_s if now_s is None else now_s
        end_s = until_s if selection.until_s is None else min(selection.until_s, until_s)
        choose(self._db, selection)
        begin_s = (
            selection.since_s
            or self._db.execute(
                "select coalesce(min(submit_s), 0) from jobs join chosen using (job, job_id, user)"
            ).fetchone()[0]
        )
        end_s = max(end_s, begin_s)
        return groups(self._db, by, begin_s, end_s, until_s, gpus=self.gpus(begin_s, end_s))

    def odd(self, selection: Selection) -> dict[str, int]:
        """How much is odd about the rows of the selected jobs, by kind."""
        choose(self._db, selection)
        return dict(
            self._db.execute(
                "select kind, count(*) from oddities join chosen using (job, job_id, user) "
                "group by kind order by 2 desc"
            )
        )

    def spans(self, begin_s: float, end_s: float) -> list[tuple[float, float]]:
        """Submission and end (so far) of every job that was there between two times, whoever asks."""
        rows = self._db.execute(
            "select submit_s, coalesce(end_s, ?1) from jobs where base = '' and submit_s <= ?3 "
            "and (end_s is null or end_s >= ?2)",
            (self.until_s, begin_s, end_s),
        )
        return [(float(begin), float(max(begin, end))) for begin, end in rows]

    def gpus(self, begin_s: float, end_s: float) -> int:
        """GPUs of the cluster between two times: as many as were held at once, for accounting knows no others."""
        there = (  # the first condition is for the index
            "from segments where (open = 1 or (open = 0 and end_s > :begin)) "
            "and gpus > 0 and start_s <= :end and (open or end_s > start_s)"
        )
        most = self._db.execute(
            "select max(held) from (select sum(step) over (order by at_s, step) as held from ("
            f"select max(start_s, :begin) as at_s, gpus as step {there} "
            f"union all select end_s, -gpus {there} and not open))",
            {"begin": math.floor(begin_s), "end": math.ceil(end_s)},
        ).fetchone()
        return int(most[0] or 0)

    def count(self, selection: Selection) -> int:
        """How many jobs are selected, companions not counted."""
        where, values = condition(selection)
        return int(self._db.execute(f"select count(*) from jobs where {where}", values).fetchone()[0])

    def rows(self, selection: Selection) -> list[AccountingRow]:
        """The rows of accounting of the selected jobs; of comments only what is ours."""
        choose(self._db, selection)
        return stored_rows(self._db)

    def _derive(self) -> None:
        gpus_per_node = json.loads(self._about("gpus_per_node", "{}"))
        derive(self._db, gpus_per_node, self._kept.holdings if self._kept.jobs() else None)

    def _count_gpus(self, gpus_per_node: Mapping[str, int]) -> None:
        """Takes up what the site file says now; segments that were counted by another one are made anew."""
        said = json.dumps(dict(sorted(gpus_per_node.items())))
        if said == self._about("gpus_per_node", "{}"):
            return
        with self._transaction():
            self._note("gpus_per_node", said)
            touch_nothing(self._db)
            self._db.execute("insert or ignore into touched select job from rows where gpus is null")
            self._derive()

    def _told(self) -> Iterator[tuple[_Key, JobHistory]]:
        oddities: dict[_Key, list[Oddity]] = {}
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
            with transaction(self._db):
                yield
        except sqlite3.Error as error:
            raise unusable(self._place, error) from error


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
        time_limit_s=row[17],
    )
