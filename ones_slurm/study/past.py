"""The past of a site, from whatever remembers it: a journal of `onesd`, a ledger, or somebody's output of `sacct`."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ones_slurm.engine.journal import Journal
from ones_slurm.model.cluster import ClusterView, JobState, JobView
from ones_slurm.model.wish import format_wish
from ones_slurm.report.dump import read_dump
from ones_slurm.report.ledger import Ledger
from ones_slurm.report.ledger_schema import is_ledger
from ones_slurm.report.selection import Selection
from ones_slurm.slurm.client import AccountingRow

_SQLITE = b"SQLite format 3\0"
# Ours: of the week that a journal keeps, a look every two minutes; sizes seldom change oftener.
_MOST_VIEWS = 5000


class Past(msgspec.Struct, frozen=True):
    """Rows as accounting has them, the latest moment that they know of, and how many lines could not be read."""

    rows: tuple[AccountingRow, ...]
    last_s: float
    unreadable: int = 0


def read_past(path: Path) -> Past:
    """Reads any of them. Raises `NotFound`, `Failed` or `UsageError` that says what is wrong with the file."""
    if not _is_sqlite(path):
        dump = read_dump(path)
        return Past(dump.rows, dump.last_s, dump.unreadable)
    if is_ledger(path):
        with Ledger.read(path) as ledger:
            return Past(tuple(ledger.rows(Selection())), ledger.until_s)
    with Journal.read(path) as journal:
        views = list(journal.views(0.0, float("inf"), _MOST_VIEWS))
    return Past(tuple(rows_of_views(views)), views[-1].now_s if views else 0.0)


def rows_of_views(views: Iterable[ClusterView]) -> Iterator[AccountingRow]:
    """What accounting would have written: a row for each run and size that was seen, wishes in the comment.

    A job is taken to have left its nodes when others began there, or else when it was first seen without them.
    """
    open_rows: dict[str, AccountingRow] = {}
    for view in views:
        there = {job.job_id: job for job in view.jobs}
        # While a job ends its nodes go one by one, as they are clean.
        ending = {job.job_id for job in view.jobs if job.state is JobState.ENDING}
        for job_id, row in list(open_rows.items()):
            if job_id in ending:
                continue
            if job_id not in there:
                yield _closed(open_rows.pop(job_id), "COMPLETED", view)
            elif there[job_id].submit_s > row.submit_s and there[job_id].start_s != row.start_s:
                yield _closed(open_rows.pop(job_id), "REQUEUED", view)
            elif row.nodes and there[job_id].nodes and set(row.nodes) != set(there[job_id].nodes):
                yield _closed(row, "RESIZING", view)
                open_rows[job_id] = _row(there[job_id], submit_s=view.now_s, start_s=view.now_s)
        for job_id, job in there.items():
            known = open_rows.get(job_id)
            if job_id not in ending and (known is None or (job.nodes and not known.nodes)):
                open_rows[job_id] = _row(job, submit_s=job.submit_s, start_s=job.start_s if job.nodes else None)
    yield from open_rows.values()


def _row(job: JobView, *, submit_s: float, start_s: float | None) -> AccountingRow:
    return AccountingRow(
        job_id=job.job_id,
        raw_id=job.job_id,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        state="RUNNING" if job.nodes else "PENDING",
        cancelled_by=None,
        submit_s=submit_s,
        eligible_s=submit_s,
        start_s=start_s,
        end_s=None,
        nodes=job.nodes,
        nnodes=len(job.nodes),
        gpus=job.gpus,
        cpus=0,
        exit_status=0,
        signal=0,
        time_limit_s=job.time_limit_s,
        comment=format_wish(job.wish) if job.wish is not None else "",
    )


def _closed(row: AccountingRow, state: str, view: ClusterView) -> AccountingRow:
    begun_s = row.submit_s if row.start_s is None else row.start_s
    others_s = [
        job.start_s
        for job in view.jobs
        if job.start_s is not None and job.start_s > begun_s and not set(job.nodes).isdisjoint(row.nodes)
    ]
    end_s = min([view.now_s, *others_s])
    return msgspec.structs.replace(row, state="CANCELLED" if row.start_s is None else state, end_s=end_s)


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # the reader of dumps says why
