"""The lines of the report's tables: what each column takes its value from, and the sentences on whole jobs."""

from collections.abc import Mapping, Sequence

import msgspec

from ones_slurm.report.figures import JobFigures, Totals, gpu_hours, job_figures
from ones_slurm.report.groups import Group
from ones_slurm.report.losses import Losses, losses
from ones_slurm.report.segments import JobHistory, Segment
from ones_slurm.report.shown import show, show_count, show_duration, show_hours, show_time


class Line(msgspec.Struct, frozen=True):
    """What a row of the table is made of: a segment, its number, and the job that it belongs to."""

    job: JobHistory
    figures: JobFigures
    number: int
    segment: Segment


class JobLine(msgspec.Struct, frozen=True):
    """A row of the table of jobs."""

    job: JobHistory
    figures: JobFigures
    losses: Losses
    rho: float | None = None


class GroupLine(msgspec.Struct, frozen=True):
    """A row of a table of sums: by what, and of all GPU time the share that is in it."""

    by: str
    group: Group
    share: float


def lines_of(job: JobHistory) -> list[Line]:
    """The lines of a job's segments."""
    figures = job_figures(job)
    return [Line(job, figures, number, segment) for number, segment in enumerate(job.segments, 1)]


def job_lines(jobs: Sequence[JobHistory], rho: Mapping[tuple[str, str], float] | None = None) -> list[JobLine]:
    """The lines of a table of jobs; `rho` by job id and user, where it was worked out."""
    return [JobLine(job, job_figures(job), losses(job), (rho or {}).get((job.job_id, job.user))) for job in jobs]


def group_lines(by: str, found: Sequence[Group]) -> list[GroupLine]:
    """The lines of a table of sums."""
    all_gpu_s = sum(group.gpu_s for group in found)
    return [GroupLine(by, group, group.gpu_s / all_gpu_s if all_gpu_s else 0.0) for group in found]


def job_line(job: JobHistory, figures: JobFigures) -> str:
    """One line on a whole job."""
    first = job.segments[0]
    if figures.completion_s is None:
        since = f"submitted {show_time(first.submit_s)}"
    else:
        since = f"completed in {show_duration(figures.completion_s)}"
    parts = [figures.state, since, *_sums(figures)]
    names = [show(name) for name in (first.name, job.user, first.account, first.partition)]
    return f"JOB {job.job_id}  {'  '.join(names)}  {', '.join(parts)}"


def totals_line(total: Totals) -> str:
    """One line on all of them."""
    mean = "" if total.mean_completion_s is None else f" in {show_duration(total.mean_completion_s)} on average"
    parts = [f"{show_count(total.jobs, 'job')}, {total.finished} finished{mean}", *_sums(total)]
    return f"TOTAL  {', '.join(parts)}"


def _sums(figures: JobFigures | Totals) -> Sequence[str]:
    sums = [
        f"waited {show_duration(figures.wait_s)}",
        show_count(figures.moves, "move"),
        f"{show_hours(gpu_hours(figures.gpu_s))} GPU-hours",
        f"restarts cost {show_hours(gpu_hours(figures.restart_gpu_s))} GPU-hours",
    ]
    return [*sums, show_count(figures.interruptions, "interruption")] if figures.interruptions else sums
