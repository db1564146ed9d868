"""The report for scripts: every column by its key, times in Unix seconds, durations in seconds, shares as fractions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ones_slurm.report.columns import columns_of
from ones_slurm.report.figures import JobFigures, Totals, gpu_hours, job_figures, totals
from ones_slurm.report.lines import GroupLine, JobLine, Line, lines_of
from ones_slurm.report.losses import CAUSES, losses
from ones_slurm.report.segment_columns import COLUMNS, OF_THE_JOB
from ones_slurm.report.segments import JobHistory

JSON_VERSION = 1


def values_of(by: str, lines: Sequence[JobLine] | Sequence[GroupLine]) -> dict[str, Any]:
    """A table for JSON: every column of it by its key; shares are fractions, times seconds."""
    columns = columns_of(by)
    rows = [{column.key: _number(column.value(line)) for column in columns} for line in lines]
    return {"version": JSON_VERSION, "by": by, "rows": rows}


def report_values(jobs: Sequence[JobHistory]) -> dict[str, Any]:
    """All for JSON; `version` changes when a name or a meaning does, not when something is added."""
    figures = [job_figures(job) for job in jobs]
    return {
        "version": JSON_VERSION,
        "jobs": [_job_values(job, its) for job, its in zip(jobs, figures, strict=True)],
        "totals": _plain(totals(figures)),
    }


def _job_values(job: JobHistory, figures: JobFigures) -> dict[str, Any]:
    first, lost = job.segments[0], losses(job)
    return {
        "jobid": job.job_id,
        "user": job.user,
        "account": first.account,
        "partition": first.partition,
        "name": first.name,
        "submit": first.submit_s,
        **_plain(figures),
        "goodput": lost.goodput,
        "losses_gpu_s": {cause: getattr(lost, cause) for cause in CAUSES},
        "segments": [_segment_values(line) for line in lines_of(job)],
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
