"""How rows of accounting come into the ledger, and how segments are made of them again.

A row is known by job and Submit. Of several readings of one row the ledger keeps the one that knows most: an end before
none, a later end before an earlier, then the later reading. So it does not matter in which order, in how many pieces or
how often something is read: the ledger ends up the same.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from ones_slurm.engine.records import Holding
from ones_slurm.report.companions import base_of
from ones_slurm.report.figures import is_interruption, is_move
from ones_slurm.report.lost_runs import with_lost_runs
from ones_slurm.report.segments import JobHistory, Oddity, history
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.hostlists import expand, fold

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
# In the order of `AccountingRow`, whose `nodes` are kept as the text that they were read from.
_FIELDS = tuple(name for name in AccountingRow.__struct_fields__ if name != "nodes")
_NODES = AccountingRow.__struct_fields__.index("nodes")
_OURS = ("job", "owner", "base", "known_s", "digest")
_KEY = ("job", "raw_id", "submit_s")


_LOST = Oddity("runs lost", "accounting lost runs of it that followed a resize: they are told from the journal")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What an intake did: rows that were `new`, that were known and are now known better, and all that were read."""

    rows: int = 0
    new: int = 0
    changed: int = 0


def merge(db: sqlite3.Connection, rows: Iterable[AccountingRow], read_s: Callable[[], float]) -> Taken:
    """Merges rows into the table and leaves the numbers of the jobs that changed in `temp.touched`.

    `read_s` says when accounting gave the rows, once all of them were gone through.
    """
    every = (*_FIELDS, *_OURS)
    db.execute("drop table if exists temp.incoming")
    touch_nothing(db)
    db.execute(f"create temp table incoming({', '.join(every)})")
    db.executemany(f"insert into incoming values ({', '.join('?' * len(every))})", map(_stored, rows))
    at = {"read_s": read_s()}
    (read,) = db.execute("select count(*) from incoming").fetchone()
    (before,) = db.execute("select count(*) from rows").fetchone()
    known_better = (
        "incoming.digest <> rows.digest "
        "and (incoming.known_s, :read_s, incoming.digest) > (rows.known_s, rows.read_s, rows.digest)"
    )
    both = f"incoming join rows using ({', '.join(_KEY)})"
    changed = 0
    if before:
        keys = ", ".join(f"rows.{key}" for key in _KEY)
        query = f"select count(*) from (select distinct {keys} from {both} where {known_better})"
        (changed,) = db.execute(query, at).fetchone()
        db.execute(
            f"insert or ignore into touched select incoming.job from {both.replace('join', 'left join')} "
            f"where rows.digest is null or {known_better}",
            at,
        )
    else:
        db.execute("insert or ignore into touched select job from incoming")
    update = ", ".join(f"{name} = excluded.{name}" for name in (*every, "read_s") if name not in _KEY)
    db.execute(
        f"insert into rows({', '.join(every)}, read_s) select *, :read_s from incoming where true "
        f"order by {', '.join(_KEY)} on conflict do update set {update} where excluded.digest <> rows.digest "
        "and (excluded.known_s, excluded.read_s, excluded.digest) > (rows.known_s, rows.read_s, rows.digest)",
        at,
    )
    (after,) = db.execute("select count(*) from rows").fetchone()
    db.execute("drop table incoming")
    _give_owners(db)
    return Taken(rows=read, new=after - before, changed=changed)


def touch_nothing(db: sqlite3.Connection) -> None:
    """Begins an empty `temp.touched`."""
    db.execute("drop table if exists temp.touched")
    db.execute("create temp table touched(job integer primary key)")


def derive(
    db: sqlite3.Connection, gpus_per_node: Mapping[str, int], holdings: Callable[[str], Sequence[Holding]] | None
) -> None:
    """Makes the segments of all jobs in `temp.touched` anew; what jobs were seen to hold puts back the rows that
    accounting lost."""
    for table in ("jobs", "segments", "oddities"):
        db.execute(f"delete from {table} where job in (select job from touched)")
    columns = ", ".join(_FIELDS)
    # The rows come in the order of the table; a cursor of its own, for the one of `db.execute` may be busy.
    found = db.cursor().execute(
        f"select job, owner, base, {columns} from rows where job in (select job from touched) order by job"
    )
    jobs: list[Sequence[object]] = []
    segments: list[Sequence[object]] = []
    oddities: list[Sequence[object]] = []

    def write() -> None:
        db.executemany(f"insert into jobs values ({', '.join('?' * 11)})", jobs)
        db.executemany(f"insert into segments values ({', '.join('?' * 20)})", segments)
        db.executemany("insert into oddities values (?, ?, ?, ?, ?)", oddities)
        for written in (jobs, segments, oddities):
            written.clear()

    for number, its_rows in groupby(found, key=itemgetter(0)):
        for stored in _by_job(list(its_rows)):
            owner, base = next(((row[1], row[2]) for row in stored if row[1] != number), (number, ""))
            rows = [_restored(row[3:]) for row in stored]
            told = _told(rows, gpus_per_node, holdings)
            texts = {row.nodes: row.nodelist for row in rows}
            key = (number, told.job_id, told.user)
            jobs.append((*key, *_job(told, owner, base)))
            segments += ((*key, *segment) for segment in _segments(told, texts))
            oddities += ((*key, oddity.kind, oddity.what) for oddity in told.oddities)
        if len(segments) > 10_000:
            write()
    write()


