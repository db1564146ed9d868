"""Accounting and journal together: what happened to each job, as far as either of them knows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from ones_slurm.engine.records import Holding, MoveRow
from ones_slurm.report.lost_runs import with_lost_runs
from ones_slurm.report.moves import with_moves
from ones_slurm.report.segments import JobHistory, Oddity, histories
from ones_slurm.slurm.client import AccountingRow

_LOST = Oddity("runs lost", "accounting lost runs of it that followed a resize: they are told from the journal")


class Known(Protocol):
    """What `onesd` knows of a job: its journal, or its answer to who may not read that."""

    def moves(self, job_id: str) -> Sequence[MoveRow]:
        """Every action on it, oldest first."""
        ...

    def holdings(self, job_id: str) -> Sequence[Holding]:
        """Every set of nodes that it was seen to hold, oldest first."""
        ...


def joined(
    rows: Iterable[AccountingRow], journal: Known, *, now_s: float, gpus_per_node: Mapping[str, int]
) -> list[JobHistory]:
    """The histories of `segments.histories`, mended and explained by the journal."""
    by_job: dict[tuple[str, str], list[AccountingRow]] = defaultdict(list)
    for row in rows:
        by_job[row.job_id, row.user].append(row)
    mended: list[AccountingRow] = []
    lost: set[tuple[str, str]] = set()
    for job, its_rows in by_job.items():
        whole = with_lost_runs(its_rows, journal.holdings(job[0]))
        if whole != its_rows:
            lost.add(job)
        mended += whole
    found = []
    for history in histories(mended, now_s=now_s, gpus_per_node=gpus_per_node):
        told = with_moves(history, journal.moves(history.job_id), journal.holdings(history.job_id))
        if (history.job_id, history.user) in lost:
            told = msgspec.structs.replace(told, oddities=(*told.oddities, _LOST))
        found.append(told)
    return found
