"""Is this schedule right, and what is it worth? Asked of the start times alone, apart from whoever made them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ones_slurm.pipeline.spec import MEMORY_TOLERANCE, Placement

# Times are sums of up to some 10^5 floats.
TIME_TOLERANCE = 1e-9


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`faults` is empty if the schedule may run.

    `peak_memory` is per device; `bubble` is the idle share of the busiest device.
    """

    makespan_us: float
    bubble: float
    peak_memory: tuple[float, ...]
    faults: tuple[str, ...]


def verify(placement: Placement, micro_batches: int, starts: Mapping[tuple[int, int], float]) -> Verdict:
    """Check that everything runs once, nothing before its needs, no two blocks on a device, within memory."""
    blocks = placement.blocks
    wanted = {(i, n) for i in range(len(blocks)) for n in range(micro_batches)}
    faults = [f"{_name(placement, op)} does not run" for op in sorted(wanted - set(starts))]
    faults += [f"{op} is no block of this placement" for op in sorted(set(starts) - wanted)]
    known = {op: start for op, start in starts.items() if op in wanted}
    makespan = max((start + blocks[i].time_us for (i, _), start in known.items()), default=0.0)
    slack = TIME_TOLERANCE * max(1.0, makespan)

    position = {block.name: i for i, block in enumerate(blocks)}
    for (j, n), start in known.items():
        for name in blocks[j].after:
            i = position[name]
            producer = blocks[i]
            arrival = known.get((i, n), 0.0) + producer.time_us
            if not set(blocks[j].devices) <= set(producer.devices):
                arrival += placement.transfer_us if producer.transfer_us is None else producer.transfer_us
            if start < arrival - slack:
                faults.append(f"{_name(placement, (j, n))} starts before the output of {producer.name} is there")

    peaks = []
    for d in range(placement.devices):
        here = sorted((start, i, n) for (i, n), start in known.items() if d in blocks[i].devices)
        level = peak = until = 0.0
        before = None
        for start, i, n in here:
            if start < until - slack:
                faults.append(f"device {d}: {_name(placement, (i, n))} starts while {_name(placement, before)} runs")
            until, before = start + blocks[i].time_us, (i, n)
            level += blocks[i].memory
            peak = max(peak, level)
        if placement.memory and peak > placement.memory[d] + MEMORY_TOLERANCE * max(1.0, peak):
            faults.append(f"device {d}: holds {peak:g} of {placement.memory[d]:g} memory")
        peaks.append(peak)

    busiest = max(sum(block.time_us for block in blocks if d in block.devices) for d in range(placement.devices))
    bubble = 1 - micro_batches * busiest / makespan if makespan else 0.0
    return Verdict(makespan_us=makespan, bubble=bubble, peak_memory=tuple(peaks), faults=tuple(faults))


def _name(placement: Placement, op: tuple[int, int] | None) -> str:
    return "nothing" if op is None else f"{placement.blocks[op[0]].name} of micro-batch {op[1]}"
