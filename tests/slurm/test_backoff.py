"""Leaving slurmctld alone when it has trouble."""

import numpy as np
import pytest

from ones_slurm.model.errors import Unreachable
from ones_slurm.slurm.backoff import Backoff


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slurm:
    """Counts how often it is asked; each answer takes `takes_s`."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked, self.takes_s, self.down = clock, 0, 0.1, False

    def snapshot(self) -> str:
        self.asked += 1
        self.clock.now_s += self.takes_s
        if self.down:
            raise Unreachable("Socket timed out")
        return "snapshot"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm(clock: Clock) -> Slurm:
    return Slurm(clock)


@pytest.fixture
def backoff(clock: Clock) -> Backoff:
    return Backoff(np.random.default_rng(1), first_s=5, longest_s=60, slow_s=10, clock=clock)


def test_without_trouble_every_question_is_asked(backoff, slurm):
    assert [backoff.ask(slurm.snapshot) for _ in range(3)] == ["snapshot"] * 3
    assert backoff.wait_s == 0


def test_waits_double_up_to_the_longest_and_are_never_the_same(backoff, slurm, clock):
    slurm.down = True
    waits = []
    for _ in range(8):
        with pytest.raises(Unreachable, match="Socket timed out"):
            backoff.ask(slurm.snapshot)
        waits.append(backoff.wait_s)
        clock.now_s += backoff.wait_s
    for wait_s, most_s in zip(waits, (5, 10, 20, 40, 60, 60, 60, 60), strict=True):
        assert most_s / 2 <= wait_s <= most_s
    assert len(set(waits)) == 8


def test_while_it_waits_slurm_is_not_asked(backoff, slurm):
    slurm.down = True
    with pytest.raises(Unreachable):
        backoff.ask(slurm.snapshot)
    with pytest.raises(Unreachable, match="left alone for another"):
        backoff.ask(slurm.snapshot)
    assert slurm.asked == 1


def test_a_slow_answer_is_given_and_followed_by_a_wait(backoff, slurm):
    slurm.takes_s = 12
    assert backoff.ask(slurm.snapshot) == "snapshot"
    with pytest.raises(Unreachable, match="its last answer took 12 s"):
        backoff.ask(slurm.snapshot)


def test_one_good_answer_forgets_the_trouble(backoff, slurm, clock):
    slurm.down = True
    for _ in range(4):
        with pytest.raises(Unreachable):
            backoff.ask(slurm.snapshot)
        clock.now_s += backoff.wait_s
    slurm.down = False
    backoff.ask(slurm.snapshot)
    slurm.down = True
    with pytest.raises(Unreachable):
        backoff.ask(slurm.snapshot)
    assert backoff.wait_s <= 5


def test_days_of_trouble_do_no_harm(backoff, slurm, clock):
    slurm.down = True
    for _ in range(2000):
        with pytest.raises(Unreachable):
            backoff.ask(slurm.snapshot)
        clock.now_s += backoff.wait_s
    assert backoff.wait_s == 0
