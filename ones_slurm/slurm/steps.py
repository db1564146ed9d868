"""The single steps of a move. Each is safe to repeat: after a crash the same facts lead to the same step again.

As text they complete the sentence "job 12 …" in the log.
"""

import msgspec

from ones_slurm.model.plan import Status
from ones_slurm.model.wire import Loan, Order

# How far a move has come, as `ones queue` shows it.
LEAVING = "leaving"  # the ranks save and exit
RESIZING = "resizing"  # nobody trains, Slurm is asked to change the job
QUEUED = "queued"  # the job waits for its new nodes
STARTING = "starting"  # the nodes are there, the training starts
LENDING = "lending"  # a companion is asked for, and waits for its nodes
JOINING = "joining"  # the companion has come up, and the job takes note of it
SWITCHING = "switching"  # the job goes on at its new size without a stop


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do but to look again."""

    stage: str


class PostOrder(msgspec.Struct, frozen=True):
    """Tell the wrapper."""

    stage: str
    order: Order

    def __str__(self) -> str:
        order = self.order
        if order.live:
            nodes = len(order.nodes)
            return f"goes on without a stop: generation {order.generation} on {nodes} nodes, batch {order.batch}"
        if not order.go:
            return f"is told to leave for a {order.kind}, generation {order.generation}: {order.reason}"
        return f"is told to go: generation {order.generation} on {len(order.nodes)} nodes, batch {order.batch}"


class ShrinkTo(msgspec.Struct, frozen=True):
    """Give nodes back, in place."""

    keep: tuple[str, ...]
    stage: str = RESIZING
    lender: str = ""  # the companion that becomes smaller, empty for the job itself

    def __str__(self) -> str:
        return f"gives nodes {f'of {self.lender} ' if self.lender else ''}back and keeps {' '.join(self.keep)}"


class Lend(msgspec.Struct, frozen=True):
    """Have a companion submitted."""

    loan: Loan
    stage: str = LENDING

    def __str__(self) -> str:
        return f"is to be lent {self.loan.nodes} nodes for its generation {self.loan.generation}"


class GiveBack(msgspec.Struct, frozen=True):
    """End a companion: no rank of the job runs there, or ever did."""

    lender: str
    stage: str = RESIZING

    def __str__(self) -> str:
        return f"no longer needs its companion {self.lender}"


class RequeueHold(msgspec.Struct, frozen=True):
    """Put the job back in the queue, held."""

    stage: str = RESIZING

    def __str__(self) -> str:
        return "goes back into the queue, held"


class SizePending(msgspec.Struct, frozen=True):
    """Set the node count of the waiting job."""

    nodes: int
    stage: str = RESIZING

    def __str__(self) -> str:
        return f"will ask for {self.nodes} nodes"


class StartNow(msgspec.Struct, frozen=True):
    """Lift Slurm's delay after a requeue."""

    stage: str = RESIZING

    def __str__(self) -> str:
        return "need not wait out Slurm's delay"


class Release(msgspec.Struct, frozen=True):
    """Let the waiting job start."""

    stage: str = RESIZING

    def __str__(self) -> str:
        return "is released"


class TurnBack(msgspec.Struct, frozen=True):
    """The new size will not be: see that the job trains on as it was."""

    stage: str
    status: Status
    reason: str

    def __str__(self) -> str:
        return f"trains on as it was: {self.reason}"


class Finish(msgspec.Struct, frozen=True):
    """The move is over; its order is withdrawn."""

    status: Status
    reason: str
    stage: str = ""


Step = (
    Wait | PostOrder | ShrinkTo | Lend | GiveBack | RequeueHold | SizePending | StartNow | Release | TurnBack | Finish
)
