"""A small Slurm in memory with a clock of its own, for stories that need many jobs, odd moments or no root.

`World` is the cluster: nodes, jobs, time. `FakeSlurm(world, caller)` is a `SlurmClient` on it, as one user.
`test_contract.py` runs the same stories on it and on a real slurmctld, so it may be trusted where they agree.

    world = World(nodes=4, gpus_per_node=2)
    slurm = FakeSlurm(world)                  # as root; FakeSlurm(world, "user1") has that user's rights
    job = world.submit(nodes=2, comment="ones:nodes=1-4")
    world.advance(1)                          # it runs now
    slurm.shrink(job, [slurm.job(job).batch_host])
"""

import dataclasses
from collections.abc import Sequence

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import NotAllowed, NotFound, Unreachable
from ones_slurm.slurm.client import AccountingRow, JobRecord, NodeRecord, Refused, Snapshot

SUPERUSERS = ("root", "slurm", "operator")
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
NOT_PENDING = "Job is no longer pending execution"


@dataclasses.dataclass
class FakeJob:
    """One job; `run_s` is how long its script takes at any size, None for one that runs until `World.finish`.

    `limited` is Slurm's reason for which it waits whatever is free, `avoid` the nodes that it must not be put on.
    """

    job_id: str
    user: str
    asked_nodes: int
    gpus_per_node: int
    tasks_per_node: int
    cpus_per_task: int
    run_s: float | None
    submit_s: float
    name: str = "job"
    account: str = "acc"
    partition: str = "gpu"
    comment: str = ""
    time_limit_s: float | None = None
    requeueable: bool = True
    batch: bool = True
    held: bool = False
    held_by_requeue: bool = False
    state: str = "PENDING"
    completing_until_s: float | None = None
    begin_s: float = 0.0
    revoked_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    nodes: list[str] = dataclasses.field(default_factory=list)
    restarts: int = 0
    priority: int = 1
    qos: str = "normal"
    limited: str = ""
    avoid: tuple[str, ...] = ()

    @property
    def batch_host(self) -> str:
        return self.nodes[0] if self.nodes and self.batch else ""


