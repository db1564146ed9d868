"""Rows of `sacct`, in the columns that every release has.

Text, because one centre found sacct's JSON four times slower; with a mark between fields that is drawn anew for each
call, because names, comments and submit lines are users' text and may hold line breaks.
"""

import functools
import re
import shlex

from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.exits import read_exit
from ones_slurm.slurm.hostlists import expand
from ones_slurm.slurm.jobids import read_job_id
from ones_slurm.slurm.releases import Release
from ones_slurm.slurm.states import cancelled_by
from ones_slurm.slurm.times import date_s, time_limit_s
from ones_slurm.slurm.tres import count_gpus, read_tres

# JobIDRaw is last: its value has no line break, so the one that follows it ends the row.
_COLUMNS = (
    *("JobID", "User", "Account", "Partition", "JobName", "State", "Submit", "Eligible", "Start", "End", "NodeList"),
    *("NNodes", "NCPUS", "AllocTRES", "ExitCode", "Timelimit", "Comment", "SubmitLine", "JobIDRaw"),
)


def columns(release: Release) -> tuple[str, ...]:
    """The columns to ask for."""
    return ("Restarts", *_COLUMNS) if release.sacct_has_restarts else _COLUMNS


def read_rows(text: str, mark: str, release: Release) -> list[AccountingRow]:
    """The rows of `sacct --parsable2 --noheader --delimiter=<mark>`, ordered by job and time of submission."""
    names = columns(release)
    rows: list[AccountingRow] = []
    fields: list[str] = []
    for value in text.split(mark):
        fields.append(value)
        if len(fields) == len(names):
            last, _, first_of_next = fields[-1].partition("\n")
            rows.append(read_row(dict(zip(names, [*fields[:-1], last], strict=True))))
            fields = [first_of_next]
    return sorted(rows, key=_by_job_and_submit)


def submitted_comment(submit_line: str) -> str:
    """The `--comment` of a command line: accounting keeps it where the site does not store job comments."""
    if "--comment" not in submit_line:
        return ""
    try:
        words = shlex.split(submit_line)
    except ValueError:
        words = submit_line.split()
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "--comment":
            return following
        if word.startswith("--comment="):
            return word.removeprefix("--comment=")
    return ""


def read_row(row: dict[str, str]) -> AccountingRow:
    """One row by the names of its columns; whichever way it was had, it holds all that `columns` asks for."""
    ended = _exit(row["ExitCode"])
    gpus, tres_nodes = _gpus_and_nodes(row["AllocTRES"])
    nodes = expand(row["NodeList"])
    state = row["State"]
    return AccountingRow(
        job_id=row["JobID"],
        raw_id=row["JobIDRaw"],
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        name=row["JobName"],
        state=state.partition(" ")[0],
        cancelled_by=cancelled_by(state) if " " in state else None,
        submit_s=date_s(row["Submit"]) or 0.0,
        eligible_s=date_s(row["Eligible"]),
        start_s=date_s(row["Start"]),
        end_s=date_s(row["End"]),
        nodes=nodes,
        nnodes=_whole(row["NNodes"]) or 0,
        gpus=gpus,
        cpus=_whole(row["NCPUS"]) or 0,
        exit_status=ended.status,
        signal=ended.signal,
        time_limit_s=_limit_s(row["Timelimit"]),
        comment=row["Comment"] or submitted_comment(row["SubmitLine"]),
        restarts=_whole(row.get("Restarts", "")),
        tres_nodes=tres_nodes,
        nodelist=row["NodeList"] if nodes else "",
    )


# The same words come in thousands of rows.
_exit = functools.lru_cache(maxsize=1024)(read_exit)
_limit_s = functools.lru_cache(maxsize=1024)(time_limit_s)


@functools.lru_cache(maxsize=16384)
def _gpus_and_nodes(tres: str) -> tuple[int | None, int | None]:
    nodes = read_tres(tres).get("node")
    return count_gpus(tres), None if nodes is None else int(nodes)


def _by_job_and_submit(row: AccountingRow) -> tuple[int, int, float]:
    job = read_job_id(row.job_id)
    if job is None:
        return (0, 0, row.submit_s)
    return (job.job, job.tasks[0][0] if job.tasks else job.het_offset or 0, row.submit_s)


@functools.lru_cache(maxsize=1024)
def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,12}", text, re.ASCII) else None
