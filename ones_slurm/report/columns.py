"""Every column of the report, declared once: the terminal, `-P`, `--json`, `--help` and the guide all read this."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.report.figures import JobFigures, Totals, gpu_hours, job_figures
from ones_slurm.report.groups import Group
from ones_slurm.report.losses import Losses, losses
from ones_slurm.report.segments import JobHistory, Segment
from ones_slurm.report.shown import show, show_duration, show_hours, show_ratio, show_share, show_time


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


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column: `key` names it for `-o` and in JSON, `value` takes it from a line, `show` prints it."""

    key: str
    title: str
    what: str
    value: Callable[[Any], Any]
    show: Callable[[Any], str] = show
    right: bool = False
    default: bool = True


def _folded(line: Line) -> str:
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(line.segment.nodes))


def _ended(line: Line) -> str:
    return f"{line.segment.ended_by} {line.segment.ended_how}".strip()


COLUMNS: tuple[Column, ...] = (
    Column(key="jobid", title="JOBID", what="job, array task or component", value=lambda line: line.job.job_id),
    Column(key="user", title="USER", what="who submitted it", value=lambda line: line.job.user),
    Column(key="account", title="ACCOUNT", what="account charged", value=lambda line: line.segment.account),
    Column(key="partition", title="PARTITION", what="partition", value=lambda line: line.segment.partition),
    Column(key="name", title="NAME", what="name of the job", value=lambda line: line.segment.name),
    Column(key="seg", title="SEG", what="number of the segment", value=lambda line: line.number, right=True),
    Column(
        key="submit",
        title="SUBMIT",
        what="when the job, or this run or size of it, was submitted",
        value=lambda line: line.segment.submit_s,
        show=show_time,
    ),
    Column(
        key="start",
        title="START",
        what="when it began to hold these nodes; - if never",
        value=lambda line: line.segment.start_s,
        show=show_time,
    ),
    Column(
        key="end",
        title="END",
        what="when it ceased to; - while it goes on (it is counted until now)",
        value=lambda line: None if line.segment.open else line.segment.end_s,
        show=show_time,
    ),
    Column(
        key="wait",
        title="WAIT",
        what="wait before it: since eligible (first start), since its Submit (after a requeue), none after a resize",
        value=lambda line: line.segment.wait_s,
        show=show_duration,
        right=True,
    ),
    Column(key="nodes", title="NODES", what="nodes held", value=lambda line: line.segment.nnodes, right=True),
    Column(
        key="nodelist",
        title="NODELIST",
        what="their names",
        value=_folded,
        default=False,
    ),
    Column(key="gpus", title="GPUS", what="GPUs held", value=lambda line: line.segment.gpus, right=True),
    Column(
        key="batch",
        title="BATCH",
        what="global batch in samples, from the journal; - without one",
        value=lambda line: line.segment.batch,
        right=True,
    ),
    Column(
        key="gpuhours",
        title="GPU-HOURS",
        what="GPUs x (END - START)",
        value=lambda line: gpu_hours(line.segment.gpu_s),
        show=show_hours,
        right=True,
    ),
    Column(
        key="restart",
        title="RESTART",
        what="GPU-hours for which its nodes stayed taken after END, until the requeued job was submitted again",
        value=lambda line: gpu_hours(line.segment.restart_gpu_s),
        show=show_hours,
        right=True,
    ),
    Column(key="endedby", title="ENDED-BY", what="state that ended it, with signal, exit code or uid", value=_ended),
    Column(key="move", title="MOVE", what="move that began it, from the journal", value=lambda line: line.segment.move),
    Column(key="reason", title="REASON", what="why it was moved", value=lambda line: line.segment.reason),
    Column(
        key="samples",
        title="SAMPLES",
        what="samples trained in it and kept, by the job's own account in the journal",
        value=lambda line: line.segment.samples,
        right=True,
        default=False,
    ),
    Column(
        key="lost",
        title="LOST",
        what="samples trained in it for nothing: the job went on from an older checkpoint",
        value=lambda line: line.segment.lost_samples,
        right=True,
        default=False,
    ),
    Column(
        key="startup",
        title="STARTUP",
        what="from START until a move to it was done and the job trained, from the journal",
        value=lambda line: line.segment.startup_s,
        show=show_duration,
        right=True,
        default=False,
    ),
    Column(
        key="moving",
        title="MOVING",
        what="time in it under an order to become another size (at most: it may train on), from the journal",
        value=lambda line: line.segment.moving_s,
        show=show_duration,
        right=True,
        default=False,
    ),
    Column(
        key="companions",
        title="COMPANIONS",
        what="Slurm jobs whose nodes are among its NODES",
        value=lambda line: ",".join(line.segment.companions),
        default=False,
    ),
)
# Those that the line above a job's segments says already.
OF_THE_JOB = frozenset({"jobid", "user", "account", "partition", "name", "submit"})
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
    parts = [f"{_count(total.jobs, 'job')}, {total.finished} finished{mean}", *_sums(total)]
    return f"TOTAL  {', '.join(parts)}"


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


def _sums(figures: JobFigures | Totals) -> Sequence[str]:
    sums = [
        f"waited {show_duration(figures.wait_s)}",
        _count(figures.moves, "move"),
        f"{show_hours(gpu_hours(figures.gpu_s))} GPU-hours",
        f"restarts cost {show_hours(gpu_hours(figures.restart_gpu_s))} GPU-hours",
    ]
    return [*sums, _count(figures.interruptions, "interruption")] if figures.interruptions else sums


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
