"""Virtual time: what is due next, in an order that never depends on chance."""

import heapq
from typing import Any


class Clock:
    """A heap of (time, priority, sequence). Equal times go by priority, then in the order in which they were set."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sequence = 0

    def at(self, time_s: float, priority: int, what: Any) -> None:
        """Sets something for that time, which may not lie in the past."""
        assert time_s >= self.now_s, f"{what} at {time_s} is before {self.now_s}"
        heapq.heappush(self._heap, (time_s, priority, self._sequence, what))
        self._sequence += 1

    def next_s(self) -> float:
        """When the next thing is due; infinite when there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def pop(self) -> Any:
        """Goes to the next thing and returns it."""
        self.now_s, _, _, what = heapq.heappop(self._heap)
        return what

    def go_to(self, time_s: float) -> None:
        """Lets time pass up to there."""
        assert self.now_s <= time_s <= self.next_s(), f"from {self.now_s} to {time_s}, next is {self.next_s()}"
        self.now_s = time_s
