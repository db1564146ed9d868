"""First in, first out: every job gets the size that it asked for, in strict order, and keeps it."""

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.model.pools import Pools
from ones_slurm.policy.sizes import base_batch, claims_nodes, told, turn


class Fifo:
    """The baseline of a plain batch system: nobody is moved, and nobody overtakes within a partition."""

    name = "fifo"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Pending jobs start in turn for as long as their size fits into what is free."""
        free = Pools(view.free_nodes())
        stopped: set[str] = set()
        targets = []
        for job in sorted(filter(claims_nodes, view.jobs), key=turn):
            if job.move is not None:
                free.take(job, max(job.move.nodes - len(job.nodes), 0))
                continue
            size = len(job.nodes) or _asked_size(job)
            left = free.left_for(job)
            if not job.nodes:
                if job.partition in stopped or left < size:
                    stopped.add(job.partition)
                    size = 0
                free.take(job, size)
            if job.elastic:
                reason = "gets the size it asked for" if size else "waits its turn for the size it asked for"
                targets.append(
                    Target(
                        job_id=job.job_id,
                        nodes=size,
                        batch=base_batch(job),
                        reason=reason,
                        numbers=told(asked_nodes=job.asked_nodes, free_nodes=left),
                    )
                )
        return Plan(tuple(targets))


def _asked_size(job: JobView) -> int:
    """What a pending job asked for; an elastic one within its own wish."""
    if not job.elastic or job.wish is None:
        return job.asked_nodes
    return job.wish.node_bounds(job.asked_nodes, job.gpus_per_node).clamp(job.asked_nodes)
