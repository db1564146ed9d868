"""Placement that minds the network: least workload first, consolidated above κ GPUs (LWF-κ).

After Wang et al., "Communication Contention Aware Scheduling of Multiple Deep Learning Training Jobs", 2020, arXiv
2002.10105.

Jobs go by shortest remaining service (GPUs × time limit). One of at most κ GPUs goes to the nodes with the least work
ahead of them; a larger one to as few nodes as hold it, and it waits rather than share a node's network with another
job that spans nodes, unless that would leave it waiting for longer than `PATIENCE_S`.
"""

import math

import numpy as np

from ones_slurm.model.cluster import Allocation, ClusterView, JobView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.peers.placing import free_gpus, put, take_emptiest, waiting

# κ = 1 was best in the paper; half an hour is ours (the paper decides message by message instead).
KAPPA = 1
PATIENCE_S = 1800.0


class Consolidated:
    """LWF-κ without preemption."""

    name = "consolidated"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Places who fits, the shortest service first."""
        free = free_gpus(view)
        work = dict.fromkeys(free, 0.0)  # GPU-seconds ahead of each node
        busy: set[str] = set()  # nodes whose network a job uses already
        for job in view.jobs:
            for name, gpus in job.allocation:
                work[name] = work.get(name, 0.0) + gpus * _left_s(job, view.now_s)
            if len(job.allocation) > 1:
                busy.update(name for name, _ in job.allocation)
        targets = []
        for job in sorted(waiting(view), key=lambda job: (job.asked_gpus * _left_s(job, view.now_s), job.submit_s)):
            patient = view.now_s - job.submit_s < PATIENCE_S
            place = _place(free, work, busy if patient else set(), job.asked_gpus)
            if place:
                targets.append(put(job, place, "the least work is ahead of these nodes"))
                busy.update(name for name, _ in place if len(place) > 1)
                for name, gpus in place:
                    work[name] += gpus * min(_left_s(job, view.now_s), 1e9)
        return Plan(tuple(targets))


def _place(free: dict[str, int], work: dict[str, float], busy: set[str], gpus: int) -> Allocation:
    """Takes the GPUs and returns where; nothing where they do not fit that way."""
    snug = [name for name in free if free[name] >= gpus]
    if snug:
        tightest = min(free[name] for name in snug)
        name = min((name for name in snug if gpus <= KAPPA or free[name] == tightest), key=work.__getitem__)
        free[name] -= gpus
        return ((name, gpus),)
    quiet = {name: count for name, count in free.items() if name not in busy}
    if sum(quiet.values()) < gpus:
        return ()
    place = take_emptiest(quiet, gpus)
    for name, count in place:
        free[name] -= count
    return place


def _left_s(job: JobView, now_s: float) -> float:
    """What the time limit leaves; without one the most."""
    if job.time_limit_s is None:
        return math.inf
    return max(job.time_limit_s - (now_s - job.start_s if job.start_s is not None else 0.0), 0.0)
