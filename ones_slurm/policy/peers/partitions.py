"""Peers know one pool of GPUs, as in their papers; on a cluster of several partitions each is decided on by itself."""

from collections.abc import Collection

import msgspec
import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.model.sockets import Policy

Partitions = tuple[str, ...]


class PerPartition:
    """A policy for a cluster of one pool, asked for one partition after the other. Partitions may not overlap."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:
        """As the policy itself where all nodes are in the same partition, or in none."""
        pools = {node.partitions for node in view.nodes}
        if len(pools) < 2:
            return self._policy.decide(view, rng)
        homes = {job.job_id: home(job, pools) for job in view.jobs}
        targets: list[Target] = []
        for pool in sorted(pools):
            jobs = tuple(job for job in view.jobs if homes[job.job_id] == pool)
            nodes = tuple(node for node in view.nodes if node.partitions == pool)
            targets += self._policy.decide(msgspec.structs.replace(view, nodes=nodes, jobs=jobs), rng).targets
        return Plan(tuple(targets))


def home(job: JobView, pools: Collection[Partitions]) -> Partitions | None:
    """The pool of the first of the job's partitions that there is; None where there is none."""
    named = job.partition.split(",")
    return next((pool for name in named for pool in sorted(pools) if name in pool), None)
