"""What was seen, decided and done, in one SQLite file: enough to go on after a crash, to explain, and to replay.

One transaction per tick holds the view, the plan, the memory, the decisions and the actions, and is on disk before any
action is sent; outcomes follow. One writer at a time (a lock file beside it), any number of readers meanwhile (WAL).
`synchronous=FULL`, because a move that was begun and forgotten in a power cut would leave a job held for ever; it
costs one fsync per tick.
"""

import os
import pathlib
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import msgspec

from ones_slurm.engine import schema
from ones_slurm.engine.journal_answers import Answers
from ones_slurm.engine.lock import take_lock
from ones_slurm.engine.memory import Decision
from ones_slurm.engine.packing import action_row, decision_row, encode_plan, holding_row, pack_memory, pack_view, said
from ones_slurm.engine.points import Points
from ones_slurm.engine.records import Known, Run, Tick
from ones_slurm.engine.transaction import transaction
from ones_slurm.model.cluster import JobState, Past
from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.model.plan import Outcome

# A second of a busy disk is no reason to fail; ten seconds are.
BUSY_S = 10.0
# A job that is ending shows only those nodes that are not clean yet.
HOLDING = (JobState.RUNNING, JobState.SUSPENDED)


class Journal(Answers):
    """The one writer (`Journal.open`) or a reader (`Journal.read`) of a journal file."""

    def __init__(self, db: sqlite3.Connection, place: pathlib.Path, lock: int | None = None) -> None:
        self._db, self._place, self._lock, self._run = db, place, lock, 0
        self._said: dict[str, tuple[str, str | None]] = {}
        self._points = Points()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The writer. Raises `Failed` when another process writes, or the file cannot be used."""
        place = pathlib.Path(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = take_lock(place)
            # Others' jobs stand in it; the write-ahead log takes over the mode.
            place.touch(mode=0o600)
        except OSError as error:
            raise Failed(f"cannot open the journal {place}: {error.strerror}", hint="see state_dir") from error
        try:
            db = sqlite3.connect(place, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            db.execute("pragma journal_mode = wal")
            db.execute("pragma synchronous = full")
            schema.migrate(db, str(place))
        except (sqlite3.Error, Failed) as error:
            os.close(lock)
            raise error if isinstance(error, Failed) else _unusable(place, error) from error
        return cls(db, place, lock)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """A reader, also while the writer lives; of an older journal, a copy in memory that was lifted.

        Raises `NotFound` when there is no journal.
        """
        place = pathlib.Path(path).absolute()
        if not place.exists():
            raise NotFound(f"there is no journal {place}", hint="onesd writes one in its state_dir")
        # Without a write-ahead log nobody writes, and a reader without rights on the folder can only read it as it is.
        quiet = not place.with_name(place.name + "-wal").exists() and not os.access(place.parent, os.W_OK)
        uri = f"{place.as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
        try:
            db = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            version = db.execute("pragma user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise _unusable(place, error) from error
        if version == 0:
            db.close()
            raise NotFound(f"the journal {place} is only being made", hint="ask again in a second")
        schema.check(version, str(place))
        return cls(db if schema.is_present(version) else schema.lifted(db, str(place)), place)

    def close(self) -> None:
        """Ends the connection and, for the writer, lets the next one in."""
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.DatabaseError | msgspec.DecodeError | zlib.error):
            raise _unusable(self._place, error) from error

    def begin_run(self, run: Run, now_s: float) -> None:
        """Says who decides from now on; ticks refer to it."""
        with self._transaction():
            self._run = self._db.execute(
                "insert into runs(started_s, policy, seed, version, site, mode) "
                "values (?, ?, ?, ?, ?, ?) returning run",
                (now_s, run.policy, run.seed, run.version, run.site, run.mode),
            ).fetchone()[0]

    def record(self, tick: Tick) -> None:
        """Writes a whole tick, or nothing of it. A decision that says the same as the last on that job is left out."""
        view, past = pack_view(msgspec.structs.replace(tick.view, past=())), pack_view(tick.view.past)
        sizes = {job.job_id: len(job.nodes) for job in tick.view.jobs}
        news = [decision for decision in tick.decisions if self._is_news(decision)]
        with self._transaction():
            for table, (digest, packed) in (("views", view), ("pasts", past)):
                self._db.execute(
                    f"insert into {table} values (?, ?, ?) on conflict(hash) do update set last_s = excluded.last_s",
                    (digest, packed, tick.now_s),
                )
            plan, memory = encode_plan(tick.plan), pack_memory(tick.memory)
            self._db.execute(
                "insert into ticks(tick, run, now_s, took_s, view_hash, past_hash, plan, memory) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                (tick.tick, self._run, tick.now_s, tick.took_s, view[0], past[0], plan, memory),
            )
            self._db.executemany(
                "insert into decisions values (?, ?, ?, ?, ?, ?, ?)",
                [decision_row(tick, decision) for decision in news],
            )
            self._db.executemany(
                "insert into actions(job_id, generation, tick, kind, action, from_nodes, to_nodes, batch, sent_s) "
                "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    action_row(tick, decision.action, sizes.get(decision.job_id, 0))
                    for decision in tick.decisions
                    if decision.action is not None
                ],
            )
            # Not all accounting remembers what a job held in each of its runs; those that we may move are kept here.
            self._db.executemany(
                "insert into holdings(job_id, submit_s, nodes, gpus, batch, start_s, seen_s) "
                "values (?, ?, ?, ?, ?, ?, ?) on conflict do update set batch = excluded.batch where batch = 0",
                [
                    holding_row(job, tick.now_s)
                    for job in tick.view.jobs
                    if job.wish is not None and job.state in HOLDING and job.start_s is not None
                ],
            )
            self._db.executemany(
                "insert or ignore into points values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [msgspec.structs.astuple(point) for point in self._points.worth_keeping(tick.view)],
            )
        self._said.update((decision.job_id, said(decision)) for decision in news)
        for gone in self._said.keys() - sizes.keys():
            del self._said[gone]

    def end(self, outcome: Outcome, now_s: float) -> None:
        """Writes what became of an action; only the first final word counts."""
        with self._transaction():
            self._db.execute(
                "update actions set outcome = ?, reason = ?, ended_s = ? "
                "where job_id = ? and generation = ? and ended_s is null",
                (outcome.status, outcome.reason, now_s, outcome.job_id, outcome.generation),
            )

    def event(self, now_s: float, what: str, job_id: str = "") -> None:
        """Writes something worth knowing that is no decision: a job's change, a refused plan, a silent cluster."""
        with self._transaction():
            self._db.execute("insert into events values (?, ?, ?)", (now_s, job_id, what))

    def prune(self, views_before_s: float) -> int:
        """Drops views older than that, the bulk of the file; returns how many. Decisions and actions stay, and of the
        progress in each generation the first and the last report."""
        with self._transaction():
            self._db.execute(
                "delete from points as p where at_s < ?1 and exists (select 1 from points q where q.job_id = p.job_id "
                "and q.generation = p.generation and q.at_s < p.at_s) and exists (select 1 from points q "
                "where q.job_id = p.job_id and q.generation = p.generation and q.at_s > p.at_s)",
                (views_before_s,),
            )
            self._db.execute("delete from pasts where last_s < ?", (views_before_s,))
            return self._db.execute("delete from views where last_s < ?", (views_before_s,)).rowcount

    def keep(self, known: Mapping[str, Known]) -> None:
        """Writes what these jobs have shown so far, over what was there."""
        with self._transaction():
            self._db.executemany(
                "insert into known values (?, ?) on conflict do update set packed = excluded.packed",
                [(job_id, msgspec.msgpack.encode(one)) for job_id, one in known.items()],
            )

    def end_of(self, job_id: str, past: Past, now_s: float) -> None:
        """A job is over: what it has shown becomes what it leaves behind."""
        with self._transaction():
            self._db.execute("delete from known where job_id = ?", (job_id,))
            self._db.execute(
                "insert into past(ended_s, job_id, packed) values (?, ?, ?)",
                (now_s, job_id, msgspec.msgpack.encode(past)),
            )

    def _is_news(self, decision: Decision) -> bool:
        return decision.action is not None or self._said.get(decision.job_id) != said(decision)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. Raises `Failed` when the disk does not take it."""
        try:
            with transaction(self._db):
                yield
        except sqlite3.Error as error:
            raise _unusable(self._place, error) from error


def _unusable(place: pathlib.Path, error: Exception) -> Failed:
    return Failed(f"cannot use the journal {place}: {error}", hint="is the disk full, or the file no journal?")