@dataclasses.dataclass
class World:
    """Whole nodes are handed out in the order of submission; whoever fits starts, so small jobs slip past large ones.

    `requeue_delay_s` is Slurm's credential delay, `completing_s` how long a killed job keeps its nodes,
    `min_job_age_s` how long a finished job can still be asked for. `down` makes every question fail.
    """

    nodes: int = 4
    gpus_per_node: int = 2
    cpus_per_node: int = 4
    now_s: float = 1_800_000_000.0
    requeue_delay_s: float = 121.0
    completing_s: float = 2.0
    min_job_age_s: float = 300.0
    down: bool = False

    def __post_init__(self) -> None:
        self.names = [f"c{number}" for number in range(1, self.nodes + 1)]
        self.drained: set[str] = set()
        self.jobs: dict[str, FakeJob] = {}
        self.rows: list[AccountingRow] = []
        self.calls: list[str] = []  # every change that was asked for, in order

    def submit(self, *, nodes: int = 1, user: str = "user1", run_s: float | None = None, **more: object) -> str:
        """Queues a job and returns its id; `more` are further fields of `FakeJob` (comment, held, time_limit_s …)."""
        job_id = str(len(self.jobs) + 1)
        shape = {"gpus_per_node": self.gpus_per_node, "tasks_per_node": 1, "cpus_per_task": 1} | more
        self.jobs[job_id] = FakeJob(job_id, user, nodes, run_s=run_s, submit_s=self.now_s, **shape)  # type: ignore[arg-type]
        self.schedule()
        return job_id

    def advance(self, seconds: float) -> None:
        """Lets time pass; everything due in between happens at its own moment, in order."""
        until_s = self.now_s + seconds
        while (due := self._next_due()) is not None and due <= until_s:
            self.now_s = max(self.now_s, due)
            self._settle()
        self.now_s = until_s
        self._settle()

    def finish(self, job_id: str, state: str = "COMPLETED") -> None:
        """The script ends, or somebody cancels the job."""
        job = self.jobs[job_id]
        if job.state == "RUNNING":
            self._close_row(job, state)
            job.completing_until_s = self.now_s + self.completing_s
        job.state, job.end_s = state, self.now_s
        self._settle()

    def fail_node(self, name: str) -> None:
        """A node dies: its job is requeued by Slurm, or ends, and the node takes nothing more."""
        self.drained.add(name)
        for job in self.jobs.values():
            if name in job.nodes and job.state == "RUNNING":
                if job.requeueable and job.batch:
                    self.put_back(job, "NODE_FAIL")
                else:
                    self.finish(job.job_id, "NODE_FAIL")

    def schedule(self) -> None:
        """Starts every pending job that may start and fits."""
        taken = {name for job in self.jobs.values() for name in job.nodes}
        free = [name for name in self.names if name not in taken and name not in self.drained]
        for job in sorted(self.jobs.values(), key=lambda job: (job.submit_s, int(job.job_id))):
            waits = job.state == "PENDING" and job.completing_until_s is None and not job.held and not job.limited
            fitting = [name for name in free if name not in job.avoid]
            if waits and job.begin_s <= self.now_s and job.asked_nodes <= len(fitting):
                job.start_s, job.end_s = self.now_s, None
                if int(self.now_s) <= int(job.revoked_s):
                    job.state, job.end_s = "FAILED", self.now_s  # "Job credential revoked"
                    continue
                job.state, job.nodes = "RUNNING", fitting[: job.asked_nodes]
                free = [name for name in free if name not in job.nodes]

    def put_back(self, job: FakeJob, row_state: str) -> None:
        """Requeue: the nodes stay taken while processes are killed, then the job is pending with a begin time."""
        self._close_row(job, row_state)
        job.state, job.restarts, job.revoked_s = "PENDING", job.restarts + 1, self.now_s
        job.completing_until_s = self.now_s + self.completing_s

    def resize(self, job: FakeJob, keep: Sequence[str]) -> None:
        self._close_row(job, "RESIZING")
        job.nodes = [name for name in job.nodes if name in keep]
        job.asked_nodes = len(job.nodes)
        job.submit_s = job.start_s = self.now_s
        self.schedule()

    def _next_due(self) -> float | None:
        moments = [job.completing_until_s for job in self.jobs.values() if job.completing_until_s is not None]
        moments += [due for job in self.jobs.values() if (due := self._script_end_s(job)) is not None]
        moments += [job.begin_s for job in self.jobs.values() if job.state == "PENDING" and job.begin_s > self.now_s]
        return min(moments, default=None)

    def _script_end_s(self, job: FakeJob) -> float | None:
        if job.state != "RUNNING" or job.start_s is None:
            return None
        ends = [job.start_s + span for span in (job.run_s, job.time_limit_s) if span is not None]
        return min(ends, default=None)

    def _settle(self) -> None:
        for job in self.jobs.values():
            ends = self._script_end_s(job)
            if ends is not None and ends <= self.now_s:
                in_time = job.run_s is not None and job.start_s is not None and job.start_s + job.run_s <= self.now_s
                self._close_row(job, "COMPLETED" if in_time else "TIMEOUT")
                job.state, job.end_s = "COMPLETED" if in_time else "TIMEOUT", self.now_s
                job.completing_until_s = self.now_s + self.completing_s
            if job.completing_until_s is not None and job.completing_until_s <= self.now_s:
                job.completing_until_s, job.nodes = None, []
                if job.state == "PENDING":
                    job.submit_s, job.start_s = self.now_s, None
                    job.begin_s = self.now_s + self.requeue_delay_s
        self.schedule()

    def _close_row(self, job: FakeJob, state: str) -> None:
        self.rows.append(self.row(job, state, self.now_s))

    def row(self, job: FakeJob, state: str, end_s: float | None) -> AccountingRow:
        return AccountingRow(
            job_id=job.job_id,
            raw_id=job.job_id,
            user=job.user,
            account=job.account,
            partition=job.partition,
            name=job.name,
            state=state,
            cancelled_by="0" if state == "CANCELLED" else None,
            submit_s=job.submit_s,
            eligible_s=job.submit_s,
            start_s=job.start_s,
            end_s=end_s,
            nodes=tuple(job.nodes),
            nnodes=len(job.nodes) or job.asked_nodes,
            gpus=len(job.nodes) * job.gpus_per_node if job.nodes else None,
            cpus=len(job.nodes) * job.tasks_per_node * job.cpus_per_task,
            exit_status=1 if state == "FAILED" else 0,
            signal=0,
            time_limit_s=job.time_limit_s,
            comment=job.comment,
        )


