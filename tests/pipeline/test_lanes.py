"""The lists of the ranks can never hang, and both ends of every pair issue the same sequence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placements import placements

from ones_slurm.model.errors import UsageError
from ones_slurm.pipeline import Block, Placement, by_name, presets, search
from ones_slurm.pipeline.lanes import Step, lanes, rendezvous, traffic_of


def between(lists: list[list[Step]], a: int, b: int) -> list[tuple[str, object, int]]:
    """What a says to b and hears from it, in its order; what the other end does is turned round."""
    return [("send" if s.do == "send" else "receive", s.flow, s.micro_batch) for s in lists[a] if s.peer == b]


@pytest.mark.parametrize("name", ["V4", "V4x2", "X4", "M4", "K4", "NN4", "ZB4"])
def test_transfers_that_block_both_ends_never_hang(name: str) -> None:
    placement = by_name(name)
    for schedule in [*presets(placement, 8), search(placement, 8, 1).schedule]:
        lists = lanes(schedule)
        assert rendezvous(lists, placement) == 0
        for a in range(4):
            for b in range(a):
                turned = [("receive" if do == "send" else "send", f, n) for do, f, n in between(lists, b, a)]
                assert between(lists, a, b) == turned


@settings(max_examples=30, deadline=None)
@given(placements(most_forwards=5), st.integers(1, 5))
def test_no_placement_hangs(placement: Placement, micro_batches: int) -> None:
    for schedule in presets(placement, micro_batches):
        assert rendezvous(lanes(schedule), placement) == 0


def test_the_rendezvous_sees_two_ends_that_disagree() -> None:
    placement = by_name("V2")
    lists = lanes(presets(placement, 2)[0])
    sends = [at for at, step in enumerate(lists[0]) if step.do == "send"]
    lists[0][sends[0]], lists[0][sends[1]] = lists[0][sends[1]], lists[0][sends[0]]
    assert rendezvous(lists, placement) > 0


def test_a_sender_does_not_finish_another_block_first() -> None:
    """Device 0 runs F0 of the next micro-batch while the first one's output is on its way, not before."""
    schedule = next(s for s in presets(by_name("V2"), 3) if s.source == "1f1b")
    told = [(step.do, step.micro_batch) for step in lanes(schedule)[0][:3]]
    assert told == [("run", 0), ("send", 0), ("run", 1)]


def test_a_placement_that_cannot_be_executed_says_why() -> None:
    forward = Block(name="F", time_us=1, devices=(0,))
    stray = Block(name="B", time_us=1, devices=(0,), after=("F",), kind="backward")
    with pytest.raises(UsageError, match="'B' does not say whose backward"):
        traffic_of(Placement(name="p", devices=1, blocks=(forward, stray)))
