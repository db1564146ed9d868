"""Virtual time."""

import pytest

from ones_slurm.sim.clock import Clock


def test_equal_times_go_by_priority_and_then_in_the_order_they_were_set():
    clock = Clock()
    for name, time_s, priority in (("late", 2.0, 0), ("second", 1.0, 1), ("third", 1.0, 1), ("first", 1.0, 0)):
        clock.at(time_s, priority, name)
    assert [clock.pop() for _ in range(4)] == ["first", "second", "third", "late"]
    assert clock.now_s == 2.0


def test_nothing_can_be_set_for_the_past():
    clock = Clock(10.0)
    with pytest.raises(AssertionError, match="before"):
        clock.at(9.0, 0, "too late")
