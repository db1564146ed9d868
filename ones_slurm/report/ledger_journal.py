"""What the ledger keeps of the journal, so that it is known also when the journal is gone or may not be read."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from ones_slurm.engine.records import Holding, MoveRow, Point
from ones_slurm.report.join import Known

Row = TypeVar("Row", MoveRow, Holding, Point)
# Ours: long after its end nothing more is heard of a job.
_LAST_WORD_S = 3600.0


class Kept:
    """A `Known` of what is kept."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def jobs(self) -> frozenset[str]:
        """Those of which anything is kept."""
        return frozenset(row[0] for row in self._db.execute("select job_id from told where anything"))

    def moves(self, job_id: str) -> Sequence[MoveRow]:
        return self._read("moves", "sent_s", MoveRow, job_id)

    def holdings(self, job_id: str) -> Sequence[Holding]:
        return self._read("holdings", "seen_s", Holding, job_id)

    def points(self, job_id: str) -> Sequence[Point]:
        return self._read("points", "at_s", Point, job_id)

    def unsettled(self) -> Iterable[tuple[str, bool]]:
        """Of the jobs in `temp.chosen` those that the journal may know more of, and whether they had a wish."""
        return self._db.execute(
            "select distinct job_id, exists (select 1 from rows r where r.job = jobs.job and r.job_id = jobs.job_id "
            "and comment <> '') from jobs join chosen using (job, job_id, user) left join told using (job_id) "
            "where at_s is null or end_s is null or at_s < end_s + ?",
            (_LAST_WORD_S,),
        ).fetchall()

    def learn(self, job_id: str, known: Known, now_s: float) -> bool:
        """Writes all that is known of a job over what was; whether its runs may have to be mended."""
        told: dict[str, Sequence[Any]] = {
            "moves": known.moves(job_id),
            "holdings": known.holdings(job_id),
            "points": known.points(job_id),
        }
        before = len(self.holdings(job_id))
        for table, rows in told.items():
            for row in rows:
                named = {name: _plain(getattr(row, name)) for name in row.__struct_fields__}
                marks = ", ".join("?" * len(named))
                self._db.execute(
                    f"insert or replace into {table}({', '.join(named)}) values ({marks})", tuple(named.values())
                )
        self._db.execute("insert or replace into told values (?, ?, ?)", (job_id, now_s, any(told.values())))
        return len(told["holdings"]) > before

    def _read(self, table: str, order: str, kind: type[Row], job_id: str) -> list[Row]:
        names = kind.__struct_fields__
        rows = self._db.execute(f"select {', '.join(names)} from {table} where job_id = ? order by {order}", (job_id,))
        found = []
        for row in rows:
            named = dict(zip(names, row, strict=True))
            if "nodes" in named:
                named["nodes"] = named["nodes"].split()
            found.append(msgspec.convert(named, kind))
        return found


def _plain(value: Any) -> Any:
    """As SQLite takes it."""
    return " ".join(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
