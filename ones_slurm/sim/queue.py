"""The batch system of an imagined cluster: starts what fits, in order, and backfills behind one reservation.

Elastic jobs hold their nodes alone; others share them, the fullest first.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from ones_slurm.model.cluster import Allocation, NodeView
from ones_slurm.model.pools import fits, kind_of
from ones_slurm.sim.job import Job

# As many jobs behind the first are looked at (Slurm's default of bf_max_job_test).
MAX_TESTED = 500


class Room:
    """Free GPUs by node, as they would be if this and that happened."""

    def __init__(self, nodes: Mapping[str, NodeView], free: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._free = {name: gpus for name, gpus in free.items() if gpus}
        self._kinds = {name: kind_of(node) for name, node in nodes.items()}

    def place(self, job: Job) -> Allocation | None:
        """Where the job could be now: on the fullest nodes that have room for it; None where it does not fit."""
        need, partition = job.gpus_per_node, job.what.partition
        there = [
            (gpus, name)
            for name, gpus in self._free.items()
            if gpus >= need
            and fits(partition, need, self._kinds[name])
            and not (job.exclusive and gpus < self._nodes[name].gpus)
        ]
        if len(there) < job.asked_nodes:
            return None
        there.sort()
        chosen = sorted((name, gpus) for gpus, name in there[: job.asked_nodes])
        return tuple((name, gpus if job.exclusive else need) for name, gpus in chosen)

    def take(self, allocation: Allocation) -> None:
        """These GPUs are gone."""
        for name, gpus in allocation:
            self._free[name] -= gpus

    def give(self, allocation: Allocation) -> None:
        """These GPUs are free again."""
        for name, gpus in allocation:
            if self._nodes[name].usable:
                self._free[name] = self._free.get(name, 0) + gpus

    def has(self, allocation: Allocation) -> bool:
        """Whether these GPUs are free."""
        return all(self._free.get(name, 0) >= gpus for name, gpus in allocation)

    def copy(self) -> "Room":
        """Another one to try things out on."""
        return Room(self._nodes, self._free)


def startable(
    waiting: Sequence[Job], running: Iterable[Job], nodes: Mapping[str, NodeView], free: Mapping[str, int], now_s: float
) -> list[tuple[Job, Allocation]]:
    """The jobs that start now and where, in order. Time limits are believed; without one a job runs for ever."""
    room = Room(nodes, free)
    starting: list[tuple[Job, Allocation]] = []
    shadow: tuple[float, Room] | None = None
    for job in waiting[: MAX_TESTED + 1]:
        place = room.place(job)
        if place is None:
            if shadow is None:
                ends = [(end_s(each, now_s), each.allocation) for each in running]
                ends += [(now_s + _limit_s(each), taken) for each, taken in starting]
                shadow = _reserve(job, room, ends)
            continue
        if shadow is not None and now_s + _limit_s(job) > shadow[0]:
            place = shadow[1].place(job)
            if place is None or not room.has(place):
                continue
            shadow[1].take(place)
        room.take(place)
        starting.append((job, place))
    return starting


def end_s(job: Job, now_s: float) -> float:
    """When a running job is over at the latest."""
    return max((job.start_s if job.start_s is not None else now_s) + _limit_s(job), now_s)


def _reserve(job: Job, room: Room, ends: Sequence[tuple[float, Allocation]]) -> tuple[float, Room]:
    """When the job can start at the latest, and the room that is left beside it then."""
    then = room.copy()
    for at_s, allocation in sorted(ends, key=lambda end: end[0]):
        then.give(allocation)
        place = then.place(job)
        if place is not None:
            then.take(place)
            return at_s, then
    return math.inf, then


def _limit_s(job: Job) -> float:
    return math.inf if job.what.time_limit_s is None else job.what.time_limit_s
