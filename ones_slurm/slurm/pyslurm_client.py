"""`SlurmClient` that reads through pyslurm: no process is started and no JSON is made for each look at the queue.

Whatever changes a job goes through the commands: pyslurm ignores a job's node count in every release, and knows array
tasks by Slurm's internal id only.
"""

import pwd
import time
from collections.abc import Callable, Sequence
from typing import Any

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotFound
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.client import AccountingRow, JobRecord, NodeRecord, Snapshot
from ones_slurm.slurm.command import failure
from ones_slurm.slurm.job_json import RawJob, read_job
from ones_slurm.slurm.jobids import read_job_id
from ones_slurm.slurm.node_text import is_usable, read_node_states
from ones_slurm.slurm.tres import count_gpus, gpu_type

# From 23.11 on, pyslurm has no `job().get()`, and its `Job` does not tell the requested TRES, in which alone 22.05
# keeps the size of a pending job.
NO_JOB_DICTIONARY = (23, 11)
# Slurm's "no value" among the numbers of 32 bits.
_NO_VALUE = 0xFFFFFFF0
_RENAMED = {
    "cpus": "num_cpus",
    "node_count": "num_nodes",
    "tasks": "num_tasks",
    "array_task_string": "array_task_str",
}
_SAME = (
    *(
        "job_id",
        "job_state",
        "user_id",
        "state_reason",
        "account",
        "partition",
        "qos",
        "name",
        "comment",
        "command",
        "nodes",
    ),
    *("batch_host", "tres_per_node", "tres_per_job", "tres_req_str", "tres_alloc_str", "submit_time", "start_time"),
    *("end_time", "time_limit", "restart_cnt", "priority", "array_job_id", "array_task_id", "het_job_id", "command"),
)


def pyslurm_version() -> str | None:
    """The version of the pyslurm that is installed here; None without one that can be loaded."""
    try:
        import pyslurm
    except ImportError:
        return None
    return str(pyslurm.__version__)


class PyslurmClient:
    """Reads by pyslurm, everything else by `commands`."""

    def __init__(self, commands: CommandClient, *, clock: Callable[[], float] = time.time) -> None:
        import pyslurm

        self._pyslurm = pyslurm
        self._clock = clock
        self._commands = commands

    def snapshot(self) -> Snapshot:
        """Two questions to slurmctld."""
        taken_s = self._clock()
        jobs = [read_job(raw_job(found)) for found in self._ask(lambda: self._pyslurm.job().get()).values()]
        nodes = [_node(found) for found in self._ask(lambda: self._pyslurm.node().get()).values()]
        unfinished = tuple(job for job in jobs if job.state not in {JobState.DONE, JobState.FAILED})
        return Snapshot(taken_s, unfinished, tuple(nodes))

    def job(self, job_id: str) -> JobRecord:
        """A plain job by pyslurm, an array task by the commands."""
        wanted = read_job_id(job_id)
        if wanted is None or wanted.scontrol != str(wanted.job) or wanted.het_offset is not None or wanted.step:
            return self._commands.job(job_id)
        found = self._ask(lambda: self._pyslurm.job().find_id(str(wanted.job)))
        if len(found) != 1:
            raise NotFound(f"Slurm knows no single job {job_id}")
        return read_job(raw_job(found[0]))

    def jobs_of(self, user: str) -> list[JobRecord]:
        """By `squeue`."""
        return self._commands.jobs_of(user)

    def accounting(
        self, *, since_s: float, until_s: float | None = None, job_ids: Sequence[str] = (), user: str | None = None
    ) -> list[AccountingRow]:
        """By `sacct`."""
        return self._commands.accounting(since_s=since_s, until_s=until_s, job_ids=job_ids, user=user)

    def shrink(self, job_id: str, keep: Sequence[str]) -> None:
        """By `scontrol`."""
        self._commands.shrink(job_id, keep)

    def size_pending(self, job_id: str, nodes: int) -> None:
        """By `scontrol`."""
        self._commands.size_pending(job_id, nodes)

    def requeue_hold(self, job_id: str) -> None:
        """By `scontrol`."""
        self._commands.requeue_hold(job_id)

    def release(self, job_id: str) -> None:
        """By `scontrol`."""
        self._commands.release(job_id)

    def start_now(self, job_id: str) -> None:
        """By `scontrol`."""
        self._commands.start_now(job_id)

    def cancel(self, job_id: str) -> None:
        """By `scancel`."""
        self._commands.cancel(job_id)

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        # pyslurm raises ValueError(words, number), and RPCError in its newer parts.
        except (ValueError, self._pyslurm.PyslurmError) as error:
            raise failure(("pyslurm",), str(error.args[0] if error.args else error), 1) from error


def raw_job(found: dict[str, Any]) -> RawJob:
    """A job of `pyslurm.job()` under the names that Slurm's JSON has."""
    fields = {name: found.get(name) for name in _SAME} | {name: found.get(old) for name, old in _RENAMED.items()}
    known = {name: value for name, value in fields.items() if value is not None and not _is_unset(value)}
    if isinstance(known.get("time_limit"), str):  # UNLIMITED, Partition_Limit
        del known["time_limit"]
    known["user_name"] = _user_name(found["user_id"])
    known["requeue"] = bool(found.get("requeue"))
    known["batch_flag"] = bool(found.get("batch_flag"))
    return RawJob(**known)


def _is_unset(value: Any) -> bool:
    return isinstance(value, int) and value >= _NO_VALUE


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _node(found: dict[str, Any]) -> NodeRecord:
    states = read_node_states(found["state"])
    gres = ",".join(found.get("gres") or ())
    return NodeRecord(
        name=found["name"],
        states=states,
        usable=is_usable(states),
        gpus=count_gpus(gres) or 0,
        gpu_type=gpu_type(gres),
        cpus=found.get("cpus") or 0,
        memory_mib=found.get("real_memory") or 0,
        partitions=tuple(found.get("partitions") or ()),
    )
