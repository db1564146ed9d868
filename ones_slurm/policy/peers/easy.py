"""EASY backfill: whoever does not delay the first in the queue may overtake (Lifka, JSSPP 1995).

This is the usual backfill of batch systems with one reservation. It believes the time limits that users give.
"""

import math
from collections.abc import Sequence

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.peers.placing import free_gpus, put, take_emptiest, waiting

# The backfill in common use looks at no more jobs behind the first one (bf_max_job_test, the default since 20.11).
MAX_TESTED = 500


class Easy:
    """Starts in order; the first that does not fit gets a reservation that nobody behind it may touch."""

    name = "easy"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Nobody is ever stopped or moved. A job without a time limit is taken to run for ever."""
        queue = waiting(view)
        free = free_gpus(view)
        left = sum(free.values())
        starting: list[JobView] = []
        while queue and queue[0].asked_gpus <= left:
            left -= queue[0].asked_gpus
            starting.append(queue.pop(0))
        if queue and left:
            running = [(_end_s(job, view.now_s), job.gpus) for job in view.jobs if job.allocation]
            running += [(view.now_s + _limit_s(job), job.asked_gpus) for job in starting]
            starting += _backfill(queue[0], queue[1 : MAX_TESTED + 1], left, sorted(running), view.now_s)
        return Plan(tuple(put(job, take_emptiest(free, job.asked_gpus), "fits now") for job in starting))


def _backfill(
    first: JobView, behind: Sequence[JobView], left: int, ends: Sequence[tuple[float, int]], now_s: float
) -> list[JobView]:
    """Those who end before the first can start, or need only what it leaves over then."""
    shadow_s, there = math.inf, left
    for end_s, gpus in ends:
        there += gpus
        if there >= first.asked_gpus:
            shadow_s = end_s
            break
    spare = there - first.asked_gpus if shadow_s < math.inf else left
    chosen = []
    for job in behind:
        if not left:
            break
        in_time = now_s + _limit_s(job) <= shadow_s
        if job.asked_gpus <= left and (in_time or job.asked_gpus <= spare):
            left -= job.asked_gpus
            spare -= 0 if in_time else job.asked_gpus
            chosen.append(job)
    return chosen


def _limit_s(job: JobView) -> float:
    return math.inf if job.time_limit_s is None else job.time_limit_s


def _end_s(job: JobView, now_s: float) -> float:
    """When a running job is over at the latest; one beyond its limit is about to be killed."""
    return max((job.start_s or now_s) + _limit_s(job), now_s)
