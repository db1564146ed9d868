"""CPU and memory of a job beside what it held and asked for, as `seff` shows them.

Source: `sacct`'s TotalCPU, TRESUsageInTot or MaxRSS, and ReqMem (`slurm/usage.py`), and the times of `segments.py`, of
the job alone without its companions.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ones_slurm.report.segments import JobHistory
from ones_slurm.report.shown import show_duration, show_share
from ones_slurm.slurm.client import AccountingRow
from ones_slurm.slurm.usage import Request, StepUsage, Used

# Ours: below a quarter others could have had the rest; above nine tenths the next input may be too much.
_LITTLE, _MUCH = 0.25, 0.9
# Ours: less than that is not worth a sentence.
_SPARE_MIB = 1024.0
_SPARE_CORES = 2.0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one job used. Seconds and MiB.

    cpu_s: user and system time of its steps, None where none was measured. core_s: cores times the time they were held.
    complete: whether all its steps are told of; else the CPU time is a lower bound.
    memory_mib: the fullest step, all its tasks' peaks together, and `step` its name; None where none was sampled.
    asked_mib: what the job had asked for on that step's nodes, None for all that they have.
    """

    cpu_s: float | None
    core_s: float
    complete: bool
    held_s: float
    memory_mib: float | None = None
    asked_mib: float | None = None
    step: str = ""

    @property
    def cpu_efficiency(self) -> float | None:
        """CPU time over core time, as `seff` has it."""
        return self.cpu_s / self.core_s if self.cpu_s is not None and self.core_s else None

    @property
    def memory_efficiency(self) -> float | None:
        """Memory used over memory asked for."""
        return self.memory_mib / self.asked_mib if self.memory_mib is not None and self.asked_mib else None


def usage(job: JobHistory, rows: Sequence[AccountingRow], used: Used) -> Usage:
    """Of one job: its history and its rows, without companions, and what was used, of any jobs."""
    cores = {int(row.submit_s): row.cpus for row in rows if row.job_id == job.job_id}
    core_s = sum(cores.get(segment.submit_s, 0) * segment.duration_s for segment in job.segments)
    steps = [step for step in used.steps if step.job_id == job.job_id]
    told = [step.cpu_s for step in steps if step.cpu_s is not None]
    sampled = [step for step in steps if step.memory_mib is not None]
    # Without an accounting plug-in Slurm writes zeros; no step that ran uses nothing at all.
    measured = any(told) or bool(sampled)
    found = Usage(
        cpu_s=sum(told) if measured and told else None,
        core_s=core_s,
        complete=len(told) == len(steps),
        held_s=sum(segment.duration_s for segment in job.segments),
    )
    if not sampled:
        return found
    fullest = max(sampled, key=lambda step: step.memory_mib or 0.0)
    asked_mib = _asked_mib(fullest, [request for request in used.requests if request.job_id == job.job_id])
    return msgspec.structs.replace(found, memory_mib=fullest.memory_mib, asked_mib=asked_mib, step=fullest.step)


def told(use: Usage, *, measured: bool) -> Iterator[tuple[str, str]]:
    """The lines on CPU and memory, name and value; `measured` unless it is known that the cluster measures nothing."""
    if not measured:
        nothing = "not measured: the cluster's JobAcctGatherType is none"
    elif not use.complete:
        nothing = "not told: Slurm tells it of a step that has ended, unless its job changed size meanwhile"
    else:
        nothing = "not measured: no step ran for long enough (JobAcctGatherFrequency), or the cluster measures nothing"
    if use.cpu_s is None:
        yield "CPU", nothing
    else:
        share = "" if use.cpu_efficiency is None else f"{show_share(use.cpu_efficiency)} of "
        bound = "" if use.complete else "at least "
        yield "CPU", f"{bound}{show_duration(use.cpu_s)}, {share}{show_duration(use.core_s)} of core time"
    if use.memory_mib is None:
        yield "memory", nothing
    else:
        asked = ", and asked for all that its nodes have"
        if use.asked_mib is not None:
            asked = f", {show_share(use.memory_efficiency)} of the {show_memory(use.asked_mib)} asked for"
        yield "memory", f"at most {show_memory(use.memory_mib)} in step {use.step}{asked}"
    if not use.complete and (use.cpu_s is not None or use.memory_mib is not None):
        yield "", "without the steps that still run, or ran while the job changed size: Slurm tells nothing of them"


def usage_advice(use: Usage) -> Iterator[str]:
    """What the user could ask for instead; nothing where there is nothing to say."""
    if use.memory_mib is not None and use.asked_mib is not None:
        share = use.memory_mib / use.asked_mib
        if share > _MUCH:
            yield (
                f"Its memory came to {show_share(share)} of what it asked for: ask for more (`--mem`), for beyond that "
                "it is killed."
            )
        elif share < _LITTLE and use.asked_mib - use.memory_mib > _SPARE_MIB:
            yield (
                f"It used {show_memory(use.memory_mib)} of {show_memory(use.asked_mib)} of memory: with less (`--mem`) "
                "it fits on more nodes."
            )
    if use.cpu_efficiency is None or not use.complete or not use.held_s:
        return
    cores, busy = use.core_s / use.held_s, use.cpu_s / use.held_s if use.cpu_s is not None else 0.0
    if use.cpu_efficiency < _LITTLE and cores - busy > _SPARE_CORES:
        yield (
            f"It kept {busy:.1f} of {cores:.1f} cores busy: ask for fewer (`--cpus-per-task`), or, where GPUs wait for "
            "data, let more workers load it."
        )


def show_memory(mib: float) -> str:
    """With a unit that leaves few digits."""
    for unit in ("MiB", "GiB"):
        if mib < 1024:
            return f"{mib:.1f} {unit}"
        mib /= 1024
    return f"{mib:.1f} TiB"


def _asked_mib(step: StepUsage, requests: Sequence[Request]) -> float | None:
    """On the nodes of the step, by the last request before it."""
    before = [
        request
        for request in requests
        if request.start_s is not None and (step.start_s is None or request.start_s <= step.start_s)
    ]
    asked = before[-1] if before else None
    return None if asked is None or asked.node_memory_mib is None else asked.node_memory_mib * step.nnodes
