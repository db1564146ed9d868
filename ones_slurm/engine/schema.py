"""The journal's tables, and how an older journal becomes a newer one."""

import sqlite3

from ones_slurm.model.errors import Failed

# One entry per version, each a script that lifts the tables from the version before; `user_version` counts them.
VERSIONS = (
    """
    create table runs(
        run integer primary key, started_s real not null, policy text not null, seed integer not null,
        version text not null, site text not null, mode text not null
    ) strict;
    create table views(hash blob primary key, packed blob not null, last_s real not null) strict, without rowid;
    create table ticks(
        tick integer primary key, run integer not null references runs, now_s real not null, took_s real not null,
        view_hash blob not null, plan blob not null, memory blob not null
    ) strict;
    create table decisions(
        tick integer not null, job_id text not null, now_s real not null, reason text not null, action text,
        generation integer, numbers text not null, primary key (job_id, tick)
    ) strict, without rowid;
    create table actions(
        job_id text not null, generation integer not null, tick integer not null, kind text not null,
        action text not null, from_nodes integer not null, to_nodes integer not null, batch integer not null,
        sent_s real not null, outcome text, reason text not null default '', ended_s real,
        why text not null generated always as (coalesce(json_extract(action, '$.reason'), '')) virtual,
        primary key (job_id, generation)
    ) strict, without rowid;
    create index open_actions on actions(sent_s) where ended_s is null;
    create table holdings(
        job_id text not null, submit_s real not null, nodes text not null, gpus integer not null,
        batch integer not null, start_s real not null, seen_s real not null, primary key (job_id, submit_s, nodes)
    ) strict, without rowid;
    create table events(now_s real not null, job_id text not null, what text not null) strict;
    create index events_of_job on events(job_id, now_s);
    """,
    # Ended jobs are the same in thousands of views, so ticks refer to them.
    """
    create table known(job_id text primary key, packed blob not null) strict, without rowid;
    create table past(number integer primary key, ended_s real not null, job_id text not null, packed blob not null)
        strict;
    create table pasts(hash blob primary key, packed blob not null, last_s real not null) strict, without rowid;
    alter table ticks add column past_hash blob;
    """,
    """
    create table points(
        job_id text not null, generation integer not null, at_s real not null, samples integer not null,
        samples_per_s real not null, loss real, batch integer not null, base_batch integer not null,
        gpus integer not null, metrics text not null, primary key (job_id, generation, at_s)
    ) strict, without rowid;
    """,
)


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Lifts the tables to the present version, each step in one transaction. Raises `Failed` on a newer journal."""
    found = db.execute("pragma user_version").fetchone()[0]
    check(found, path)
    for version, script in enumerate(VERSIONS[found:], start=found + 1):
        db.executescript(f"begin immediate; {script} pragma user_version = {version}; commit;")


def is_present(found: int) -> bool:
    """Whether a journal of this version has all tables that this program reads."""
    return found == len(VERSIONS)


def lifted(db: sqlite3.Connection, path: str) -> sqlite3.Connection:
    """A copy in memory with the present tables, for a reader; the file keeps its version until `onesd` opens it."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    db.backup(copy)
    db.close()
    migrate(copy, path)
    return copy


def check(found: int, path: str) -> None:
    """Raises `Failed` when the journal was written by a newer program."""
    if found > len(VERSIONS):
        raise Failed(
            f"the journal {path} has version {found}, this program knows up to {len(VERSIONS)}",
            hint="use the newer ones-slurm that wrote it, or name another state_dir",
        )
