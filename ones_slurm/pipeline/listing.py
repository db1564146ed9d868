"""List scheduling in virtual time: each free device takes the most urgent block that is ready."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from ones_slurm.pipeline.schedule import Op
from ones_slurm.pipeline.spec import MEMORY_TOLERANCE, Block, Placement


def list_schedule(
    placement: Placement,
    micro_batches: int,
    urgency: Callable[[Block], int],
    in_flight: Mapping[int, int] | None = None,
    memory: Sequence[float] = (),
) -> dict[Op, float] | None:
    """Starts of all blocks, or None if it gets stuck.

    `urgency` ranks blocks, small first; then comes the earlier micro-batch. `in_flight` limits how many micro-batches
    are between a forward and its backward; `memory` limits what each device holds. A block on several devices is
    called by the first of them; each of the others then finishes what it runs and waits for the call.
    """
    return _Clock(placement, micro_batches, urgency, in_flight or {}, memory).run()


class _Clock:
    def __init__(
        self,
        placement: Placement,
        micro_batches: int,
        urgency: Callable[[Block], int],
        in_flight: Mapping[int, int],
        memory: Sequence[float],
    ) -> None:
        blocks = placement.blocks
        self.blocks, self.micro_batches, self.memory = blocks, micro_batches, memory
        self.urgency = [urgency(block) for block in blocks]
        self.users: list[list[tuple[int, float]]] = [[] for _ in blocks]
        for i, j in placement.edges:
            self.users[i].append((j, placement.transfer_between_us(i, j)))
        position = {block.name: i for i, block in enumerate(blocks)}
        self.ends = [
            position[block.of] if block.of and block.kind in ("backward", "input_gradient") else None
            for block in blocks
        ]
        self.limit = {i: limit for i, limit in in_flight.items() if i in self.ends}
        self.led: list[list[int]] = [[] for _ in range(placement.devices)]
        for i, block in enumerate(blocks):
            self.led[block.devices[0]].append(i)

        self.missing = {(i, n): len(block.after) for i, block in enumerate(blocks) for n in range(micro_batches)}
        self.arrival: dict[Op, float] = defaultdict(float)
        self.following = [0] * len(blocks)  # the micro-batch that each block runs next
        self.flying = [0] * len(blocks)
        self.free = [0.0] * placement.devices
        self.level = [0.0] * placement.devices
        self.calls: list[list[Op]] = [[] for _ in range(placement.devices)]
        self.events = [(0.0, d) for d in range(placement.devices)]
        self.starts: dict[Op, float] = {}

    def run(self) -> dict[Op, float] | None:
        while self.events:
            now, d = heapq.heappop(self.events)
            if self.free[d] > now:
                continue
            if not self.calls[d]:
                op = self._most_urgent(d, now)
                if op is None:
                    continue
                self.following[op[0]] += 1
                for e in self.blocks[op[0]].devices:
                    self.calls[e].append(op)
                    if e != d:
                        heapq.heappush(self.events, (max(now, self.free[e]), e))
            self._answer(self.calls[d][0], now)
        return self.starts if len(self.starts) == len(self.missing) else None

    def _most_urgent(self, d: int, now: float) -> Op | None:
        ready = []
        for i in self.led[d]:
            n = self.following[i]
            if n == self.micro_batches or self.missing[i, n] or self.arrival[i, n] > now:
                continue
            if i in self.limit and self.flying[i] >= self.limit[i]:
                continue
            if self._fits(self.blocks[i]):
                ready.append((self.urgency[i], n, i))
        if not ready:
            return None
        _, n, i = min(ready)
        return i, n

    def _fits(self, block: Block) -> bool:
        if not self.memory or block.memory <= 0:
            return True
        return all(self.level[e] + block.memory <= self.memory[e] + MEMORY_TOLERANCE for e in block.devices)

    def _answer(self, op: Op, now: float) -> None:
        """Begin a called block if all its devices are free and have come to it."""
        i, n = op
        block = self.blocks[i]
        if not all(self.free[e] <= now and self.calls[e] and self.calls[e][0] == op for e in block.devices):
            return
        self.starts[op] = now
        self.flying[i] += 1
        ended = self.ends[i]
        if ended is not None:
            self.flying[ended] -= 1
        end = now + block.time_us
        for e in block.devices:
            self.calls[e].pop(0)
            self.level[e] += block.memory
            self.free[e] = end
            heapq.heappush(self.events, (end, e))
        for j, transfer_us in self.users[i]:
            self.missing[j, n] -= 1
            self.arrival[j, n] = max(self.arrival[j, n], end + transfer_us)
            if not self.missing[j, n]:
                heapq.heappush(self.events, (self.arrival[j, n], self.blocks[j].devices[0]))
