"""Ranks leave at the same step, whatever their clocks say."""

import itertools
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from ones_slurm.elastic.agreement import WINDOW_S, Agreement


class Shared:
    """A store as torch's: `get` waits for the key."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.operations = 0
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self.operations += 1
            self.values[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            self.operations += 1
            assert self._changed.wait_for(lambda: key in self.values, 10)
            return self.values[key].encode()

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self.values[key] = str(int(self.values.get(key, "0")) + amount)
            return int(self.values[key])

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self.values.pop(key, None) is not None


def steps_until_leave(agreement: Agreement, tick: "Clock | None" = None) -> int:
    for step in range(1, 100_000):
        if tick is not None:
            tick.now_s += tick.step_s
        if agreement.after_step() == "leave":
            return step
    raise AssertionError("never left")


class Clock:
    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        return self.now_s


@settings(max_examples=30, deadline=None)
@given(ranks=st.integers(2, 5), decisions=st.integers(0, 20), step_s=st.floats(1e-4, 3.0))
def test_all_ranks_leave_at_the_same_step(ranks: int, decisions: int, step_s: float) -> None:
    store, clock = Shared(), Clock(step_s)
    verbs = iter(["go"] * decisions + ["leave"])
    left: dict[int, int] = {}

    def others(rank: int) -> None:
        left[rank] = steps_until_leave(Agreement(store, rank, ranks, lambda: "unasked"))

    threads = [threading.Thread(target=others, args=(rank,)) for rank in range(1, ranks)]
    for thread in threads:
        thread.start()
    store.delete_key = lambda key: False  # type: ignore[method-assign]  # without an all-reduce, ranks may lag behind
    left[0] = steps_until_leave(Agreement(store, 0, ranks, lambda: next(verbs), clock), clock)
    for thread in threads:
        thread.join(10)
    assert len(left) == ranks
    assert len(set(left.values())) == 1


def test_windows_settle_at_a_quarter_of_a_second_and_cost_one_operation_each() -> None:
    store, clock = Shared(), Clock(0.005)
    asked: list[float] = []

    def decide() -> str:
        asked.append(clock.now_s)
        return "leave" if len(asked) == 30 else "go"

    steps_until_leave(Agreement(store, 0, 2, decide, clock), clock)
    lengths = [after - before for before, after in itertools.pairwise(asked[10:])]
    assert all(0.9 * WINDOW_S <= length <= WINDOW_S + 0.005 for length in lengths)
    assert store.operations == 30
    assert len(store.values) <= 2


def test_slow_steps_are_windows_of_one() -> None:
    clock = Clock(3.0)
    verbs = iter(["go", "go", "leave"])
    assert steps_until_leave(Agreement(None, 0, 1, lambda: next(verbs), clock), clock) == 3
