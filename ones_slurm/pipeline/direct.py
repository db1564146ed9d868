"""All N micro-batches in one CP-SAT model: for few of them, for tight memory, and for split backwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from ortools.sat.python import cp_model

from ones_slurm.pipeline.grid import Grid
from ones_slurm.pipeline.schedule import Op
from ones_slurm.pipeline.solver import Clock, solve


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """Starts in units, and a makespan below which there is nothing (in units too)."""

    starts: dict[Op, int]
    makespan: int
    bound: int


def direct(
    grid: Grid,
    micro_batches: int,
    clock: Clock,
    incumbent: Mapping[Op, int] | None = None,
    told: Callable[[float, float], None] | None = None,
) -> tuple[Complete | None, int, str]:
    """The shortest schedule, a lower bound of the makespan, and `optimal`, `feasible`, `infeasible` or `unknown`.

    `incumbent` is a schedule that must be matched or beaten: the search starts from it.
    """
    cp = cp_model.CpModel()
    blocks = range(len(grid.times))
    horizon = micro_batches * sum(grid.times) + sum(edge.delay for edge in grid.edges)
    if incumbent:
        horizon = max(start + grid.times[i] for (i, _), start in incumbent.items())
    heads, tails = _ways(grid)
    start: dict[Op, cp_model.IntVar] = {}
    for i in blocks:
        for n in range(micro_batches):
            start[i, n] = cp.new_int_var(heads[i], horizon - tails[i], "")
            if n:  # micro-batches are alike, so each block may run them in order
                cp.add(start[i, n] >= start[i, n - 1] + grid.times[i])
    for edge in grid.edges:
        for n in range(micro_batches):
            cp.add(start[edge.consumer, n] >= start[edge.producer, n] + edge.delay)
    interval = {op: cp.new_fixed_size_interval_var(var, grid.times[op[0]], "") for op, var in start.items()}
    for here in grid.on:
        cp.add_no_overlap([interval[i, n] for i in here for n in range(micro_batches)])
    if grid.capacity:
        for d in range(grid.devices):
            _limit_memory(cp, grid, d, micro_batches, start)
    makespan = cp.new_int_var(lower_bound(grid, micro_batches), horizon, "")
    for i in blocks:
        cp.add(makespan >= start[i, micro_batches - 1] + tails[i])
    cp.minimize(makespan)
    for op, value in (incumbent or {}).items():
        cp.add_hint(start[op], value)
    solver, status = solve(cp, clock, told)
    bound = lower_bound(grid, micro_batches)
    if status not in ("optimal", "feasible"):
        return None, bound, status
    bound = max(bound, round(solver.best_objective_bound))
    values = {op: solver.value(var) for op, var in start.items()}
    return Complete(starts=values, makespan=round(solver.objective_value), bound=bound), bound, status


def lower_bound(grid: Grid, micro_batches: int) -> int:
    """No device is done before the way to it, all its work, and the way from it to the end; nor is any block."""
    heads, tails = _ways(grid)
    groups = [here for here in grid.on if here] + [(i,) for i in range(len(grid.times))]
    return max(
        min(heads[i] for i in group)
        + micro_batches * sum(grid.times[i] for i in group)
        + min(tails[i] - grid.times[i] for i in group)
        for group in groups
    )


def _limit_memory(
    cp: cp_model.CpModel, grid: Grid, d: int, micro_batches: int, start: Mapping[Op, cp_model.IntVar]
) -> None:
    takes = [i for i in grid.on[d] if grid.memory[i] > 0]
    gives = [i for i in grid.on[d] if grid.memory[i] < 0]
    if len(takes) == 1 and len(gives) == 1:  # then it is a matter of order alone
        ahead = grid.capacity[d] // grid.memory[takes[0]]
        for n in range(ahead, micro_batches):
            cp.add(start[takes[0], n] >= start[gives[0], n - ahead] + grid.times[gives[0]])
        return
    ops = [(i, n) for i in takes + gives for n in range(micro_batches)]
    cp.add_reservoir_constraint(
        [start[op] for op in ops],
        [grid.memory[i] for i, _ in ops],
        min_level=-sum(grid.memory[i] for i in takes) * micro_batches,
        max_level=grid.capacity[d],
    )


def _ways(grid: Grid) -> tuple[list[int], list[int]]:
    """Longest way to the start of each block, and from its start to the end of the micro-batch."""
    heads = [0] * len(grid.times)
    for edge in sorted(grid.edges, key=lambda edge: edge.consumer):
        heads[edge.consumer] = max(heads[edge.consumer], heads[edge.producer] + edge.delay)
    tails = list(grid.times)
    for edge in sorted(grid.edges, key=lambda edge: -edge.producer):
        tails[edge.producer] = max(tails[edge.producer], edge.delay + tails[edge.consumer])
    return heads, tails
