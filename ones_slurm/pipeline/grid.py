"""A placement in whole numbers, as the solver needs it, without losing what the numbers say."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd, lcm

import msgspec

from ones_slurm.pipeline.spec import Placement

# Times are told apart down to a nanosecond, memory to a millionth of its unit.
TIME_STEPS_PER_US = 1000
MEMORY_DENOMINATOR = 10**6
# The shortest block gets about this many units when times are rounded: an error of at most 1 % a block, which the
# exact replay takes back.
UNITS_OF_SHORTEST = 100


class Edge(msgspec.Struct, frozen=True):
    """`consumer` starts `delay` (the producer's time and the transfer) after `producer` at the earliest."""

    producer: int
    consumer: int
    delay: int


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """`unit_us` microseconds are one unit. If `exact`, nothing was rounded; else times were rounded up."""

    unit_us: float
    exact: bool
    devices: int
    times: tuple[int, ...]
    on: tuple[tuple[int, ...], ...]  # device -> blocks
    edges: tuple[Edge, ...]
    memory: tuple[int, ...]
    capacity: tuple[int, ...]  # empty: memory does not bind

    @property
    def work(self) -> int:
        """Busy time of the busiest device for one micro-batch."""
        return max(sum(self.times[i] for i in here) for here in self.on)


def grid_of(placement: Placement, *, down: bool = False) -> Grid:
    """Exact where the times have a common measure that is not too fine, else rounded up.

    `down` is for proofs: ten times finer, because there is no replay that takes the error back.
    """
    fine = [round(block.time_us * TIME_STEPS_PER_US) for block in placement.blocks]
    fine = [max(time, 1) for time in fine]
    transfers = [round(placement.transfer_between_us(i, j) * TIME_STEPS_PER_US) for i, j in placement.edges]
    measure = gcd(*fine, *transfers)
    coarse = min(fine) / (UNITS_OF_SHORTEST * (10 if down else 1))
    exact = measure >= coarse / 10
    unit = measure if exact else coarse

    def units(time: int) -> int:
        return round(time / unit) if exact else int(time / unit) if down else ceil(time / unit)

    memory, capacity = _whole([block.memory for block in placement.blocks], placement.memory)
    return Grid(
        unit_us=unit / TIME_STEPS_PER_US,
        exact=exact,
        devices=placement.devices,
        times=tuple(map(units, fine)),
        on=tuple(placement.on(d) for d in range(placement.devices)),
        edges=tuple(
            Edge(i, j, units(fine[i] + transfer) if down else units(fine[i]) + units(transfer))
            for (i, j), transfer in zip(placement.edges, transfers, strict=True)
        ),
        memory=memory,
        capacity=capacity,
    )


def in_units(placement: Placement, grid: Grid) -> Placement:
    """The placement as the solver sees it: its times in whole units, so that a replay gives whole starts."""
    transfer = [0] * len(grid.times)
    for edge in grid.edges:
        transfer[edge.producer] = max(transfer[edge.producer], edge.delay - grid.times[edge.producer])
    blocks = (
        msgspec.structs.replace(block, time_us=grid.times[i], transfer_us=transfer[i])
        for i, block in enumerate(placement.blocks)
    )
    return msgspec.structs.replace(placement, blocks=tuple(blocks))


def _whole(changes: list[float], limits: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Multiply by the common denominator. Limits round down; changes are exact, so that they still add up to 0."""
    parts = [Fraction(change).limit_denominator(MEMORY_DENOMINATOR) for change in changes]
    scale = lcm(*(part.denominator for part in parts))
    measure = gcd(*(int(part * scale) for part in parts)) or 1
    bounds = [
        Fraction(limit).limit_denominator(MEMORY_DENOMINATOR) if limit != float("inf") else None for limit in limits
    ]
    held = sum(abs(int(part * scale)) for part in parts) // measure
    most = 10**6 * (held + 1)
    return (
        tuple(int(part * scale) // measure for part in parts),
        tuple(most if bound is None else min(int(bound * scale / measure), most) for bound in bounds),
    )
