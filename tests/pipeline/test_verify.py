"""The validator finds every kind of fault, and agrees with an exhaustive search on tiny cases."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import placements

from ones_slurm.pipeline import Block, Deadlock, Placement, by_name, presets, replay, search, verify


def times_of_1f1b() -> tuple[Placement, dict[tuple[int, int], float]]:
    placement = by_name("V4").with_memory([4, 3, 2, 1])
    schedule = next(s for s in presets(placement, 6) if s.source == "1f1b")
    return placement, replay(placement, schedule.orders)


def test_1f1b_is_what_the_textbook_says() -> None:
    placement, starts = times_of_1f1b()
    verdict = verify(placement, 6, starts)
    assert verdict.faults == ()
    assert verdict.makespan_us == 6 * 4 + 3 * 4
    assert verdict.bubble == pytest.approx(3 / 9)
    assert verdict.peak_memory == (4, 3, 2, 1)


def test_each_kind_of_fault_is_found() -> None:
    placement, starts = times_of_1f1b()
    names = {block.name: i for i, block in enumerate(placement.blocks)}

    def faults(changes: dict[tuple[int, int], float], drop: tuple[int, int] | None = None) -> str:
        changed = {op: start for op, start in (starts | changes).items() if op != drop}
        return " | ".join(verify(placement, 6, changed).faults)

    assert "F2 of micro-batch 3 does not run" in faults({}, drop=(names["F2"], 3))
    assert "is no block" in faults({(99, 0): 0.0})
    assert "before the output of F0" in faults({(names["F1"], 0): 0.5})
    assert "starts while" in faults({(names["F0"], 1): 0.5})
    assert "holds 5 of 4 memory" in faults({(names["F0"], 4): starts[names["B0"], 0] - 1})


@settings(max_examples=40, deadline=None)
@given(placements(), st.integers(1, 4), st.data())
def test_a_block_moved_to_before_its_need_is_always_caught(placement: Placement, n: int, data: st.DataObject) -> None:
    schedule = presets(placement, n)[0]
    starts = replay(placement, schedule.orders)
    edges = placement.edges
    if not edges:
        return
    i, j = data.draw(st.sampled_from(edges))
    moved = starts | {(j, n - 1): starts[i, n - 1] + placement.blocks[i].time_us - 0.01}
    assert verify(placement, n, moved).faults


def test_orders_that_wait_for_each_other_are_a_deadlock() -> None:
    placement = by_name("V2")
    forward0, forward1, backward1, backward0 = ((i, 0) for i in range(4))
    with pytest.raises(Deadlock, match="never runs"):
        replay(placement, ((backward0, forward0), (forward1, backward1)))


@settings(max_examples=12, deadline=None)
@given(placements(most_forwards=2), st.integers(1, 2))
def test_tiny_cases_are_solved_as_well_as_by_trying_every_order(placement: Placement, n: int) -> None:
    placement = placement.with_memory(placement.memory or [10.0] * placement.devices)
    orders_of_device = []
    for d in range(placement.devices):
        ops = [(i, m) for i in placement.on(d) for m in range(n)]
        fits = [
            order
            for order in itertools.permutations(ops)
            if all(order.index((i, m)) < order.index((i, m + 1)) for i in placement.on(d) for m in range(n - 1))
        ]
        orders_of_device.append(fits)
        if len(fits) > 500:
            return
    if len(list(itertools.islice(itertools.product(*orders_of_device), 3001))) > 3000:
        return
    best = float("inf")
    for orders in itertools.product(*orders_of_device):
        try:
            verdict = verify(placement, n, replay(placement, orders))
        except Deadlock:
            continue
        if not verdict.faults:
            best = min(best, verdict.makespan_us)
    assert search(placement, n, 10).verdict.makespan_us == pytest.approx(best)


def test_a_block_on_two_devices_keeps_both_busy() -> None:
    both = Block(name="both", time_us=2, devices=(0, 1))
    alone = Block(name="alone", time_us=1, devices=(1,))
    placement = Placement(name="p", devices=2, blocks=(both, alone))
    assert verify(placement, 1, {(0, 0): 0.0, (1, 0): 1.0}).faults
    assert not verify(placement, 1, {(0, 0): 0.0, (1, 0): 2.0}).faults
