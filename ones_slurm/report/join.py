"""Accounting and journal together: what happened to each job, as far as either of them knows."""

from collections.abc import Sequence
from typing import Protocol

from ones_slurm.engine.records import Holding, MoveRow, Point
from ones_slurm.report.moves import with_moves
from ones_slurm.report.samples import with_samples
from ones_slurm.report.segments import JobHistory


class Known(Protocol):
    """What `onesd` knows of a job: its journal, or its answer to who may not read that."""

    def moves(self, job_id: str) -> Sequence[MoveRow]:
        """Every action on it, oldest first."""
        ...

    def holdings(self, job_id: str) -> Sequence[Holding]:
        """Every set of nodes that it was seen to hold, oldest first."""
        ...

    def points(self, job_id: str) -> Sequence[Point]:
        """How far it was over time, oldest first."""
        ...


def explained(history: JobHistory, known: Known) -> JobHistory:
    """A history from accounting, with all that the journal has to say to it."""
    moves, holdings = known.moves(history.job_id), known.holdings(history.job_id)
    told = with_moves(history, moves, holdings) if moves or holdings else history
    points = known.points(history.job_id)
    return with_samples(told, points) if points else told