class FakeSlurm:
    """A `SlurmClient` on a `World`, with the rights of `caller`."""

    def __init__(self, world: World | None = None, caller: str = "root") -> None:
        self.world = world if world is not None else World()
        self.caller = caller

    def snapshot(self) -> Snapshot:
        self._reach()
        jobs = [job for job in self.world.jobs.values() if job.state not in FINAL or job.completing_until_s is not None]
        return Snapshot(self.world.now_s, tuple(self._record(job) for job in jobs), tuple(self._nodes()))

    def job(self, job_id: str) -> JobRecord:
        return self._record(self._find(job_id))

    def jobs_of(self, user: str) -> list[JobRecord]:
        self._reach()
        return [self._record(job) for job in self.world.jobs.values() if job.user == user]

    def cancel(self, job_id: str) -> None:
        job = self._mine("cancel", job_id)
        if job.state in ("PENDING", "RUNNING"):
            self.world.finish(job_id, "CANCELLED")

    def accounting(
        self, *, since_s: float, until_s: float | None = None, job_ids: Sequence[str] = (), user: str | None = None
    ) -> list[AccountingRow]:
        self._reach()
        open_rows = [
            self.world.row(job, job.state, None)
            for job in self.world.jobs.values()
            if job.state in {"PENDING", "RUNNING"} and job.completing_until_s is None
        ]
        rows = [
            row
            for row in [*self.world.rows, *open_rows]
            if (row.end_s is None or row.end_s >= since_s)
            and (until_s is None or row.submit_s <= until_s)
            and (not job_ids or row.job_id in job_ids)
            and (user is None or row.user == user)
        ]
        return sorted(rows, key=lambda row: (int(row.job_id), row.submit_s))

    def shrink(self, job_id: str, keep: Sequence[str]) -> None:
        job = self._mine("shrink", job_id)
        if job.state != "RUNNING":
            raise Refused(NOT_PENDING)
        if not keep or not set(keep) <= set(job.nodes) or (job.batch and job.batch_host not in keep):
            raise Refused("Invalid node name specified")
        if set(keep) != set(job.nodes):
            self.world.resize(job, keep)

    def size_pending(self, job_id: str, nodes: int) -> None:
        job = self._pending("size_pending", job_id)
        if nodes > len(self.world.names):
            raise Refused("Requested node configuration is not available")
        job.asked_nodes = nodes

    def requeue_hold(self, job_id: str) -> None:
        job = self._mine("requeue_hold", job_id)
        if not job.requeueable or not job.batch:
            raise Refused("Requested operation is presently disabled")
        if job.state in FINAL:
            raise Refused("Job has already finished")
        if job.completing_until_s is not None:
            raise Refused("Job is pending execution")
        job.held, job.held_by_requeue, job.priority = True, True, 0
        if job.state == "RUNNING":
            self.world.put_back(job, "REQUEUED")

    def release(self, job_id: str) -> None:
        job = self._pending("release", job_id)
        job.held, job.held_by_requeue, job.priority = False, False, 1
        self.world.schedule()

    def start_now(self, job_id: str) -> None:
        job = self._pending("start_now", job_id)
        if job.completing_until_s is not None:
            raise Refused("the begin time is set once the job is no longer completing")
        job.begin_s = max(self.world.now_s, int(job.submit_s) + 1)
        self.world.schedule()

    def _reach(self) -> None:
        if self.world.down:
            raise Unreachable("Unable to contact slurm controller (connect failure)")

    def _find(self, job_id: str) -> FakeJob:
        self._reach()
        job = self.world.jobs.get(job_id)
        gone = job is not None and job.state in FINAL and (job.end_s or 0) + self.world.min_job_age_s < self.world.now_s
        if job is None or gone:
            raise NotFound(f"job {job_id}: Invalid job id specified")
        return job

    def _mine(self, what: str, job_id: str) -> FakeJob:
        job = self._find(job_id)
        if self.caller not in (job.user, *SUPERUSERS):
            raise NotAllowed(f"job {job_id}: Access/permission denied")
        self.world.calls.append(f"{what} {job_id}")
        return job

    def _pending(self, what: str, job_id: str) -> FakeJob:
        job = self._mine(what, job_id)
        if job.state != "PENDING":
            raise Refused(NOT_PENDING)
        return job

    def _record(self, job: FakeJob) -> JobRecord:
        states = (job.state,) if job.completing_until_s is None else (job.state, "COMPLETING")
        nodes = len(job.nodes) or job.asked_nodes
        begins_later = job.state == "PENDING" and job.begin_s > self.world.now_s
        return JobRecord(
            job_id=job.job_id,
            user=job.user,
            state=_decision_state(states),
            slurm_states=states,
            reason="JobHeldUser" if job.held else "BeginTime" if begins_later else job.limited or "None",
            account=job.account,
            partition=job.partition,
            qos=job.qos,
            name=job.name,
            comment=job.comment,
            nodes=tuple(job.nodes),
            batch_host=job.batch_host,
            asked_nodes=job.asked_nodes,
            gpus_per_node=job.gpus_per_node,
            tasks=nodes * job.tasks_per_node,
            cpus=nodes * job.tasks_per_node * job.cpus_per_task,
            submit_s=job.submit_s,
            start_s=job.start_s,
            end_s=job.end_s or self._ends_s(job),
            time_limit_s=job.time_limit_s,
            restarts=job.restarts,
            requeueable=job.requeueable,
            batch=job.batch,
            held=job.held,
            held_by_requeue=job.held_by_requeue,
            priority=job.priority,
        )

    @staticmethod
    def _ends_s(job: FakeJob) -> float | None:
        running = job.state == "RUNNING" and job.start_s is not None and job.time_limit_s is not None
        return job.start_s + job.time_limit_s if running else None

    def _nodes(self) -> list[NodeRecord]:
        taken = {name for job in self.world.jobs.values() for name in job.nodes}
        return [
            NodeRecord(
                name=name,
                states=("DOWN",) if name in self.world.drained else ("ALLOCATED" if name in taken else "IDLE",),
                usable=name not in self.world.drained,
                gpus=self.world.gpus_per_node,
                gpu_type="v100",
                cpus=self.world.cpus_per_node,
                memory_mib=2000,
                partitions=("gpu",),
            )
            for name in self.world.names
        ]


def _decision_state(states: tuple[str, ...]) -> JobState:
    if "COMPLETING" in states:
        return JobState.ENDING
    return {"PENDING": JobState.PENDING, "RUNNING": JobState.RUNNING, "COMPLETED": JobState.DONE}.get(
        states[0], JobState.FAILED
    )
