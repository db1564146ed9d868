"""How long each block takes on one device, while it trains."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Iterator

import torch

# One step in so many is measured, for on a GPU each measured block costs two events (ours).
EVERY = 10
# The latest runs that count: enough for a median, few enough to follow a change (ours).
RUNS = 64


class Stopwatch:
    """Measures computation alone: a block that waits for its inputs, or for other devices, does not get longer."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._steps = 0
        self._runs: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=RUNS))
        self._pending: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []

    def next_step(self) -> None:
        """A step begins. The first of a process, which pays for warming up, is not measured."""
        self._settle()
        self._steps += 1

    @contextlib.contextmanager
    def block(self, number: int) -> Iterator[None]:
        """Within this a block is computed."""
        if self._steps % EVERY != 2:
            yield
        elif self._cuda:
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            yield
            end.record()
            self._pending.append((number, begin, end))
        else:
            began_s = time.perf_counter()
            yield
            self._runs[number].append(time.perf_counter() - began_s)

    def medians_us(self) -> dict[int, float]:
        """Microseconds of each block that was measured."""
        self._settle()
        return {number: statistics.median(runs) * 1e6 for number, runs in self._runs.items()}

    def _settle(self) -> None:
        if self._pending:
            self._pending[-1][2].synchronize()
        for number, begin, end in self._pending:
            self._runs[number].append(begin.elapsed_time(end) / 1e3)
        self._pending.clear()
