"""What the rest of the room asks of Slurm, whichever way it is asked (commands, pyslurm, a fake in tests)."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ones_slurm.model.cluster import JobState
from ones_slurm.model.errors import Failed


class Refused(Failed):
    """Slurm understood and said no; the message carries Slurm's own words."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job as slurmctld holds it. Times are Unix seconds, None where Slurm has none yet or no limit.

    `job_id` is what `scontrol` accepts: `12`, or `12_3` for an array task. `state` is the decision's view of
    `slurm_states`, which keeps every base state and flag word. `nodes` are the names held now.
    `gres` is what it asked for on each node in Slurm's words, `features` the constraint, as they are to be asked again.
    `command` is the script with its arguments, empty where there is none (`--wrap`) or a single job was asked for.
    `held_by_requeue`: as a requeue with a hold has left it, and nobody has held or released it since.
    """

    job_id: str
    user: str
    state: JobState
    slurm_states: tuple[str, ...] = ()
    reason: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    comment: str = ""
    command: str = ""
    nodes: tuple[str, ...] = ()
    batch_host: str = ""
    asked_nodes: int = 1
    gpus_per_node: int = 0
    gres: str = ""
    features: str = ""
    reservation: str = ""
    tasks: int = 0
    cpus: int = 0
    submit_s: float = 0.0
    start_s: float | None = None
    end_s: float | None = None
    time_limit_s: float | None = None
    restarts: int = 0
    requeueable: bool = True
    batch: bool = True
    held: bool = False
    held_by_requeue: bool = False
    het: bool = False
    priority: int = 0


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `states` are Slurm's words, `usable` whether a new job could ever start there now."""

    name: str
    states: tuple[str, ...]
    usable: bool
    gpus: int = 0
    gpu_type: str = ""
    cpus: int = 0
    memory_mib: int = 0
    partitions: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    """All unfinished jobs and all nodes at one moment."""

    taken_s: float
    jobs: tuple[JobRecord, ...]
    nodes: tuple[NodeRecord, ...]


class AccountingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `sacct -D`: a job holds several when it was resized or requeued, and none of them is trusted alone.

    `state` is the plain state word; `signal` what killed it (0: nothing). `gpus` are those of AllocTRES, None where it
    has none; `tres_nodes` its node count: other than `nnodes` where Slurm wrote the next size over a closed row.
    `nodelist` is `nodes` as Slurm wrote them, where a reader kept it.
    """

    job_id: str
    raw_id: str
    user: str
    account: str
    partition: str
    name: str
    state: str
    cancelled_by: str | None
    submit_s: float
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    nodes: tuple[str, ...]
    nnodes: int
    gpus: int | None
    cpus: int
    exit_status: int
    signal: int
    time_limit_s: float | None
    comment: str = ""
    restarts: int | None = None
    tres_nodes: int | None = None
    nodelist: str = ""


class SlurmClient(Protocol):
    """Every method raises `Unreachable` when Slurm does not answer (the outcome is then unknown) and `Refused`,
    `NotAllowed` or `NotFound` with Slurm's words when it says no. Nothing else is raised for what Slurm does."""

    def snapshot(self) -> Snapshot:
        """All unfinished jobs and all nodes, by as few queries as the release allows."""
        ...

    def job(self, job_id: str) -> JobRecord:
        """One job, fresh."""
        ...

    def jobs_of(self, user: str) -> list[JobRecord]:
        """All jobs of one user, those that have just ended as long as the release lists them."""
        ...

    def accounting(
        self, *, since_s: float, until_s: float | None = None, job_ids: Sequence[str] = (), user: str | None = None
    ) -> list[AccountingRow]:
        """Rows of `sacct` with duplicates, without steps, ordered by (job, submit)."""
        ...

    def shrink(self, job_id: str, keep: Sequence[str]) -> None:
        """Makes a running job go on with exactly the nodes `keep` (a subset with its batch host), and reads back."""
        ...

    def size_pending(self, job_id: str, nodes: int) -> None:
        """Sets the node count of a pending job, its tasks and CPUs in proportion, and reads back."""
        ...

    def requeue_hold(self, job_id: str) -> None:
        """Puts a running batch job back in the queue, held."""
        ...

    def release(self, job_id: str) -> None:
        """Lets a held pending job start again."""
        ...

    def start_now(self, job_id: str) -> None:
        """Lifts the begin time of a requeued job (Slurm's credential delay); only once it is no longer completing."""
        ...

    def cancel(self, job_id: str) -> None:
        """Ends a job, waiting or running; nothing to do for one that has ended or is gone."""
        ...
