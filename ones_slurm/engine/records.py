"""The rows of the journal, as its writers and readers see them."""

import msgspec

from ones_slurm.engine.memory import Decision, Memory
from ones_slurm.model.cluster import ClusterView, Speed
from ones_slurm.model.plan import Plan, Status
from ones_slurm.model.wire import Progress


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One life of the daemon: who decided, with which seed."""

    policy: str
    seed: int
    version: str = ""
    site: str = ""
    mode: str = "act"


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one tick. `took_s` is the time that observing and deciding took."""

    tick: int
    now_s: float
    took_s: float
    view: ClusterView
    plan: Plan
    memory: Memory
    decisions: tuple[Decision, ...]


class StoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a job's story. `what` is decision, event, a kind of move (shrink …) or what became of it (done …)."""

    at_s: float
    tick: int
    what: str
    reason: str = ""
    generation: int | None = None
    nodes: int | None = None
    batch: int | None = None
    numbers: dict[str, float] = {}


class MoveRow(msgspec.Struct, frozen=True, kw_only=True):
    """One action and what became of it; `outcome` and `ended_s` are None while it is under way.

    `why` is the policy's reason for it, `reason` what was said at its end.
    """

    job_id: str
    generation: int
    kind: str
    from_nodes: int
    to_nodes: int
    batch: int
    sent_s: float
    outcome: Status | None
    ended_s: float | None
    reason: str
    why: str


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One decision on a job, and the move that came of it, if one did: None in `kind` leaves the job as it is.

    `outcome` is None while the move is under way, `told` what was said at its end.
    """

    at_s: float
    job_id: str
    reason: str
    kind: str | None
    from_nodes: int | None
    to_nodes: int | None
    batch: int | None
    outcome: Status | None
    told: str | None


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """That a job was seen to hold these nodes, first at `seen_s`, in the run that began at `start_s`.

    `submit_s` tells its runs apart: each requeue submits it anew. `batch` is the first that it said it trains with
    there, 0 before it said one.
    """

    job_id: str
    submit_s: float
    nodes: tuple[str, ...]
    gpus: int
    batch: int
    start_s: float
    seen_s: float


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What an unfinished job has shown so far: its speed at each shape, the latest last, and some of its reports."""

    user: str
    recipe: str
    speeds: tuple[Speed, ...] = ()
    reports: tuple[Progress, ...] = ()


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job was at `at_s`, by its own account: untrusted. `samples` counts over all generations; `batch` and
    `base_batch` are samples a step, 0 where it named none; `metrics` is JSON."""

    job_id: str
    generation: int
    at_s: float
    samples: int
    samples_per_s: float
    loss: float | None
    batch: int
    base_batch: int
    gpus: int
    metrics: str = "{}"


class RecordedTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick as a replay needs it; `plan` are the bytes that were written."""

    tick: int
    policy: str
    seed: int
    view: ClusterView
    plan: bytes
