"""Shortest remaining time first, with checkpoints and an oracle (Schrage 1968 for one server; a bound rather than a
policy here, for nobody knows remaining times).
"""

from collections.abc import Callable

import numpy as np

from ones_slurm.model.cluster import ClusterView
from ones_slurm.model.plan import Plan
from ones_slurm.policy.peers.placing import free_gpus, movable, put, take_emptiest, unmoved

# Seconds that a job still needs on so many GPUs.
Oracle = Callable[[str, int], float]


class Srtf:
    """Serves whoever would be over first at the size that was asked for, and stops the others."""

    name = "srtf"

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """First fit in the order of remaining times; those who run and are served again stay where they are."""
        jobs = movable(view)
        left = sum(free_gpus(view, unmoved(view, jobs)).values())
        remaining_s = {job.job_id: self._oracle(job.job_id, job.asked_gpus) for job in jobs}
        served, stopped = [], []
        for job in sorted(jobs, key=lambda job: remaining_s[job.job_id]):
            if job.asked_gpus <= left:
                left -= job.asked_gpus
                served.append(job)
            elif job.allocation:
                stopped.append(job)
        gone = {job.job_id for job in stopped}
        free = free_gpus(view, (job for job in view.jobs if job.job_id not in gone))
        return Plan(
            (
                *(put(job, (), "others will be over sooner") for job in stopped),
                *(
                    put(
                        job,
                        take_emptiest(free, job.asked_gpus),
                        "will be over first",
                        remaining_s=remaining_s[job.job_id],
                    )
                    for job in served
                    if not job.allocation
                ),
            )
        )
