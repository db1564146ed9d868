"""One job from `squeue -O`, for releases whose JSON cannot be asked for a single job.

Names and comments are users' text: with line breaks and `UserId=root` in a job name, the output of `scontrol show job`
can be made to say anything. Here the fields are told apart by a mark that is drawn anew for each call.
"""

from ones_slurm.model.errors import Unreachable
from ones_slurm.slurm.job_json import RawJob
from ones_slurm.slurm.times import date_s, time_limit_s

# squeue's field, the name of the same in JSON, and the width beyond which it would be cut.
_FIELDS = (
    ("JobID", "job_id", 20),
    ("ArrayJobID", "array_job_id", 20),
    ("ArrayTaskID", "array_task_string", 200),
    ("HetJobID", "het_job_id", 20),
    ("UserName", "user_name", 100),
    ("State", "job_state", 60),
    ("Reason", "state_reason", 100),
    ("Account", "account", 200),
    ("Partition", "partition", 1000),
    ("QOS", "qos", 200),
    ("NodeList", "nodes", 20000),
    ("BatchHost", "batch_host", 300),
    ("NumNodes", "node_count", 30),
    ("NumCPUs", "cpus", 30),
    ("NumTasks", "tasks", 20),
    ("tres-alloc", "tres", 1000),
    ("tres-per-node", "tres_per_node", 500),
    ("tres-per-job", "tres_per_job", 500),
    ("Feature", "features", 500),
    ("Reservation", "resv_name", 500),
    ("SubmitTime", "submit_time", 40),
    ("StartTime", "start_time", 40),
    ("EndTime", "end_time", 40),
    ("TimeLimit", "time_limit", 40),
    ("RestartCnt", "restart_cnt", 20),
    ("Requeue", "requeue", 10),
    ("BatchFlag", "batch_flag", 10),
    ("PriorityLong", "priority", 30),
    ("Name", "name", 2000),
    ("Comment", "comment", 8000),
)
_ABSENT = {"N/A", "n/a", "(null)", "None", ""}
_TIMES = {"submit_time", "start_time", "end_time"}
_WHOLE = {"job_id", "array_job_id", "het_job_id", "node_count", "cpus", "tasks", "restart_cnt", "priority"}


def squeue_options(job_id: str, mark: str) -> tuple[str, ...]:
    """The options for `read_squeue`; dates must come as Unix seconds (`SLURM_TIME_FORMAT=%s`)."""
    fields = ",".join(f"{field}:{width}{mark}" for field, _, width in _FIELDS)
    return ("--noheader", "--all", "--states=all", f"--jobs={job_id}", f"--Format={fields}")


def read_squeue(text: str, mark: str) -> list[RawJob]:
    """The jobs in an answer: one, or several for a whole array. Raises `Unreachable` for an answer that was cut."""
    values = text.split(mark)[:-1]
    rows = zip(*[iter(values)] * len(_FIELDS), strict=False)
    return [_read_row([value.strip() for value in row]) for row in rows]


def _read_row(row: list[str]) -> RawJob:
    fields: dict[str, object] = {}
    for (_, name, _), text in zip(_FIELDS, row, strict=True):
        if text in _ABSENT:
            continue
        if name in _WHOLE:
            fields[name] = int(text) if text.isdecimal() else None
        elif name in _TIMES:
            fields[name] = date_s(text)
        elif name == "time_limit":
            seconds = time_limit_s(text)
            fields[name] = None if seconds is None else seconds / 60
        elif name in {"requeue", "batch_flag"}:
            fields[name] = text != "0"
        else:
            fields[name] = text
    # squeue shows what is asked for as long as nothing is allocated.
    tres = fields.pop("tres", "")
    fields["tres_req_str" if fields.get("job_state") == "PENDING" else "tres_alloc_str"] = tres
    if "array_task_string" not in fields:
        fields.pop("array_job_id", None)
    if "job_id" not in fields or "job_state" not in fields:
        raise Unreachable("Slurm's answer about a job was cut", hint="is slurmctld up? try `scontrol ping`")
    return RawJob(**fields)  # type: ignore[arg-type]
