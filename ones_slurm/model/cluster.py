"""What a cluster looks like at one moment: the only thing that a policy sees."""

import enum

import msgspec

from ones_slurm.model.adoption import Rung
from ones_slurm.model.wire import Lent, Pipeline, Progress
from ones_slurm.model.wish import Wish

# GPUs on each node in the order of ranks, (node, GPUs), for jobs that hold single GPUs of nodes shared with others.
Allocation = tuple[tuple[str, int], ...]


class JobState(enum.StrEnum):
    """The states that a decision depends on; a batch system's own many states are folded into these."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDING = "ending"  # processes are being killed, nodes are still taken
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class NodeView(msgspec.Struct, frozen=True):
    """One node. `usable` is False while it is down, drained, reserved for others or not answering.

    `rack` is whatever lies behind one switch; empty where nobody said.
    """

    name: str
    gpus: int
    usable: bool
    gpu_type: str = ""
    partitions: tuple[str, ...] = ()
    rack: str = ""


class Speed(msgspec.Struct, frozen=True):
    """What a job measured at one shape: seconds a step, of which `sync_s` exchanging gradients.

    `local_batch` is the number of samples in one forward and backward pass on one GPU; `gpu_type` is empty where GPUs
    of several types took part or nobody said.
    """

    nodes: int
    gpus: int
    local_batch: int
    step_s: float
    sync_s: float
    gpu_type: str = ""


class Move(msgspec.Struct, frozen=True):
    """A change of size that is under way: what was requested, and how far it has come."""

    generation: int
    kind: str
    stage: str
    since_s: float
    nodes: int


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What an ended job leaves behind for later ones of the same user and recipe: untrusted, as all that jobs say.

    `reports` are some of its progress reports in their order, `samples` what it had trained on when it ended by itself.
    """

    user: str
    recipe: str
    speeds: tuple[Speed, ...] = ()
    reports: tuple[Progress, ...] = ()
    samples: int = 0


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One unfinished job.

    `nodes` are the names it holds (empty while it waits); `asked_nodes` the size of its request. `elastic` says that
    the job may be moved now: it has a wish and, when running, a wrapper that answers. `generation` counts its sizes.

    Where single GPUs are handed out (`ClusterView.can_reallocate`), `asked_gpus` is the size of its request and
    `allocation` what it holds. `served_gpu_s` are the GPU-seconds of its earlier generations; the present one adds
    its GPUs times the time since `start_s`. `speeds` is what it measured at each shape that it ran in so far.
    `live`: it changes its size while it trains; `can_grow`: nodes can be lent to it now. `lent` are those it has on
    loan, the oldest loan first; they are among `nodes` as well. The first node of a loan can only go with all of it.
    `idle` are nodes of a live job on which it does not train any more (a rank died there, say).
    `recipe` names what the user runs (script and arguments); jobs of one user with equal ones will behave alike.
    `weight` is how much the site lets it count against others, by its user and account.
    `rung` is how far the co-scheduler may go with it at this moment, `why_rung` why it may not go further; only at
    `act` is it moved.
    `pipeline` is the table of a pipeline job, whose sizes are whole replicas (the wish has their `devices`).
    """

    job_id: str
    user: str
    state: JobState
    asked_nodes: int
    gpus_per_node: int
    account: str = ""
    partition: str = ""
    name: str = ""
    nodes: tuple[str, ...] = ()
    batch_host: str = ""
    wish: Wish | None = None
    elastic: bool = False
    why_rigid: str = ""
    requeueable: bool = True
    held: bool = False
    priority: int = 0
    submit_s: float = 0.0
    start_s: float | None = None
    time_limit_s: float | None = None
    restarts: int = 0
    generation: int = 0
    batch: int = 0
    progress: Progress | None = None
    move: Move | None = None
    asked_gpus: int = 0
    allocation: Allocation = ()
    served_gpu_s: float = 0.0
    speeds: tuple[Speed, ...] = ()
    recipe: str = ""
    weight: float = 1.0
    pipeline: Pipeline | None = None
    live: bool = False
    can_grow: bool = False
    lent: tuple[Lent, ...] = ()
    idle: tuple[str, ...] = ()
    rung: Rung = Rung.ACT
    why_rung: str = ""

    @property
    def gpus(self) -> int:
        """GPUs that the job holds now."""
        if self.allocation:
            return sum(gpus for _, gpus in self.allocation)
        return len(self.nodes) * self.gpus_per_node


class ClusterView(msgspec.Struct, frozen=True):
    """Everything known at `now_s` (Unix seconds). Jobs are ordered by (submit_s, job_id), nodes by name.

    `can_reallocate` says that any job can be put on any GPUs, also on some of a node's; plans then give allocations.
    `pause_s` is how long a job does not train when it is moved here; `pauses` has the same for single kinds of move
    (requeue, shrink, rebatch) where they are known. `past` is what is known of ended jobs, the oldest first.
    `draining`: nodes on loan are to be given back, and nothing else is to be done.
    """

    now_s: float
    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]
    can_shrink: bool = True
    can_requeue: bool = True
    can_reallocate: bool = False
    pause_s: float = 30.0
    pauses: dict[str, float] = {}
    past: tuple[Past, ...] = ()
    draining: bool = False

    def free_nodes(self) -> tuple[NodeView, ...]:
        """Usable nodes that no job holds."""
        taken = {name for job in self.jobs for name in job.nodes}
        return tuple(node for node in self.nodes if node.usable and node.name not in taken)
