"""Every column of the report, declared once: the terminal, `-P`, `--json`, `--help` and the guide all read this."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec

from ones_slurm.model.errors import UsageError
from ones_slurm.report.figures import JobFigures, Totals, gpu_hours, job_figures, totals
from ones_slurm.report.segments import JobHistory, Segment

_SECONDS_PER_DAY = 86400
JSON_VERSION = 1


class Line(msgspec.Struct, frozen=True):
    """What a row of the table is made of: a segment, its number, and the job that it belongs to."""

    job: JobHistory
    figures: JobFigures
    number: int
    segment: Segment


def show_time(seconds: int | None) -> str:
    """Local time as `sacct` prints it."""
    return "-" if seconds is None else datetime.fromtimestamp(seconds).isoformat(timespec="seconds")


def show_duration(seconds: int | Fraction | None) -> str:
    """[D-]HH:MM:SS as `sacct` prints it."""
    if seconds is None:
        return "-"
    days, rest = divmod(round(seconds), _SECONDS_PER_DAY)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def show_hours(hours: Fraction) -> str:
    """GPU-hours to the thousandth, which is 3.6 GPU-seconds."""
    return f"{float(hours):.3f}"


def show(value: object) -> str:
    """Anything else; `-` where there is nothing to say."""
    return "-" if value is None or value == "" else str(value)


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column: `key` names it for `-o` and in JSON, `value` takes it from a line, `show` prints it."""

    key: str
    title: str
    what: str
    value: Callable[[Line], Any]
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
)
# Those that the line above a job's segments says already.
OF_THE_JOB = frozenset({"jobid", "user", "account", "partition", "name", "submit"})


def chosen(format_: str) -> list[tuple[Column, int]]:
    """The columns that `-o name[%width],...` asks for, each with its width (0: as wide as needed, < 0: to the left).

    Raises `UsageError` that names every column there is.
    """
    by_key = {column.key: column for column in COLUMNS}
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


def report_values(jobs: Sequence[JobHistory]) -> dict[str, Any]:
    """All for JSON; `version` changes when a name or a meaning does, not when something is added."""
    figures = [job_figures(job) for job in jobs]
    return {
        "version": JSON_VERSION,
        "jobs": [_job_values(job, its) for job, its in zip(jobs, figures, strict=True)],
        "totals": _plain(totals(figures)),
    }


def _job_values(job: JobHistory, figures: JobFigures) -> dict[str, Any]:
    first = job.segments[0]
    lines = [Line(job, figures, number, segment) for number, segment in enumerate(job.segments, 1)]
    return {
        "jobid": job.job_id,
        "user": job.user,
        "account": first.account,
        "partition": first.partition,
        "name": first.name,
        "submit": first.submit_s,
        **_plain(figures),
        "segments": [_segment_values(line) for line in lines],
        "warnings": list(job.warnings),
    }


def _segment_values(line: Line) -> dict[str, Any]:
    values = {column.key: column.value(line) for column in COLUMNS if column.key not in OF_THE_JOB - {"submit"}}
    exact = {"gpu_s": line.segment.gpu_s, "restart_gpu_s": line.segment.restart_gpu_s}
    return {key: _number(value) for key, value in values.items()} | exact


def _plain(figures: JobFigures | Totals) -> dict[str, Any]:
    values = {name: _number(getattr(figures, name)) for name in figures.__struct_fields__}
    hours = {"gpuhours": float(gpu_hours(figures.gpu_s)), "restart": float(gpu_hours(figures.restart_gpu_s))}
    return values | hours


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Fraction) else value


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
