"""What the journal answers: where to go on after a crash, what was decided and why, and what a replay needs."""

import itertools
import sqlite3
import statistics
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ones_slurm.engine.memory import Memory
from ones_slurm.engine.packing import decode_plan
from ones_slurm.engine.records import Decided, Holding, Known, MoveRow, Point, RecordedTick, StoryLine
from ones_slurm.model.cluster import ClusterView, Past
from ones_slurm.model.plan import Action, Plan

# What moves cost changes with the site's load, so only the latest count (ours).
PAUSES_COUNTED = 9


class Answers:
    """The questions that anybody with a connection to a journal can ask; `Journal` has them all."""

    _db: sqlite3.Connection

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

    def last_requeues(self) -> dict[str, tuple[float, float]]:
        """When the last requeue of each job was begun, and when that move was over."""
        rows = self._db.execute(
            "select job_id, max(sent_s), ended_s from actions where kind = 'requeue' and ended_s is not null "
            "group by job_id"
        )
        return {job_id: (sent_s, ended_s) for job_id, sent_s, ended_s in rows}

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
