"""GPU-hours, waits and completion by user, account, partition or day, added up by the ledger itself.

Unlike the tale of a job, a sum counts only what lies within the time that was asked for, so that the days of a week add
up to the week.
"""

import math
import sqlite3
from collections.abc import Sequence
from datetime import datetime, time, timedelta

import msgspec

from ones_slurm.report.intervals import mean_interval
from ones_slurm.report.segments import RUNAWAY_AFTER_S

BY = ("user", "account", "partition", "day")
# When a segment ends: of what goes on, now; of what must have ended long ago, at its time limit.
_END = (
    f"case when not open then s.end_s when ended_by <> 'SUSPENDED' and :now - s.start_s > time_limit_s + "
    f"{RUNAWAY_AFTER_S} then s.start_s + time_limit_s else max(:now, s.end_s) end"
)
_MOST_DAYS = 3660


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one user, account, partition or day; seconds and GPU-seconds within the time asked for.

    `jobs` waited or ran in it, `finished` ended in it, whatever ended them. `completion_s` is the mean time of the
    finished from submission to the end, `low_s` and `high_s` its 95 % interval. `use` is the share of the cluster's GPU
    time, its GPUs being as many as anybody's jobs held at once in the time asked for: at most, for others may have been
    idle all the time.
    """

    key: str
    jobs: int
    finished: int
    completion_s: float | None
    low_s: float | None
    high_s: float | None
    wait_s: int
    gpu_s: int
    use: float
    restart_gpu_s: int
    moves: int
    interruptions: int


def groups(db: sqlite3.Connection, by: str, begin_s: float, end_s: float, now_s: float, *, gpus: int) -> list[Group]:
    """The groups of the jobs in `temp.chosen`, by key; `gpus` are those of the cluster."""
    lasts_s = _spans(db, by, begin_s, end_s)
    at = {"now": int(now_s)}
    segment_key, job_key = _keys(by)
    sums = {
        row[0]: row[1:]
        for row in db.execute(
            "select key, sum(own * max(min(till, wait_till) - max(since, wait_since_s), 0)), "
            "sum(gpus * max(min(till, ended) - max(since, start_s), 0)), "
            "sum(own * gpus * max(min(till, ended + restart_cost_s) - max(since, ended), 0)), "
            "sum(own and moved and start_s >= since and start_s < till), "
            "sum(own and interrupted and start_s >= since and start_s < till) from ("
            # Of a companion only the GPUs count: it waits and comes back while its base trains.
            f"select {segment_key} as key, since, till, gpus, own, start_s, restart_cost_s, moved, "
            f"interrupted, wait_since_s, coalesce(start_s, {_END}) as wait_till, {_END} as ended "
            "from chosen join segments s using (job, job_id, user) "
            "join spans on since < ended + restart_cost_s and till > coalesce(wait_since_s, start_s)) group by key",
            at,
        )
    }
    counts = {
        row[0]: row[1:]
        for row in db.execute(
            f"select {job_key} as key, count(*), sum(end_s >= since and end_s < before) "
            "from chosen join jobs using (job, job_id, user) "
            "join spans on since <= coalesce(end_s, :now) and before > submit_s where own group by key",
            at,
        )
    }
    took: dict[str, list[float]] = {}
    for key, took_s in db.execute(
        f"select {job_key} as key, end_s - submit_s from chosen join jobs using (job, job_id, user) "
        "join spans on end_s >= since and end_s < before where own"
    ):
        took.setdefault(key, []).append(took_s)
    return [
        _group(
            key,
            counts.get(key, (0, 0)),
            sums.get(key, (0,) * 5),
            took.get(key, ()),
            all_gpu_s=gpus * (lasts_s[key] if by == "day" else lasts_s[""]),
        )
        for key in sorted({*sums, *counts})
    ]


def _group(
    key: str, counts: Sequence[int], sums: Sequence[int | None], took: Sequence[float], *, all_gpu_s: int
) -> Group:
    completion_s, low_s, high_s = mean_interval(took) or (None, None, None)
    wait_s, gpu_s, restart_gpu_s, moves, interruptions = (value or 0 for value in sums)
    return Group(
        key=key,
        jobs=counts[0],
        finished=counts[1] or 0,
        completion_s=completion_s,
        low_s=low_s,
        high_s=high_s,
        wait_s=wait_s,
        gpu_s=gpu_s,
        use=gpu_s / all_gpu_s if all_gpu_s else 0.0,
        restart_gpu_s=restart_gpu_s,
        moves=moves,
        interruptions=interruptions,
    )


def _keys(by: str) -> tuple[str, str]:
    """What names a group, of a segment and of a job. A job in several partitions counts to the first it named."""
    if by == "day":
        return "label", "label"
    if by == "partition":
        first = "substr({0}, 1, instr({0} || ',', ',') - 1)"
        return first.format("s.partition"), first.format("partitions")
    return f"s.{by}", by


def _spans(db: sqlite3.Connection, by: str, begin_s: float, end_s: float) -> dict[str, int]:
    """The times to add up in: one, or the days by name, from midnight to midnight in local time. Returns how long each
    lasts."""
    db.execute("drop table if exists temp.spans")
    db.execute("create temp table spans(since integer primary key, till integer, before integer, label text)")
    begin, end = math.floor(begin_s), math.ceil(end_s)
    spans = [(begin, end, "")]
    if by == "day":
        spans = []
        day = datetime.fromtimestamp(max(begin_s, end_s - _MOST_DAYS * 86400)).date()
        while (since_s := datetime.combine(day, time(0)).timestamp()) < end_s:
            till_s = datetime.combine(day + timedelta(days=1), time(0)).timestamp()
            spans.append((max(math.floor(since_s), begin), min(math.ceil(till_s), end), day.isoformat()))
            day += timedelta(days=1)
    # What ends at the very end of the time asked for has finished in it.
    db.executemany(
        "insert into spans values (?, ?, ?, ?)",
        [(since, till, till + (till == end), label) for since, till, label in spans],
    )
    return {label: till - since for since, till, label in spans}
