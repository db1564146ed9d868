"""The memory without which not even one micro-batch can run."""

from __future__ import annotations

from ortools.sat.python import cp_model

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline.grid import grid_of
from ones_slurm.pipeline.solver import Clock, solve
from ones_slurm.pipeline.spec import MEMORY_TOLERANCE, Placement


class TooLittleMemory(UsageError):
    """No schedule meets the memory limits, for any number of micro-batches."""


def check_memory(placement: Placement, clock: Clock) -> None:
    """Raise `TooLittleMemory`, naming the smallest limits that work, if one micro-batch alone does not fit.

    If it fits, a schedule exists: one micro-batch after the other.
    """
    if not placement.memory:
        return
    needed = least_memory(placement, clock)
    short = [d for d, need in enumerate(needed) if need > placement.memory[d] + MEMORY_TOLERANCE]
    if short:
        d = max(short, key=lambda d: needed[d] - placement.memory[d])
        raise TooLittleMemory(
            f"no schedule fits: one micro-batch needs {needed[d]:g} memory on device {d}, the limit is"
            f" {placement.memory[d]:g}",
            hint=f"the smallest limits that work: {', '.join(f'{need:g}' for need in needed)}",
        )


def least_memory(placement: Placement, clock: Clock) -> tuple[float, ...]:
    """Peak of each device for one micro-batch, in the order of blocks that exceeds the limits least."""
    grid = grid_of(placement)
    cp = cp_model.CpModel()
    place = [cp.new_int_var(0, len(grid.times) - 1, "") for _ in grid.times]
    for edge in grid.edges:
        cp.add(place[edge.consumer] > place[edge.producer])
    before: dict[tuple[int, int], cp_model.LiteralT] = {}
    held = sum(map(abs, grid.memory))
    cost = []
    for d, here in enumerate(grid.on):
        carrying = [i for i in here if grid.memory[i]]
        for a in carrying:
            for b in carrying:
                if a < b and (a, b) not in before:
                    first = cp.new_bool_var("")
                    before[a, b], before[b, a] = first, first.negated()
                    cp.add(place[a] < place[b]).only_enforce_if(first)
                    cp.add(place[b] < place[a]).only_enforce_if(first.negated())
        peak = cp.new_int_var(0, held, "")
        over = cp.new_int_var(0, held, "")
        for i in carrying:
            cp.add(peak >= grid.memory[i] + sum(grid.memory[j] * before[j, i] for j in carrying if j != i))
        cp.add(over >= peak - (grid.capacity[d] if grid.capacity else held))
        cost += [peak, over * (grid.devices + 1) * (held + 1)]
    cp.minimize(sum(cost))
    solver, status = solve(cp, clock)
    if status not in ("optimal", "feasible"):
        return (0.0,) * placement.devices
    peaks = []
    for here in grid.on:
        order = sorted(here, key=lambda i: solver.value(place[i]))
        level = peak_level = 0.0
        for i in order:
            level += placement.blocks[i].memory
            peak_level = max(peak_level, level)
        peaks.append(peak_level)
    return tuple(peaks)
