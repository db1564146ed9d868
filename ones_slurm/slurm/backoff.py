"""How long to leave slurmctld alone when it is slow, busy or gone."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ones_slurm.model.errors import Unreachable

T = TypeVar("T")


class Uniform(Protocol):
    """The one method of a numpy (or any other) generator that is needed."""

    def uniform(self, low: float, high: float, /) -> float:
        """A number between the two."""
        ...


class Backoff:
    """Asks a question, and refuses to ask it again too soon after trouble.

    Each failure in a row doubles the wait, from `first_s` up to `longest_s`; the wait is drawn between half of it and
    the whole, so that many daemons do not come back together. An answer that took longer than `slow_s` counts as
    trouble as well, but is handed out.

    Ours: `first_s` 5, for slurmctld restarts within seconds; `longest_s` 600, the longest that a site should run
    unplanned after Slurm is back; `slow_s` 10, Slurm's default MessageTimeout.
    """

    def __init__(
        self,
        rng: Uniform,
        *,
        first_s: float = 5.0,
        longest_s: float = 600.0,
        slow_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rng = rng
        self._first_s = first_s
        self._longest_s = longest_s
        self._slow_s = slow_s
        self._clock = clock
        self._troubles = 0
        self._why = ""
        self._not_before_s = float("-inf")

    @property
    def wait_s(self) -> float:
        """How long the next question has to wait; 0 when it may be asked now."""
        return max(0.0, self._not_before_s - self._clock())

    def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises `Unreachable` without asking while the wait lasts, or when Slurm does not answer."""
        if (wait_s := self.wait_s) > 0:
            raise Unreachable(f"Slurm is left alone for another {wait_s:.0f} s: {self._why}")
        began_s = self._clock()
        try:
            answer = question()
        except Unreachable as error:
            self._trouble(error.message)
            raise
        took_s = self._clock() - began_s
        if took_s > self._slow_s:
            self._trouble(f"its last answer took {took_s:.0f} s")
        else:
            self._troubles = 0
        return answer

    def _trouble(self, why: str) -> None:
        # Bounded before it is computed, for a cluster may be down for days.
        longest_s = min(self._first_s * 2.0 ** min(self._troubles, 30), self._longest_s)
        self._troubles += 1
        self._why = why
        self._not_before_s = self._clock() + self._rng.uniform(longest_s / 2, longest_s)
