"""The order for a job that asks without being on the move: one that has just started, or was left stopped."""

from collections.abc import Iterable

from ones_slurm.model.plan import Action, Requeue, Start
from ones_slurm.model.wire import Order, Phase, Sync
from ones_slurm.slurm.client import JobRecord
from ones_slurm.slurm.join import wish_of


def needs_order(sync: Sync) -> bool:
    """A wrapper that waits: it has just come up and has no ranks yet, or its ranks have left."""
    return sync.phase is Phase.LEFT or (sync.phase is Phase.STARTING and sync.ranks == 0)


def greet(record: JobRecord, sync: Sync, known: Iterable[Order | Action], highest: int) -> Order:
    """Go, with the nodes that the job holds.

    `known` are the orders and actions that it had, newest first: the batch and learning rate of one for this very size
    hold again, else the base batch of the wish (0: the script's own). `highest` is the highest generation that was
    ever used for the job; one that waits to enter a generation enters that one.
    """
    size = len(record.nodes)
    fitting = next((one for one in known if _size(one) == size), None)
    wish, _ = wish_of(record.comment)
    base = wish.batch.low if wish is not None and wish.batch is not None else 0
    if sync.phase is Phase.LEFT:
        generation = sync.generation
    elif isinstance(fitting, Start) and fitting.generation > sync.generation:
        generation = fitting.generation
    else:
        generation = max(sync.generation, highest) + 1
    return Order(
        generation=generation,
        kind="start",
        go=True,
        batch=fitting.batch if fitting is not None else base,
        lr_scale=fitting.lr_scale if fitting is not None else 1.0,
        nodes=record.nodes,
        reason=fitting.reason if fitting is not None else "starts with what it holds",
    )


def _size(one: Order | Action) -> int:
    if isinstance(one, Start | Requeue):
        return one.nodes
    return len(one.nodes) if isinstance(one, Order) else 0
