"""Every column of the report, declared once: the terminal, `-P`, `--json`, `--help` and the guide all read this."""

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.report.column import Column
from ones_slurm.report.figures import gpu_hours
from ones_slurm.report.segment_columns import COLUMNS
from ones_slurm.report.segments import JobHistory
from ones_slurm.report.shown import show_duration, show_hours, show_ratio, show_share

_OF_SEGMENTS = {column.key: column for column in COLUMNS}


def _same(key: str, value: Callable[[Any], Any], what: str = "", **more: Any) -> Column:
    """A column that a table of jobs or sums has in common with that of segments: same name, same unit."""
    like = _OF_SEGMENTS[key]
    given = {"value": value, "what": what or like.what, "default": True} | more
    return msgspec.structs.replace(like, **given)


_COMPLETION = Column(
    key="completion",
    title="COMPLETION",
    what="from the first SUBMIT to the last END; - while it is not over",
    value=lambda line: line.figures.completion_s,
    show=show_duration,
    right=True,
)
_MOVES = Column(
    key="moves",
    title="MOVES",
    what="how often it went on with other nodes or another batch, or was requeued",
    value=lambda line: line.figures.moves,
    right=True,
)
_INTERRUPTIONS = Column(
    key="interruptions",
    title="INTERRUPTIONS",
    what="how often it went on after a lost node or a preemption",
    value=lambda line: line.figures.interruptions,
    right=True,
    default=False,
)


def _loss(cause: str, title: str, what: str) -> Column:
    return Column(
        key="l" + cause.replace("_", ""),
        title=title,
        what=f"GPU-hours lost: {what}",
        value=lambda line: Fraction(getattr(line.losses, cause)) / 3600,
        show=show_hours,
        right=True,
        default=False,
    )


JOB_COLUMNS: tuple[Column, ...] = (
    _same("jobid", lambda line: line.job.job_id),
    _same("user", lambda line: line.job.user),
    _same("account", lambda line: line.job.segments[0].account),
    _same("partition", lambda line: line.job.segments[0].partition),
    _same("name", lambda line: line.job.segments[0].name),
    Column(key="state", title="STATE", what="Slurm's word on its last run", value=lambda line: line.figures.state),
    _same("submit", lambda line: line.job.segments[0].submit_s, "when it was submitted first", default=False),
    _same("start", lambda line: _first_start(line.job), "when it began to hold nodes first; - if never", default=False),
    _same(
        "end",
        lambda line: None if line.figures.completion_s is None else line.job.segments[-1].end_s,
        "when it ended for good; - while it goes on",
        default=False,
    ),
    _same("wait", lambda line: line.figures.wait_s, "all its waits, of the first start and of requeues"),
    _COMPLETION,
    _same("gpuhours", lambda line: gpu_hours(line.figures.gpu_s), "GPUs x (END - START), over all its segments"),
    _same("restart", lambda line: gpu_hours(line.figures.restart_gpu_s)),
    _MOVES,
    _INTERRUPTIONS,
    Column(
        key="goodput",
        title="GOODPUT",
        what="share of its GPU time that trained it, from the journal; - without one",
        value=lambda line: line.losses.goodput,
        show=show_share,
        right=True,
    ),
    _loss("waiting", "L-WAITING", "its waits, times the GPUs that it then got (others may have used them)"),
    _loss("moving", "L-MOVING", "under orders to become another size, its nodes held"),
    _loss("restarting", "L-RESTARTING", "Slurm's clean-up after requeues, and starts until it trained"),
    _loss("lost_work", "L-LOSTWORK", "trained, and trained again from an older checkpoint"),
    _loss("bubbles", "L-BUBBLES", "idle time of its pipeline, by its own account"),
    _loss("large_batch", "L-LARGEBATCH", "what samples at a larger batch than the script's own were worth less"),
    Column(
        key="rho",
        title="RHO",
        what="finish-time fairness: COMPLETION over the time on a fair share of the cluster; - while it is not over",
        value=lambda line: line.rho,
        show=show_ratio,
        right=True,
        default=False,
    ),
    _same("samples", lambda line: _sum(segment.samples for segment in line.job.segments), "samples trained and kept"),
)

GROUP_COLUMNS: tuple[Column, ...] = (
    Column(key="by", title="BY", what="user, account, partition or day", value=lambda line: line.group.key),
    Column(key="jobs", title="JOBS", what="jobs that waited or ran", value=lambda line: line.group.jobs, right=True),
    Column(
        key="finished",
        title="FINISHED",
        what="jobs that ended, whatever ended them",
        value=lambda line: line.group.finished,
        right=True,
    ),
    msgspec.structs.replace(
        _COMPLETION,
        what="mean of the finished jobs, from the first SUBMIT to the last END",
        value=lambda line: line.group.completion_s,
    ),
    Column(
        key="low",
        title="LOW",
        what="lower end of the 95 % interval of COMPLETION (bootstrap)",
        value=lambda line: line.group.low_s,
        show=show_duration,
        right=True,
    ),
    Column(
        key="high",
        title="HIGH",
        what="upper end of it",
        value=lambda line: line.group.high_s,
        show=show_duration,
        right=True,
    ),
    _same("wait", lambda line: line.group.wait_s, "all waits, within -S and -E"),
    _same("gpuhours", lambda line: gpu_hours(line.group.gpu_s), "GPUs x time held, within -S and -E"),
    Column(
        key="share",
        title="SHARE",
        what="of the GPU-HOURS of all lines",
        value=lambda line: line.share,
        show=show_share,
        right=True,
    ),
    Column(
        key="use",
        title="USE",
        what="of the GPU time of the cluster, whose GPUs are taken to be as many as were ever held at once meanwhile",
        value=lambda line: line.group.use,
        show=show_share,
        right=True,
    ),
    _same("restart", lambda line: gpu_hours(line.group.restart_gpu_s)),
    msgspec.structs.replace(_MOVES, value=lambda line: line.group.moves),
    msgspec.structs.replace(_INTERRUPTIONS, value=lambda line: line.group.interruptions, default=True),
)


def _first_start(job: JobHistory) -> int | None:
    return next((segment.start_s for segment in job.segments if segment.start_s is not None), None)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def columns_of(by: str) -> tuple[Column, ...]:
    """The columns of a table by segment, job, or one of the sums."""
    return {"segment": COLUMNS, "job": JOB_COLUMNS}.get(by, GROUP_COLUMNS)


def chosen(format_: str, columns: Sequence[Column] = COLUMNS) -> list[tuple[Column, int]]:
    """The columns that `-o name[%width],...` asks for, each with its width (0: as wide as needed, < 0: to the left).

    Raises `UsageError` that names every column there is.
    """
    by_key = {column.key: column for column in columns}
    found = []
    for part in format_.split(","):
        match = re.fullmatch(r"\s*([A-Za-z-]+)(?:%(-?\d{1,4}))?\s*", part)
        column = by_key.get(match[1].lower().replace("-", "")) if match else None
        if match is None or column is None:
            raise UsageError(f"there is no column {part.strip()!r}", hint=f"the columns are {', '.join(by_key)}")
        found.append((column, int(match[2] or 0)))
    return found
