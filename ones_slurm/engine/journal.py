"""What was seen, decided and done, in one SQLite file: enough to go on after a crash, to explain, and to replay.

One transaction per tick holds the view, the plan, the memory, the decisions and the actions, and is on disk before any
action is sent; outcomes follow. One writer at a time (a lock file beside it), any number of readers meanwhile (WAL).
`synchronous=FULL`, because a move that was begun and forgotten in a power cut would leave a job held for ever; it
costs one fsync per tick.
"""

import hashlib
import itertools
import os
import pathlib
import sqlite3
import statistics
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec

from ones_slurm.engine import schema
from ones_slurm.engine.lock import take_lock
from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.engine.points import Points
from ones_slurm.engine.records import Decided, Holding, Known, MoveRow, Point, RecordedTick, Run, StoryLine, Tick
from ones_slurm.engine.transaction import transaction
from ones_slurm.model.cluster import ClusterView, JobState, JobView, Past
from ones_slurm.model.errors import Failed, NotFound
from ones_slurm.model.plan import Action, Grow, Outcome, Plan, Reallocate, Requeue, Shrink, Start

# A second of a busy disk is no reason to fail; ten seconds are.
BUSY_S = 10.0
# A job that is ending shows only those nodes that are not clean yet.
HOLDING = (JobState.RUNNING, JobState.SUSPENDED)
# What moves cost changes with the site's load, so only the latest count (ours).
PAUSES_COUNTED = 9


