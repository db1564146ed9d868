"""The single steps of a move. Each is safe to repeat: after a crash the same facts lead to the same step again."""

import msgspec

from ones_slurm.model.plan import Status
from ones_slurm.model.wire import Order

# How far a move has come, as `ones queue` shows it.
LEAVING = "leaving"  # the ranks save and exit
RESIZING = "resizing"  # nobody trains, Slurm is asked to change the job
QUEUED = "queued"  # the job waits for its new nodes
STARTING = "starting"  # the nodes are there, the training starts


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do but to look again."""

    stage: str


class PostOrder(msgspec.Struct, frozen=True):
    """Tell the wrapper."""

    stage: str
    order: Order


class ShrinkTo(msgspec.Struct, frozen=True):
    """Give nodes back, in place."""

    keep: tuple[str, ...]
    stage: str = RESIZING


class RequeueHold(msgspec.Struct, frozen=True):
    """Put the job back in the queue, held."""

    stage: str = RESIZING


class SizePending(msgspec.Struct, frozen=True):
    """Set the node count of the waiting job."""

    nodes: int
    stage: str = RESIZING


class StartNow(msgspec.Struct, frozen=True):
    """Lift Slurm's delay after a requeue."""

    stage: str = RESIZING


class Release(msgspec.Struct, frozen=True):
    """Let the waiting job start."""

    stage: str = RESIZING


class TurnBack(msgspec.Struct, frozen=True):
    """The new size will not be: see that the job trains on as it was."""

    stage: str
    status: Status
    reason: str


class Finish(msgspec.Struct, frozen=True):
    """The move is over; its order is withdrawn."""

    status: Status
    reason: str
    stage: str = ""


Step = Wait | PostOrder | ShrinkTo | RequeueHold | SizePending | StartNow | Release | TurnBack | Finish
