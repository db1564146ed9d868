"""Jobs in the JSON of `squeue` and `scontrol`, whichever release wrote it, as `JobRecord`s.

The structs name only what is needed, so that the decoder skips the rest: a queue of 10,000 jobs is some 40 MB of JSON.
"""

import msgspec

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import Unreachable
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.hostlists import expand
from ones_slurm.slurm.jobids import read_tasks
from ones_slurm.slurm.numbers import Number, number, whole
from ones_slurm.slurm.states import fold, read_states
from ones_slurm.slurm.tres import count_gpus, read_tres


class RawNodes(msgspec.Struct):
    """`job_resources.nodes` since 24.05; before, it was the node list alone."""

    list: str = ""


# What Slurm says of a job that was requeued with a hold, until anybody holds or releases it.
_REQUEUED_HELD = "job requeued in held state"


class RawResources(msgspec.Struct):
    nodes: str | RawNodes = ""


class RawJob(msgspec.Struct):
    """A job under Slurm's own field names."""

    job_id: int
    job_state: str | list[str]
    user_id: Number = None
    user_name: str = ""
    state_reason: str = ""
    state_description: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    comment: str = ""
    command: str = ""
    nodes: str = ""
    job_resources: RawResources | None = None
    batch_host: str = ""
    node_count: Number = None
    tasks: Number = None
    cpus: Number = None
    tres_per_node: str = ""
    features: str = ""
    resv_name: str = ""
    tres_per_job: str = ""
    tres_req_str: str = ""
    tres_alloc_str: str = ""
    gres_detail: list[str] = []
    submit_time: Number = None
    start_time: Number = None
    end_time: Number = None
    time_limit: Number = None
    restart_cnt: Number = None
    requeue: bool = True
    batch_flag: bool = True
    priority: Number = None
    array_job_id: Number = None
    array_task_id: Number = None
    array_task_string: str = ""
    het_job_id: Number = None


class RawError(msgspec.Struct):
    description: str = ""
    error: str = ""


class RawQueue(msgspec.Struct):
    jobs: list[RawJob] = []
    errors: list[RawError] = []


_queue = msgspec.json.Decoder(RawQueue)


def read_queue(text: str | bytes) -> list[RawJob]:
    """The jobs in a whole answer. Raises `Unreachable` when there is an error in it or when it is cut.

    `squeue --json` of 22.05 exits with 0 and an empty list of jobs when slurmctld is down: only `errors` tells.
    """
    try:
        answer = _queue.decode(text)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"Slurm's JSON cannot be read: {error}") from error
    if answer.errors:
        words = "; ".join(f"{error.description}: {error.error}" for error in answer.errors)
        raise Unreachable(f"Slurm answered with an error: {words}", hint="is slurmctld up? try `scontrol ping`")
    return answer.jobs


def read_job(raw: RawJob) -> JobRecord:
    """The record of one job.

    Array tasks that wait together are one record, named after the next of them to start.
    """
    states = read_states(raw.job_state)
    state = fold(states)
    finished = state in {JobState.DONE, JobState.FAILED}
    pending = state == JobState.PENDING
    nodes = () if finished or pending else _held_nodes(raw)
    limit_minutes = number(raw.time_limit)
    start_s = number(raw.start_time) or None
    asked_nodes = len(nodes) or _asked_nodes(raw)
    return JobRecord(
        job_id=_scontrol_id(raw),
        user=raw.user_name or str(whole(raw.user_id)),
        state=state,
        slurm_states=states,
        reason="" if raw.state_reason == "None" else raw.state_reason,
        account=raw.account,
        partition=raw.partition,
        qos=raw.qos,
        name=raw.name,
        comment=raw.comment,
        command=raw.command,
        nodes=nodes,
        batch_host=raw.batch_host if raw.batch_host in nodes else "",
        asked_nodes=asked_nodes,
        gpus_per_node=_gpus_per_node(raw, asked_nodes),
        gres=raw.tres_per_node,
        features=raw.features,
        reservation=raw.resv_name,
        tasks=whole(raw.tasks),
        cpus=whole(raw.cpus),
        submit_s=number(raw.submit_time) or 0.0,
        start_s=None if pending else start_s,
        end_s=(number(raw.end_time) or None) if finished or (limit_minutes and not pending) else None,
        time_limit_s=limit_minutes * 60 if limit_minutes else None,
        restarts=whole(raw.restart_cnt),
        requeueable=raw.requeue,
        batch=raw.batch_flag,
        held=pending and (whole(raw.priority) == 0 or raw.state_reason in {"JobHeldUser", "JobHeldAdmin"}),
        held_by_requeue=pending and _REQUEUED_HELD in (raw.state_description, raw.state_reason.replace("_", " ")),
        het=whole(raw.het_job_id) > 0,
        priority=whole(raw.priority),
    )


def _scontrol_id(raw: RawJob) -> str:
    array = whole(raw.array_job_id)
    if not array:
        return str(raw.job_id)
    task = number(raw.array_task_id)
    waiting = read_tasks(raw.array_task_string)
    if task is None and waiting:
        task = waiting[0][0]
    return str(array) if task is None else f"{array}_{int(task)}"


def _held_nodes(raw: RawJob) -> tuple[str, ...]:
    if raw.nodes or raw.job_resources is None:
        return expand(raw.nodes)
    nodes = raw.job_resources.nodes
    return expand(nodes if isinstance(nodes, str) else nodes.list)


def _asked_nodes(raw: RawJob) -> int:
    """The size of the request of a waiting job.

    22.05 leaves `node_count` as it was when the size of a pending job is changed; `node=` of the requested TRES is
    right. Where GPUs are asked for in all (`--gpus`), it is the other way round: `node=` is
    only the least possible.
    """
    requested = int(read_tres(raw.tres_req_str).get("node", 0))
    count = whole(raw.node_count)
    return max((requested, count) if raw.tres_per_job else (requested or count,)) or 1


def _gpus_per_node(raw: RawJob, nodes: int) -> int:
    """GPUs on each node, however they were asked for; 0 where Slurm does not know, for the site file to say.

    What the job has comes first, as it follows a shrink; then what it asks for on each node; then what it asks for in
    all, which 22.05 does not keep in step with the size.
    """
    allocated = count_gpus(raw.tres_alloc_str)
    if allocated is not None:
        return -(-allocated // max(int(read_tres(raw.tres_alloc_str).get("node", nodes)), 1))
    per_node = count_gpus(raw.tres_per_node)
    if per_node is None:
        per_node = max((count_gpus(detail) or 0 for detail in raw.gres_detail), default=0) or None
    if per_node is not None:
        return per_node
    in_all = count_gpus(raw.tres_per_job) or count_gpus(raw.tres_req_str) or 0
    return -(-in_all // max(nodes, 1))
