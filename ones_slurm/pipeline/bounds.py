"""What no schedule can beat, in microseconds, from the placement alone."""

from __future__ import annotations

from ortools.linear_solver import pywraplp

from ones_slurm.pipeline.spec import Placement


def period_bound_us(placement: Placement) -> float:
    """Least time per micro-batch in any steady state, whatever the number of micro-batches in a repetend.

    Two laws in one linear programme over the mean starts s and the period P: no device works more than P, and (Little)
    what a device holds on average fits in its memory. While a release runs, what it gave back is not taken again, so
    memory counts as held to the end of the release.
    """
    work_us = max(placement.work_us)
    if not placement.memory:
        return work_us
    blocks = placement.blocks
    program = pywraplp.Solver.CreateSolver("GLOP")
    start = [program.NumVar(0, program.infinity(), "") for _ in blocks]
    period = program.NumVar(work_us, program.infinity(), "")
    for i, j in placement.edges:
        program.Add(start[j] >= start[i] + blocks[i].time_us + placement.transfer_between_us(i, j))
    for d, limit in enumerate(placement.memory):
        here = [i for i in placement.on(d) if blocks[i].memory]
        if here and limit < float("inf"):
            held = sum(-blocks[i].memory * start[i] for i in here)
            released = sum(-blocks[i].memory * blocks[i].time_us for i in here if blocks[i].memory < 0)
            program.Add(held + released <= limit * period)
    program.Minimize(period)
    # Infeasible means that a device must hold something and may hold nothing; that is for least_memory to say.
    return max(work_us, period.solution_value()) if program.Solve() == program.OPTIMAL else work_us


def makespan_bound_us(placement: Placement, micro_batches: int) -> float:
    """No device is done before the way to it, all its work, and the way from it to the end; nor is any block."""
    blocks = placement.blocks
    heads = [0.0] * len(blocks)
    for i, j in sorted(placement.edges, key=lambda edge: edge[1]):
        heads[j] = max(heads[j], heads[i] + blocks[i].time_us + placement.transfer_between_us(i, j))
    after = [0.0] * len(blocks)
    for i, j in sorted(placement.edges, key=lambda edge: -edge[0]):
        after[i] = max(after[i], placement.transfer_between_us(i, j) + blocks[j].time_us + after[j])
    groups = [here for d in range(placement.devices) if (here := placement.on(d))] + [(i,) for i in range(len(blocks))]
    return max(
        min(heads[i] for i in group)
        + micro_batches * sum(blocks[i].time_us for i in group)
        + min(after[i] for i in group)
        for group in groups
    )
