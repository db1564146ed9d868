"""A schedule: for each device, the blocks of N micro-batches in the order in which it runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ones_slurm.pipeline.spec import Placement

# A block of a micro-batch: (position in Placement.blocks, micro-batch).
Op = tuple[int, int]
Orders = tuple[tuple[Op, ...], ...]
Starts = Mapping[Op, float]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What the executor runs. Only the order counts: each device runs its list, each block as soon as it can.

    `source` says where it comes from (a preset's name, `repetend`, `direct`).
    """

    placement: Placement
    micro_batches: int
    orders: Orders
    source: str


def orders_of(placement: Placement, sequence: Sequence[Op]) -> Orders:
    """Project one order of everything on the devices; such orders can never wait for each other in a circle."""
    orders: list[list[Op]] = [[] for _ in range(placement.devices)]
    for op in sequence:
        for d in placement.blocks[op[0]].devices:
            orders[d].append(op)
    return tuple(tuple(order) for order in orders)
