"""Rows of `sacct --json` as somebody saved them, of 22.05 to 26.05: the same rows as of its text.

The shape changed over the releases: states became lists, numbers became `{set, infinite, number}`, names of fields did
not. Times are Unix seconds, 0 where there is none; the time limit is in minutes.
"""

from typing import Any

import msgspec
from ClusterShell.RangeSet import RangeSet

from ones_slurm.slurm.accounting import submitted_comment
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.exits import read_exit
from ones_slurm.slurm.hostlists import expand
from ones_slurm.slurm.numbers import Number, number, whole
from ones_slurm.slurm.states import read_states


class _Times(msgspec.Struct):
    submission: Number = 0
    eligible: Number = 0
    start: Number = 0
    end: Number = 0
    limit: Number = None


class _Tres(msgspec.Struct):
    type: str = ""
    name: str | None = ""
    count: Number = 0


class _TresLists(msgspec.Struct):
    allocated: list[_Tres] = []


class _MostRunning(msgspec.Struct):
    tasks: Number = 0


class _MostOf(msgspec.Struct):
    running: _MostRunning = msgspec.field(default_factory=_MostRunning)


class _Limits(msgspec.Struct):
    max: _MostOf = msgspec.field(default_factory=_MostOf)


class _Array(msgspec.Struct):
    job_id: Number = 0
    task_id: Number = None
    task: str | None = ""
    limits: _Limits = msgspec.field(default_factory=_Limits)


class _Het(msgspec.Struct):
    job_id: Number = 0
    job_offset: Number = None


class _State(msgspec.Struct):
    current: Any = ""


class _Comment(msgspec.Struct):
    job: str | None = ""


class RawRow(msgspec.Struct):
    """One job of `jobs`; whatever is missing is as if Slurm did not know it."""

    job_id: int
    user: str | None = ""
    account: str | None = ""
    partition: str | None = ""
    name: str | None = ""
    nodes: str | None = ""
    allocation_nodes: Number = 0
    restart_cnt: Number = None
    state: _State = msgspec.field(default_factory=_State)
    time: _Times = msgspec.field(default_factory=_Times)
    tres: _TresLists = msgspec.field(default_factory=_TresLists)
    array: _Array = msgspec.field(default_factory=_Array)
    het: _Het = msgspec.field(default_factory=_Het)
    comment: _Comment = msgspec.field(default_factory=_Comment)
    exit_code: Any = None
    kill_request_user: str | None = ""
    submit_line: str | None = ""


class _Answer(msgspec.Struct):
    jobs: list[RawRow]


def read_rows_json(text: bytes | str) -> list[AccountingRow]:
    """The rows, in the order of the file. Raises `msgspec.MsgspecError` for what is no such answer."""
    return [read_row_json(raw) for raw in msgspec.json.decode(text, type=_Answer, strict=False).jobs]


def read_row_json(raw: RawRow) -> AccountingRow:
    """One row; 0 stands for a time that there is not."""
    nodes = () if raw.nodes in {"None assigned", None, ""} else expand(raw.nodes)
    states = read_states(raw.state.current)
    ended = read_exit(raw.exit_code)
    limit_min = number(raw.time.limit)
    gpus = [tres for tres in raw.tres.allocated if tres.type == "gres" and (tres.name or "").partition(":")[0] == "gpu"]
    plain = [tres for tres in gpus if ":" not in (tres.name or "")]  # those with a type are counted in it once more
    return AccountingRow(
        job_id=_job_id(raw),
        raw_id=str(raw.job_id),
        user=raw.user or "",
        account=raw.account or "",
        partition=raw.partition or "",
        name=raw.name or "",
        state=_state(states),
        cancelled_by=(raw.kill_request_user or None) if "CANCELLED" in states else None,
        submit_s=number(raw.time.submission) or 0.0,
        eligible_s=_moment(raw.time.eligible),
        start_s=_moment(raw.time.start),
        end_s=_moment(raw.time.end),
        nodes=nodes,
        nnodes=whole(raw.allocation_nodes) or len(nodes),
        gpus=sum(whole(tres.count) for tres in plain or gpus) if gpus else None,
        cpus=_counted(raw, "cpu") or 0,
        exit_status=ended.status,
        signal=ended.signal,
        time_limit_s=None if limit_min is None else 60.0 * limit_min,
        comment=raw.comment.job or submitted_comment(raw.submit_line or ""),
        restarts=None if raw.restart_cnt is None else whole(raw.restart_cnt),
        tres_nodes=_counted(raw, "node"),
        nodelist=raw.nodes or "" if nodes else "",
    )


def _state(states: tuple[str, ...]) -> str:
    """The word of sacct's text. Of a row that a resize or a requeue closed the lists say PENDING before it."""
    if states[0] == "PENDING" and len(states) > 1:
        return states[1]
    return states[0]


def _job_id(raw: RawRow) -> str:
    """As sacct writes it: 12, 12_3 for an array task, 12_[4-9%2] for tasks that wait together, 12+1 for a part of a
    heterogeneous job."""
    task = number(raw.array.task_id)
    if whole(raw.array.job_id) and task is not None:
        return f"{whole(raw.array.job_id)}_{int(task)}"
    if whole(raw.array.job_id) and raw.array.task:
        most = whole(raw.array.limits.max.running.tasks)
        return f"{whole(raw.array.job_id)}_[{_tasks(raw.array.task)}{f'%{most}' if most else ''}]"
    offset = number(raw.het.job_offset)
    if whole(raw.het.job_id) and offset is not None:
        return f"{whole(raw.het.job_id)}+{int(offset)}"
    return str(raw.job_id)


def _tasks(text: str) -> str:
    """The tasks of an array; 22.05 gives them as a mask, 0xE for 1 to 3."""
    try:
        mask = int(text, 16) if text.startswith("0x") else 0
    except ValueError:
        return text
    return str(RangeSet.fromlist([str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1])) if mask else text


def _counted(raw: RawRow, kind: str) -> int | None:
    return next((whole(tres.count) for tres in raw.tres.allocated if tres.type == kind), None)


def _moment(value: Number) -> float | None:
    return number(value) or None
