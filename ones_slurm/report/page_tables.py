"""The tables of the report's page, as its template wants them: titles, and rows of cells that are text already."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ones_slurm.report.column import Column
from ones_slurm.report.figures import JobFigures, gpu_hours, totals
from ones_slurm.report.lines import lines_of
from ones_slurm.report.losses import Losses
from ones_slurm.report.page_data import Comparison, Summary, summary
from ones_slurm.report.segment_columns import COLUMNS
from ones_slurm.report.segments import JobHistory
from ones_slurm.report.shown import show_duration, show_hours, show_share

# Ours: a page with more lines is not read; those that matter most come first and the rest is counted.
MOST_SEGMENTS = 300
MOST_MOVERS = 15
MOST_WARNINGS = 50


class _Title(msgspec.Struct, frozen=True, kw_only=True):
    """A heading of a table that has no column of the report behind it."""

    title: str
    what: str
    key: str = ""
    right: bool = True


def tiles(figures: Sequence[JobFigures], here: Summary, lost: Losses) -> list[tuple[str, str]]:
    """The figures at the head of the page, each with its name."""
    total = totals(figures)
    return [
        (f"{total.jobs} / {total.finished}", "jobs / finished"),
        (show_hours(gpu_hours(total.gpu_s)), "GPU-hours held"),
        (show_share(here.utilisation), "of all GPU time was held"),
        (show_share(lost.goodput), "of the time held trained jobs"),
        (_duration(here.mean_completion_s), "mean completion time"),
        (_duration(here.mean_wait_s), "mean wait to the first start"),
        (str(total.moves), "moves"),
        (str(total.interruptions), "interruptions"),
    ]


_SUMMARY = (
    (_Title(title="", what="whose account of the same submissions", right=False), lambda row: row.name),
    (_Title(title="JOBS", what="jobs in it"), lambda row: str(row.jobs)),
    (
        _Title(title="MEAN", what="mean completion time, from submission to the end"),
        lambda row: _duration(row.mean_completion_s),
    ),
    (_Title(title="MEDIAN", what="half of the jobs took no longer"), lambda row: _duration(row.median_completion_s)),
    (_Title(title="P90", what="nine in ten took no longer"), lambda row: _duration(row.p90_completion_s)),
    (_Title(title="WAIT", what="mean time to the first start"), lambda row: _duration(row.mean_wait_s)),
    (_Title(title="MAKESPAN", what="from the first submission to the last end"), lambda row: _duration(row.makespan_s)),
    (_Title(title="GPU-HOURS", what="GPU time that jobs held"), lambda row: f"{row.gpu_s / 3600:.3f}"),
    (
        _Title(title="USED", what="share of all GPU time until the last end that was held"),
        lambda row: show_share(row.utilisation),
    ),
    (_Title(title="MOVES", what="changes of nodes, GPUs or batch"), lambda row: str(row.moves)),
)


def comparison(told: Comparison) -> dict[str, Any]:
    """What happened beside what would have been, over the same jobs."""
    return {
        "jobs": len(told.timelines[0].jobs),
        "columns": [title for title, _ in _SUMMARY],
        "rows": [[cell(summary(timeline, told.gpus)) for _, cell in _SUMMARY] for timeline in told.timelines],
        "assumptions": told.assumptions,
    }


def movers(jobs: Sequence[JobHistory], figures: Sequence[JobFigures]) -> dict[str, Any]:
    """The jobs that were moved most often."""
    moved = sorted(
        ((its, job) for job, its in zip(jobs, figures, strict=True) if its.moves),
        key=lambda entry: (-entry[0].moves, -entry[0].restart_gpu_s, entry[1].job_id),
    )[:MOST_MOVERS]
    titles = (
        *(column for column in COLUMNS if column.key in ("jobid", "user", "name")),
        _Title(title="MOVES", what="how often it went on with other nodes or another batch, or was requeued"),
        _Title(title="SIZES", what="nodes held, one after the other", right=False),
        *(column for column in COLUMNS if column.key in ("gpuhours", "restart")),
    )
    rows = []
    for its, job in moved:
        sizes = " → ".join(str(segment.nnodes) for segment in job.segments if segment.start_s is not None)
        first = job.segments[0]
        cells = (job.job_id, job.user, first.name, str(its.moves), sizes)
        hours = (show_hours(gpu_hours(its.gpu_s)), show_hours(gpu_hours(its.restart_gpu_s)))
        rows.append(list(zip(titles, (*cells, *hours), strict=True)))
    return {"columns": titles, "rows": rows}


def segments(jobs: Sequence[JobHistory]) -> dict[str, Any]:
    """The lines of the table of segments."""
    columns = [column for column in COLUMNS if column.default and column.key not in ("submit", "account", "partition")]
    rows: list[list[tuple[Column, str]]] = []
    for job in _largest(jobs):
        if len(rows) >= MOST_SEGMENTS:
            break
        rows += [[(column, column.show(column.value(line))) for column in columns] for line in lines_of(job)]
    return {"columns": columns, "rows": rows[:MOST_SEGMENTS]}


def _largest(jobs: Sequence[JobHistory]) -> Sequence[JobHistory]:
    """All of them in their order, or the largest in GPU-hours where they are too many for a page."""
    if sum(len(job.segments) for job in jobs) <= MOST_SEGMENTS:
        return jobs
    return sorted(jobs, key=lambda job: -sum(segment.gpu_s for segment in job.segments))


def table_note(jobs: Sequence[JobHistory]) -> str:
    """What stands over that table."""
    segments = sum(len(job.segments) for job in jobs)
    note = "A line is a segment: a time over which a job held the same nodes with the same batch."
    if segments > MOST_SEGMENTS:
        note += f" The first {MOST_SEGMENTS} of {segments}, the largest jobs first; `ones report` has them all."
    return note


def warnings(jobs: Sequence[JobHistory]) -> list[str]:
    """What was odd, job by job."""
    said = [f"Job {job.job_id}: {oddity.what}" for job in jobs for oddity in job.oddities]
    return said[:MOST_WARNINGS] + ([f"and {len(said) - MOST_WARNINGS} more"] if len(said) > MOST_WARNINGS else [])


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else show_duration(seconds)
