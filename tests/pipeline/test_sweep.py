"""Two directions over a line of devices: the sweep says of every period what the solver says, and much sooner."""

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ones_slurm.pipeline import by_name, replay, verify
from ones_slurm.pipeline.cyclic import repetend, repetend_of
from ones_slurm.pipeline.grid import grid_of
from ones_slurm.pipeline.period import Steady, sequence_of, steady_state
from ones_slurm.pipeline.schedule import orders_of
from ones_slurm.pipeline.solver import Clock
from ones_slurm.pipeline.sweep import strands_of, sweep


def faults(placement, grid, period, starts, micro_batches=6):
    """What the validator finds in so many micro-batches of a swept repetend."""
    found = repetend_of(grid, period, starts)
    steady = Steady(repetend=found, grid=grid, period_us=1.0, bound_us=1.0, single_bound_us=1.0)
    orders = orders_of(placement, sequence_of(steady, micro_batches))
    verdict = verify(placement, micro_batches, replay(placement, orders))
    assert verdict.makespan_us <= (found.latency + (micro_batches - 1) * period) * grid.unit_us * (1 + 1e-9)
    return verdict.faults


@pytest.mark.parametrize(("name", "memory", "period"), [("X4", 4, 8), ("X4", 2, 13), ("X8", 5, 11), ("X8", 4, 13)])
def test_the_shortest_period_of_two_directions_is_proven(name, memory, period):
    steady = steady_state(by_name(name).with_memory(memory), Clock(60))
    assert steady.proven
    assert steady.period_us == period
    grid = steady.grid
    assert sweep(grid, strands_of(grid), period - 1) == (None, True)
    starts, _ = sweep(grid, strands_of(grid), period)
    assert not faults(by_name(name).with_memory(memory), grid, period, starts)


@settings(deadline=None, max_examples=25)
@given(
    devices=st.integers(2, 3),
    times=st.lists(st.integers(1, 3), min_size=12, max_size=12),
    weights=st.lists(st.integers(1, 2), min_size=6, max_size=6),
    spare=st.integers(0, 3),
    transfer=st.integers(0, 1),
    longer=st.integers(0, 6),
)
def test_it_agrees_with_the_solver(*, devices, times, weights, spare, transfer, longer):
    plain = by_name(f"X{devices}")
    held = {block.name[1:]: weight for block, weight in zip(plain.blocks, weights, strict=False)}
    blocks = tuple(
        msgspec.structs.replace(
            block,
            time_us=time,
            memory=held.get(block.name[1:], 1) * (1 if block.kind == "forward" else -1),
        )
        for block, time in zip(plain.blocks, times, strict=False)
    )
    memory = tuple(sum(b.memory for b in blocks if d in b.devices and b.memory > 0) + spare for d in range(devices))
    placement = msgspec.structs.replace(plain, blocks=blocks, memory=memory, transfer_us=transfer)
    grid = grid_of(placement)
    assume(grid.exact)
    strands = strands_of(grid)
    assert strands is not None
    period = grid.work + longer
    starts, decided = sweep(grid, strands, period)
    _, status = repetend(grid, period, 1, Clock(60))
    assume(status != "unknown")
    assert decided
    assert (starts is not None) == (status != "infeasible")
    if starts is not None:
        assert not faults(placement, grid, period, starts)


@pytest.mark.parametrize("name", ["V4", "K4", "M4", "NN4", "V4x2", "ZB4"])
def test_other_shapes_are_left_to_the_solver(name):
    assert strands_of(grid_of(by_name(name).with_memory(8))) is None


def test_without_a_limit_on_memory_there_is_nothing_to_sweep():
    assert strands_of(grid_of(by_name("X4"))) is None


def test_times_in_fine_steps_are_left_to_the_solver():
    fine = tuple(msgspec.structs.replace(b, time_us=b.time_us * 100 + i) for i, b in enumerate(by_name("X4").blocks))
    grid = grid_of(msgspec.structs.replace(by_name("X4"), blocks=fine).with_memory(4))
    assert sweep(grid, strands_of(grid), grid.work) == (None, False)
