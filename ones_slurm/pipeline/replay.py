"""Play a schedule as the executor does: every device in its order, every block as soon as its needs are there."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from ones_slurm.model.errors import Failed
from ones_slurm.pipeline.schedule import Op, Orders
from ones_slurm.pipeline.spec import Placement


class Deadlock(Failed):
    """The orders of the devices wait for each other."""


def replay(placement: Placement, orders: Orders) -> dict[Op, float]:
    """Start of every block of every micro-batch, in microseconds from the first.

    The start of a block is the longest way to it through what it needs and what its devices run before it.
    Raises `Deadlock` where that way has no beginning.
    """
    needs = _needs(placement)
    users: dict[Op, list[tuple[Op, float]]] = defaultdict(list)
    waits: dict[Op, int] = {}
    for order in orders:
        for op in order:
            if op not in waits:
                block, n = op
                waits[op] = len(needs[block])
                for i, delay_us in needs[block]:
                    users[i, n].append((op, delay_us))
    for order in orders:
        for before, op in pairwise(order):
            waits[op] += 1
            users[before].append((op, placement.blocks[before[0]].time_us))
    starts = dict.fromkeys(waits, 0.0)
    ready = [op for op, count in waits.items() if count == 0]
    done = 0
    while ready:
        op = ready.pop()
        done += 1
        start = starts[op]
        for user, delay_us in users[op]:
            starts[user] = max(starts[user], start + delay_us)
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    if done < len(waits):
        block, n = min(op for op, count in waits.items() if count > 0)
        raise Deadlock(f"the schedule never runs block {placement.blocks[block].name!r} of micro-batch {n}")
    return starts


def _needs(placement: Placement) -> list[list[tuple[int, float]]]:
    needs: list[list[tuple[int, float]]] = [[] for _ in placement.blocks]
    for i, j in placement.edges:
        needs[j].append((i, placement.blocks[i].time_us + placement.transfer_between_us(i, j)))
    return needs
