"""What a policy wants, what the engine asks for, and what became of it."""

import enum

import msgspec

from ones_slurm.model.cluster import Allocation


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The size that a policy wants for one job: 0 nodes means that it waits.

    `keep` may name nodes that the job should hold (a placement-aware policy); empty leaves the choice to the
    reconciler. Where single GPUs are handed out, `allocation` names them all and `nodes` counts its nodes; None is no
    opinion on which. `reason` is one sentence for the user, `numbers` the figures behind it, both shown by `ones why`.
    """

    job_id: str
    nodes: int
    batch: int = 0
    lr_scale: float = 1.0
    keep: tuple[str, ...] = ()
    allocation: Allocation | None = None
    reason: str = ""
    numbers: dict[str, float] = {}


class Plan(msgspec.Struct, frozen=True):
    """One target for every elastic job that the policy has an opinion on; other jobs stay as they are.

    `advice` are targets of jobs that may not be moved now: they are shown, and never acted on.
    """

    targets: tuple[Target, ...] = ()
    advice: tuple[Target, ...] = ()


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Let a waiting job begin at `nodes` nodes."""

    job_id: str
    generation: int
    nodes: int
    batch: int
    lr_scale: float = 1.0
    reason: str = ""


class Shrink(msgspec.Struct, frozen=True, kw_only=True, tag="shrink"):
    """Take nodes away from a running job in place: it goes on with exactly the nodes named in `keep`.

    Nodes that were lent to it go back to whoever lent them.
    """

    job_id: str
    generation: int
    keep: tuple[str, ...]
    batch: int
    lr_scale: float = 1.0
    reason: str = ""


class Requeue(msgspec.Struct, frozen=True, kw_only=True, tag="requeue"):
    """Save, put the job back in the queue, and have it begin again with `nodes` nodes.

    `from_nodes` is the size that it goes back to when it cannot start at the new one (0: it stays in the queue).
    """

    job_id: str
    generation: int
    nodes: int
    batch: int
    lr_scale: float = 1.0
    reason: str = ""
    from_nodes: int = 0


class Grow(msgspec.Struct, frozen=True, kw_only=True, tag="grow"):
    """Give a running job more nodes while it trains: a companion lends `nodes - from_nodes` of them."""

    job_id: str
    generation: int
    nodes: int
    from_nodes: int
    batch: int
    lr_scale: float = 1.0
    reason: str = ""


class Rebatch(msgspec.Struct, frozen=True, kw_only=True, tag="rebatch"):
    """Change the batch size of a running job and leave its nodes as they are.

    A live job goes on with all of its own nodes, those as well on which ranks of it have died.
    """

    job_id: str
    generation: int
    batch: int
    lr_scale: float = 1.0
    reason: str = ""


class Reallocate(msgspec.Struct, frozen=True, kw_only=True, tag="reallocate"):
    """Let the job hold exactly these GPUs, whatever it holds now: start, stop (none), another size or place."""

    job_id: str
    generation: int
    allocation: Allocation
    batch: int
    lr_scale: float = 1.0
    reason: str = ""


Action = Start | Shrink | Requeue | Grow | Rebatch | Reallocate


class Status(enum.StrEnum):
    """ACCEPTED: under way, a later outcome follows. DONE, REFUSED, FAILED: final. OBSERVED: shown, never acted on."""

    ACCEPTED = "accepted"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    OBSERVED = "observed"


class Outcome(msgspec.Struct, frozen=True):
    """What became of an action, found again by (job_id, generation). A refusal is an answer, not an exception."""

    job_id: str
    generation: int
    status: Status
    reason: str = ""