class Journal:
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
        view, past = _packed(msgspec.structs.replace(tick.view, past=())), _packed(tick.view.past)
        sizes = {job.job_id: len(job.nodes) for job in tick.view.jobs}
        news = [decision for decision in tick.decisions if self._is_news(decision)]
        with self._transaction():
            for table, (digest, packed) in (("views", view), ("pasts", past)):
                self._db.execute(
                    f"insert into {table} values (?, ?, ?) on conflict(hash) do update set last_s = excluded.last_s",
                    (digest, packed, tick.now_s),
                )
            plan, memory = encode_plan(tick.plan), _pack(tick.memory)
            self._db.execute(
                "insert into ticks(tick, run, now_s, took_s, view_hash, past_hash, plan, memory) "
                "values (?, ?, ?, ?, ?, ?, ?, ?)",
                (tick.tick, self._run, tick.now_s, tick.took_s, view[0], past[0], plan, memory),
            )
            self._db.executemany(
                "insert into decisions values (?, ?, ?, ?, ?, ?, ?)",
                [_decision_row(tick, decision) for decision in news],
            )
            self._db.executemany(
                "insert into actions(job_id, generation, tick, kind, action, from_nodes, to_nodes, batch, sent_s) "
                "values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    _action_row(tick, decision.action, sizes.get(decision.job_id, 0))
                    for decision in tick.decisions
                    if decision.action is not None
                ],
            )
            # Not all accounting remembers what a job held in each of its runs; those that we may move are kept here.
            self._db.executemany(
                "insert into holdings(job_id, submit_s, nodes, gpus, batch, start_s, seen_s) "
                "values (?, ?, ?, ?, ?, ?, ?) on conflict do update set batch = excluded.batch where batch = 0",
                [
                    _holding_row(job, tick.now_s)
                    for job in tick.view.jobs
                    if job.wish is not None and job.state in HOLDING and job.start_s is not None
                ],
            )
            self._db.executemany(
                "insert or ignore into points values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [msgspec.structs.astuple(point) for point in self._points.worth_keeping(tick.view)],
            )
        self._said.update((decision.job_id, _said(decision)) for decision in news)
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

    def known(self) -> dict[str, Known]:
        """What unfinished jobs have shown so far."""
        rows = self._db.execute("select job_id, packed from known")
        return {job_id: msgspec.msgpack.decode(packed, type=Known) for job_id, packed in rows}

    def past(self, most: int) -> tuple[Past, ...]:
        """What the latest ended jobs have left behind, the oldest first."""
        rows = self._db.execute("select packed from past order by number desc limit ?", (most,)).fetchall()
        return tuple(msgspec.msgpack.decode(packed, type=Past) for (packed,) in reversed(rows))

    def pauses(self) -> dict[str, float]:
        """Seconds from an action to its end, by kind of move: the median of the latest that were done.

        Not of those in which the job trains until the end: a growth by a companion.
        """
        rows = self._db.execute(
            "select kind, ended_s - sent_s from (select *, row_number() over "
            "(partition by kind order by ended_s desc, job_id) as age from actions "
            "where outcome = 'done' and kind not in ('start', 'grow')) where age <= ? order by kind",
            (PAUSES_COUNTED,),
        ).fetchall()
        return {
            kind: statistics.median(seconds for _, seconds in same)
            for kind, same in itertools.groupby(rows, key=lambda row: row[0])
        }

    def last_tick(self) -> int:
        """The number of the last tick, 0 before the first."""
        return int(self._db.execute("select coalesce(max(tick), 0) from ticks").fetchone()[0])

    def last_memory(self) -> Memory:
        """The reconciler's memory after the last tick."""
        row = self._db.execute("select memory from ticks order by tick desc limit 1").fetchone()
        return msgspec.msgpack.decode(row[0], type=Memory) if row else Memory()

    def last_plan(self) -> Plan:
        """The last plan, empty before the first."""
        row = self._db.execute("select plan from ticks order by tick desc limit 1").fetchone()
        return decode_plan(row[0]) if row else Plan()

    def last_generation(self, job_id: str) -> int:
        """The highest generation that an action of this job had, 0 when it had none."""
        rows = self._db.execute("select coalesce(max(generation), 0) from actions where job_id = ?", (job_id,))
        return int(rows.fetchone()[0])

    def last_generations(self) -> dict[str, int]:
        """`last_generation` of every job that had an action."""
        return dict(self._db.execute("select job_id, max(generation) from actions group by job_id"))

    def unfinished_actions(self) -> list[Action]:
        """Actions without an outcome, oldest first: they are sent again after a restart."""
        rows = self._db.execute("select action from actions where ended_s is null order by sent_s, job_id")
        return [msgspec.json.decode(row[0], type=Action) for row in rows]

    def moves(self, job_id: str | None = None) -> list[MoveRow]:
        """Every action with its end, of one job or of all, oldest first."""
        columns = MoveRow.__struct_fields__
        rows = self._db.execute(
            f"select {', '.join(columns)} from actions where ?1 is null or job_id = ?1 "
            "order by sent_s, job_id, generation",
            (job_id,),
        )
        return [msgspec.convert(dict(zip(columns, row, strict=True)), MoveRow) for row in rows]

    def holdings(self, job_id: str) -> list[Holding]:
        """Every set of nodes that a job was seen to hold, oldest first."""
        columns = Holding.__struct_fields__
        rows = self._db.execute(
            f"select {', '.join(columns)} from holdings where job_id = ? order by seen_s", (job_id,)
        )
        found = (dict(zip(columns, row, strict=True)) for row in rows)
        return [Holding(**(row | {"nodes": tuple(row["nodes"].split())})) for row in found]

    def points(self, job_id: str) -> list[Point]:
        """How far a job was over time, oldest first."""
        columns = Point.__struct_fields__
        rows = self._db.execute(f"select {', '.join(columns)} from points where job_id = ? order by at_s", (job_id,))
        return [Point(**dict(zip(columns, row, strict=True))) for row in rows]

    def jobs(self) -> frozenset[str]:
        """The jobs that it can tell a report more of than accounting does."""
        rows = self._db.execute("select job_id from actions union select job_id from holdings")
        return frozenset(row[0] for row in rows)

    def story(self, job_id: str) -> list[StoryLine]:
        """All that was ever decided about a job, done to it and told of it, oldest first."""
        lines = [
            StoryLine(at_s=at_s, tick=tick, what="decision", reason=reason, numbers=msgspec.json.decode(numbers))
            for at_s, tick, reason, numbers in self._db.execute(
                "select now_s, tick, reason, numbers from decisions where job_id = ? order by tick", (job_id,)
            )
        ]
        for row in self._db.execute(
            "select sent_s, tick, kind, generation, to_nodes, batch, outcome, reason, ended_s "
            "from actions where job_id = ? order by generation",
            (job_id,),
        ):
            sent_s, tick, kind, generation, nodes, batch, outcome, reason, ended_s = row
            facts: dict[str, Any] = {"tick": tick, "generation": generation, "nodes": nodes, "batch": batch}
            lines.append(StoryLine(at_s=sent_s, what=kind, **facts))
            if ended_s is not None:
                lines.append(StoryLine(at_s=ended_s, what=outcome, reason=reason, **facts))
        told = self._db.execute("select now_s, what from events where job_id = ? order by now_s", (job_id,))
        lines.extend(StoryLine(at_s=at_s, tick=0, what="event", reason=what) for at_s, what in told)
        return sorted(lines, key=lambda line: line.at_s)

    def recent(self, most: int) -> list[Decided]:
        """The last decisions on any job, the newest first: `most` moves with what became of them, and `most` words on
        jobs that stayed as they were."""
        moves = self._db.execute(
            "select sent_s, job_id, why, kind, from_nodes, to_nodes, batch, outcome, reason from actions "
            "order by sent_s desc, job_id limit ?",
            (most,),
        )
        words = self._db.execute(
            "select now_s, job_id, reason, null, null, null, null, null, null from decisions where action is null "
            "order by tick desc, job_id limit ?",
            (most,),
        )
        names = Decided.__struct_fields__
        found = [msgspec.convert(dict(zip(names, row, strict=True)), Decided) for row in (*moves, *words)]
        return sorted(found, key=lambda decided: -decided.at_s)

    def recorded_ticks(self) -> Iterator[RecordedTick]:
        """Every tick whose view is still there, in order."""
        rows = self._db.execute(
            "select tick, policy, seed, views.packed, pasts.packed, plan from ticks join runs using (run) "
            "join views on views.hash = view_hash left join pasts on pasts.hash = past_hash order by tick"
        )
        for tick, policy, seed, packed, packed_past, plan in rows:
            view = msgspec.msgpack.decode(zlib.decompress(packed), type=ClusterView)
            if packed_past is not None:
                past = msgspec.msgpack.decode(zlib.decompress(packed_past), type=tuple[Past, ...])
                view = msgspec.structs.replace(view, past=past)
            yield RecordedTick(tick=tick, policy=policy, seed=seed, view=view, plan=plan)

    def views(self, since_s: float, until_s: float, most: int) -> Iterator[ClusterView]:
        """Views between two moments, oldest first: all that are kept, or `most` of them at equal distances."""
        ticks = self._db.execute(
            "select tick from ticks where now_s between ? and ? order by tick", (since_s, until_s)
        ).fetchall()
        every = max(-(-len(ticks) // most), 1)
        for (tick,) in ticks[::every]:
            row = self._db.execute(
                "select packed from ticks join views on hash = view_hash where tick = ?", (tick,)
            ).fetchone()
            if row is not None:
                yield msgspec.msgpack.decode(zlib.decompress(row[0]), type=ClusterView)

    def _is_news(self, decision: Decision) -> bool:
        return decision.action is not None or self._said.get(decision.job_id) != _said(decision)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. Raises `Failed` when the disk does not take it."""
        try:
            with transaction(self._db):
                yield
        except sqlite3.Error as error:
            raise _unusable(self._place, error) from error


def encode_plan(plan: Plan) -> bytes:
    """The bytes of a plan; equal bytes mean equal plans, to the last bit of each number."""
    return msgspec.msgpack.encode(plan, order="deterministic")


def decode_plan(packed: bytes) -> Plan:
    """The plan of these bytes."""
    return msgspec.msgpack.decode(packed, type=Plan)


def size_of(action: Action, held: int) -> int:
    """The node count after an action on a job that holds `held` nodes."""
    if isinstance(action, Shrink):
        return len(action.keep)
    if isinstance(action, Reallocate):
        return len(action.allocation)
    return action.nodes if isinstance(action, Start | Requeue | Grow) else held


def _decision_row(tick: Tick, decision: Decision) -> Sequence[object]:
    action = decision.action
    numbers = msgspec.json.encode(decision.numbers).decode()
    kind, generation = (_kind(action), action.generation) if action is not None else (None, None)
    return tick.tick, decision.job_id, tick.now_s, decision.reason, kind, generation, numbers


def _action_row(tick: Tick, action: Action, held: int) -> Sequence[object]:
    text = msgspec.json.encode(action).decode()
    sizes = (held, size_of(action, held), action.batch)
    return action.job_id, action.generation, tick.tick, _kind(action), text, *sizes, tick.now_s


def _holding_row(job: JobView, now_s: float) -> Sequence[object]:
    return job.job_id, job.submit_s, " ".join(job.nodes), job.gpus, job.batch, job.start_s, now_s


def _kind(action: Action) -> str:
    return str(action.__struct_config__.tag)


def _said(decision: Decision) -> tuple[str, str | None]:
    return decision.reason, _kind(decision.action) if decision.action is not None else None


def _packed(what: ClusterView | tuple[Past, ...]) -> tuple[bytes, bytes]:
    """(hash, compressed bytes)."""
    packed = msgspec.msgpack.encode(what)
    return hashlib.blake2b(packed, digest_size=16).digest(), zlib.compress(packed, 1)


def _pack(memory: Memory) -> bytes:
    return msgspec.msgpack.encode(memory, order="deterministic")


def _unusable(place: pathlib.Path, error: Exception) -> Failed:
    return Failed(f"cannot use the journal {place}: {error}", hint="is the disk full, or the file no journal?")
