"""What steps used, by `sacct`: CPU time and memory.

Steps, because the row of a job is closed at each resize and its times are not to be added to those of steps. Without
users' text, so that a plain `|` parts the fields.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ones_slurm.slurm.memory import read_memory
from ones_slurm.slurm.times import date_s, duration_s
from ones_slurm.slurm.tres import read_tres

COLUMNS = ("JobID", "State", "Start", "NNodes", "NCPUS", "NTasks", "ReqMem", "TotalCPU", "MaxRSS", "TRESUsageInTot")


class StepUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One step on `nnodes` nodes. `cpu_s` is user and system time of all its tasks; `memory_mib` the sum of their
    peaks, which is at least what they had at once.

    None where it was not measured or is not told: Slurm tells it when the step ends, and never of a step that was
    there when its job changed size (22.05 closes its row at that moment, with nothing in it).
    """

    job_id: str
    step: str
    start_s: float | None
    nnodes: int
    cpu_s: float | None
    memory_mib: float | None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of a job asked for on each node; `node_memory_mib` is None for all that a node has."""

    job_id: str
    start_s: float | None
    node_memory_mib: float | None


class Used(msgspec.Struct, frozen=True):
    """The steps and the requests of some jobs, each in the order that accounting has."""

    steps: tuple[StepUsage, ...] = ()
    requests: tuple[Request, ...] = ()


def read_used(rows: Iterable[Mapping[str, str]]) -> Used:
    """Rows by the names of their columns; a column that is not there reads as one that Slurm left empty."""
    steps: dict[tuple[str, str, str], StepUsage] = {}
    requests: list[Request] = []
    resized: set[str] = set()
    for row in rows:
        job_id, dot, step = row.get("JobID", "").partition(".")
        start = row.get("Start", "")
        if dot:  # told once: some releases show a step of a resized job again
            steps[job_id, step, start] = _step(row, job_id, step)
        elif job_id:
            # After a resize ReqMem is still that of the nodes before it, so a run has one request.
            if job_id not in resized:
                requests.append(Request(job_id=job_id, start_s=date_s(start), node_memory_mib=_requested_mib(row)))
            (resized.add if row.get("State") == "RESIZING" else resized.discard)(job_id)
    return Used(tuple(steps.values()), tuple(requests))


def saved_used(path: Path) -> Used | None:
    """The same from somebody's output of `sacct -P` with any columns; None where it does not tell what steps used.

    A line with the separator in users' text is left out, for nobody knows where its columns are.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        names = next(file, "").rstrip("\n").split("|")
        if not {"JobID", "TotalCPU"} <= set(names):
            return None
        rows = (line.rstrip("\n").split("|") for line in file)
        return read_used(dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names) and row != names)


def read_lines(text: str) -> list[dict[str, str]]:
    """The rows of `sacct --parsable2` with these columns and without a header."""
    return [dict(zip(COLUMNS, line.split("|"), strict=False)) for line in text.splitlines()]


def _step(row: Mapping[str, str], job_id: str, step: str) -> StepUsage:
    cpu_s = duration_s(row.get("TotalCPU"))
    untold = row.get("State", "") in ("RUNNING", "RESIZING") and not cpu_s
    return StepUsage(
        job_id=job_id,
        step=step,
        start_s=date_s(row.get("Start")),
        nnodes=_whole(row.get("NNodes")) or 1,
        cpu_s=None if untold else cpu_s,
        memory_mib=_used_mib(row),
    )


def _used_mib(row: Mapping[str, str]) -> float | None:
    total_mib = read_tres(row.get("TRESUsageInTot")).get("mem")
    if total_mib:
        return total_mib
    peak, tasks = read_memory(row.get("MaxRSS")), _whole(row.get("NTasks"))
    return peak.mib * tasks if peak is not None and peak.mib and tasks else None


def _requested_mib(row: Mapping[str, str]) -> float | None:
    asked, nodes = read_memory(row.get("ReqMem")), _whole(row.get("NNodes"))
    if asked is None or not asked.mib or not nodes:
        return None
    if asked.per == "node":
        return asked.mib
    return asked.mib * (_whole(row.get("NCPUS")) or 1) / nodes if asked.per == "cpu" else asked.mib / nodes


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None