def stored_rows(db: sqlite3.Connection) -> list[AccountingRow]:
    """The rows of the jobs in `temp.chosen`."""
    columns = ", ".join(f"rows.{name}" for name in _FIELDS)
    return [
        _restored(row)
        for row in db.execute(
            f"select {columns} from chosen join rows on rows.job = chosen.job and rows.job_id = chosen.job_id "
            "and rows.user = chosen.user order by rows.job, rows.submit_s"
        )
    ]


def _told(
    rows: list[AccountingRow],
    gpus_per_node: Mapping[str, int],
    holdings: Callable[[str], Sequence[Holding]] | None,
) -> JobHistory:
    held = holdings(rows[0].job_id) if holdings is not None else ()
    whole = with_lost_runs(rows, held) if held else rows
    told = history(whole, gpus_per_node)
    return told if whole == rows else msgspec.structs.replace(told, oddities=(*told.oddities, _LOST))


def _by_job(rows: Sequence[Sequence[Any]]) -> Iterable[Sequence[Sequence[Any]]]:
    """The rows of each job among those of one number: tasks, components, and jobs of a time before ids began anew."""
    if len(rows) == 1:
        return (rows,)
    by_job: dict[tuple[str, str], list[Sequence[Any]]] = {}
    for row in rows:
        by_job.setdefault((row[3], row[5]), []).append(row)
    return by_job.values()


def _stored(row: AccountingRow) -> Sequence[object]:
    if row.comment and "ones:" not in row.comment:
        row = msgspec.structs.replace(row, comment="")
    packed = msgspec.msgpack.encode(row)
    digest = int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "big", signed=True)
    number = _NUMBER.match(row.job_id)
    job = int(number[0]) if number else 0
    known_s = row.end_s + 1.0 if row.end_s is not None else 1.0 if row.start_s is not None else 0.0
    values = list(msgspec.structs.astuple(row))
    values[-1] = row.nodelist or (fold(row.nodes) if row.nodes else "")
    del values[_NODES]
    return (*values, job, job, (base_of(row.comment) or "") if row.comment else "", known_s, digest)


def _restored(values: Sequence[Any]) -> AccountingRow:
    return AccountingRow(nodes=expand(values[-1]), **dict(zip(_FIELDS, values, strict=True)))


def _job(told: JobHistory, owner: int, base: str) -> Sequence[object]:
    first, last = told.segments[0], told.segments[-1]
    partitions = ",".join(dict.fromkeys(segment.partition for segment in told.segments))
    end_s = None if last.open else last.end_s
    return owner, base, first.account, partitions, first.name, first.submit_s, end_s, last.ended_by


def _segments(told: JobHistory, texts: Mapping[tuple[str, ...], str]) -> Iterator[Sequence[object]]:
    before = None
    for number, segment in enumerate(told.segments, 1):
        yield (
            number,
            segment.account,
            segment.partition,
            segment.name,
            segment.submit_s,
            segment.start_s,
            segment.end_s,
            segment.open,
            texts.get(segment.nodes) or fold(segment.nodes) if segment.nodes else "",
            segment.gpus,
            segment.wait_since_s,
            segment.ended_by,
            segment.ended_how,
            segment.restart_cost_s,
            segment.time_limit_s,
            before is not None and is_move(before, segment),
            before is not None and is_interruption(before),
        )
        before = segment


def _give_owners(db: sqlite3.Connection) -> None:
    """Puts each companion under its base, if accounting shows that: a job of the same user and no companion itself."""
    base = (
        "coalesce((select b.job from rows b where b.job = cast(rows.base as integer) and b.job_id = rows.base "
        "and b.user = rows.user and b.base = '' limit 1), "
        "(select b.job from rows b where b.raw_id = rows.base and b.raw_id <> b.job_id "
        "and b.user = rows.user and b.base = '' limit 1), rows.job)"
    )
    db.execute(f"insert or ignore into touched select job from rows where base <> '' and owner <> {base}")
    db.execute(f"update rows set owner = {base} where base <> '' and owner <> {base}")
