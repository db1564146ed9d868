"""Figures of a job and of many, from segments alone.

All are whole seconds or GPU-seconds, so that sums are exact; hours are a matter of printing. Source of every figure:
the segments of `segments.py`, and through them the rows of Slurm's accounting.
"""

from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

import msgspec

from ones_slurm.report.segments import RESTARTED, JobHistory, Segment

_SECONDS_PER_HOUR = 3600


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One job.

    state: of its last segment, in Slurm's words.
    completion_s: from its first Submit to its last End; None while it is not over.
    wait_s: all its waits, first start and requeues.
    gpu_s: GPU-seconds held while it ran.
    restart_gpu_s: GPU-seconds for which its nodes stayed taken between a run's end and its next Submit.
    moves: how often it went on with other nodes or another batch, or was requeued.
    interruptions: how often it went on after a lost node or a preemption.
    """

    state: str
    completion_s: int | None
    wait_s: int
    gpu_s: int
    restart_gpu_s: int
    moves: int
    interruptions: int


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Many jobs. `mean_completion_s` is over the `finished` ones, None when none is."""

    jobs: int
    finished: int
    mean_completion_s: Fraction | None
    wait_s: int
    gpu_s: int
    restart_gpu_s: int
    moves: int
    interruptions: int


def job_figures(history: JobHistory) -> JobFigures:
    """The figures of one job."""
    segments = history.segments
    last = segments[-1]
    pairs = list(pairwise(segments))
    return JobFigures(
        state=last.ended_by,
        completion_s=None if last.open else last.end_s - segments[0].submit_s,
        wait_s=sum(segment.wait_s for segment in segments),
        gpu_s=sum(segment.gpu_s for segment in segments),
        restart_gpu_s=sum(segment.restart_gpu_s for segment in segments),
        moves=sum(is_move(before, after) for before, after in pairs),
        interruptions=sum(is_interruption(before) for before, _ in pairs),
    )


def totals(figures: Iterable[JobFigures]) -> Totals:
    """The sums over many jobs."""
    all_figures = list(figures)
    completions = [job.completion_s for job in all_figures if job.completion_s is not None]
    return Totals(
        jobs=len(all_figures),
        finished=len(completions),
        mean_completion_s=Fraction(sum(completions), len(completions)) if completions else None,
        wait_s=sum(job.wait_s for job in all_figures),
        gpu_s=sum(job.gpu_s for job in all_figures),
        restart_gpu_s=sum(job.restart_gpu_s for job in all_figures),
        moves=sum(job.moves for job in all_figures),
        interruptions=sum(job.interruptions for job in all_figures),
    )


def gpu_hours(gpu_s: int) -> Fraction:
    """GPU-seconds as GPU-hours, exactly."""
    return Fraction(gpu_s, _SECONDS_PER_HOUR)


def is_interruption(before: Segment) -> bool:
    """Whether a job that goes on after this segment had lost a node or was preempted."""
    return before.ended_by in RESTARTED and before.ended_by != "REQUEUED"


def is_move(before: Segment, after: Segment) -> bool:
    """Whether it went on elsewhere, at another size or with another batch.

    A resize that left the nodes as they were (a merge that failed, say) moved nothing.
    """
    if before.ended_by == "RESIZED":
        return before.nodes != after.nodes
    return before.ended_by in {"REQUEUED", "REBATCHED"}
