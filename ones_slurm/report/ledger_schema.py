"""The ledger's tables.

`rows` are rows of accounting as last read, one for each run and size of a Slurm job. All else is derived from them and
can be derived again, `segments` and `jobs` for the questions that people ask, `oddities` for what was odd; and beside
them what the journal said of the jobs that anybody asked about. `job` is the number in a job id, the same for all tasks
of an array and components of a heterogeneous job; `owner` the number of the job under which a row is told: its own, or
that of its base (see `companions.py`). Unix seconds everywhere. A segment that is open ends at its start here, for it
is counted until whenever it is asked about.
"""

import contextlib
import pathlib
import sqlite3

from ones_slurm.model.errors import Failed

VERSION = 1
# Tells a ledger from any other SQLite file ("ONEL").
_MARK = 0x4F4E454C
TABLES = """
create table about(key text primary key, value text not null) strict, without rowid;
create table sources(digest blob primary key, name text not null, lost text not null) strict, without rowid;
create table fetched(users text primary key, from_s real not null, to_s real not null) strict, without rowid;
create table rows(
    job_id text not null, raw_id text not null, user text not null, account text not null, partition text not null,
    name text not null, state text not null, cancelled_by text, submit_s real not null, eligible_s real, start_s real,
    end_s real, nnodes integer not null, gpus integer, cpus integer not null, exit_status integer not null,
    signal integer not null, time_limit_s real, comment text not null, restarts integer, tres_nodes integer,
    nodelist text not null,
    job integer not null, owner integer not null, base text not null, known_s real not null, read_s real not null,
    digest integer not null,
    primary key (job, raw_id, submit_s)
) strict, without rowid;
create index rows_by_raw_id on rows(raw_id) where raw_id <> job_id;
create index rows_with_base on rows(base) where base <> '';
create index open_rows on rows(job) where end_s is null;
create table jobs(
    job integer not null, job_id text not null, user text not null, owner integer not null, base text not null,
    account text not null, partitions text not null, name text not null, submit_s integer not null, end_s integer,
    state text not null,
    primary key (job, job_id, user)
) strict, without rowid;
create index jobs_by_end on jobs(end_s);
create index companions on jobs(owner) where base <> '';
create table segments(
    job integer not null, job_id text not null, user text not null, number integer not null, account text not null,
    partition text not null, name text not null, submit_s integer not null, start_s integer, end_s integer not null,
    open integer not null, nodelist text not null, gpus integer not null, wait_since_s integer, ended_by text not null,
    ended_how text not null, restart_cost_s integer not null, time_limit_s integer, moved integer not null,
    interrupted integer not null,
    primary key (job, job_id, user, number)
) strict, without rowid;
create index segments_by_end on segments(open, end_s);
create table oddities(
    job integer not null, job_id text not null, user text not null, kind text not null, what text not null
) strict;
create index oddities_of_job on oddities(job);
create table told(job_id text primary key, at_s real not null, anything integer not null) strict, without rowid;
create table moves(
    job_id text not null, generation integer not null, kind text not null, from_nodes integer not null,
    to_nodes integer not null, batch integer not null, sent_s real not null, outcome text, ended_s real,
    reason text not null, why text not null, primary key (job_id, generation)
) strict, without rowid;
create table holdings(
    job_id text not null, submit_s real not null, nodes text not null, gpus integer not null, batch integer not null,
    start_s real not null, seen_s real not null, primary key (job_id, submit_s, nodes)
) strict, without rowid;
create table points(
    job_id text not null, generation integer not null, at_s real not null, samples integer not null,
    samples_per_s real not null, loss real, batch integer not null, base_batch integer not null, gpus integer not null,
    metrics text not null, primary key (job_id, at_s)
) strict, without rowid;
"""


def make(db: sqlite3.Connection, place: str) -> None:
    """Makes the tables of a new ledger. Raises `Failed` for one of another version, and for what is none."""
    mark, found = (db.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version"))
    (tables,) = db.execute("select count(*) from sqlite_master").fetchone()
    if tables and mark != _MARK:
        raise Failed(f"{place} is no ledger", hint="it is left as it is; name another by --ledger")
    if not tables:
        db.executescript(
            f"begin immediate; {TABLES} pragma application_id = {_MARK}; pragma user_version = {VERSION}; commit;"
        )
    elif found != VERSION:
        raise Failed(
            f"the ledger {place} has version {found}, this program knows {VERSION}",
            hint="delete it: all that is in it is read again from accounting",
        )
    elif _tables(db) != _own_tables():
        raise Failed(
            f"the ledger {place} has other tables than version {VERSION} has",
            hint="something else wrote in it: delete it, for all that is in it is read again from accounting",
        )


def is_ledger(path: pathlib.Path) -> bool:
    """Whether an SQLite file is a ledger, by the mark in its header (bytes 68 to 71)."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(72)[68:], "big") == _MARK


def _own_tables() -> set[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        return _tables(db)


def _tables(db: sqlite3.Connection) -> set[str]:
    return {row[0] for row in db.execute("select sql from sqlite_master where sql is not null")}
