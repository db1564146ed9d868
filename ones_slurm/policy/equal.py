"""Equal shares: the nodes of each partition are poured over its elastic jobs until the level is the same everywhere.

Whole nodes, within each job's bounds; running jobs always keep their minimum, waiting ones are let in by priority and
time of submission for as long as all minima fit together. Rigid jobs and unusable nodes are taken out first.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.model.pools import Pools, fits, kind_of
from ones_slurm.model.wish import Bounds
from ones_slurm.policy.sizes import batch_at, claims_nodes, size_bounds, told, turn


class Equal:
    """Water-filling on whole nodes."""

    name = "equal"

    def decide(self, view: ClusterView, rng: np.random.Generator) -> Plan:  # noqa: ARG002  (no chance in it)
        """Minima first, then one node at a time to the job with the fewest GPUs; ties go to who holds it already."""
        rigid = [job for job in view.jobs if job.nodes and not job.elastic]
        taken = {name for job in rigid for name in job.nodes} | _strange(view)
        pools = Pools(node for node in view.nodes if node.usable and node.name not in taken)
        jobs = [job for job in sorted(view.jobs, key=turn) if claims_nodes(job) and (job.elastic or not job.nodes)]
        bounds = {job.job_id: size_bounds(job, view) for job in jobs}
        given = _admit(jobs, bounds, pools)
        _pour(jobs, bounds, given, pools)
        sharing = sum(1 for job in jobs if job.elastic and given[job.job_id])
        planned = (job for job in jobs if job.elastic and job.move is None)
        return Plan(tuple(_target(job, bounds[job.job_id], given[job.job_id], sharing) for job in planned))


def _strange(view: ClusterView) -> set[str]:
    """Nodes that a job holds although its partition has them no longer: they are no others' while it runs."""
    kinds = {node.name: kind_of(node) for node in view.nodes}
    return {
        name
        for job in view.jobs
        for name in job.nodes
        if name in kinds and not fits(job.partition, job.gpus_per_node, kinds[name])
    }


def _admit(jobs: Sequence[JobView], bounds: Mapping[str, Bounds], pools: Pools) -> dict[str, int]:
    """Minima: those who run have theirs in any case; the first who does not fit makes all behind it wait."""
    given: dict[str, int] = {}
    full: set[str] = set()
    for job in jobs:
        low = bounds[job.job_id].low
        incumbent = bool(job.nodes) or job.move is not None
        if not incumbent and (job.partition in full or pools.left_for(job) < low):
            full.add(job.partition)
            given[job.job_id] = 0
        else:
            pools.take(job, low)
            given[job.job_id] = low
    return given


def _pour(jobs: Sequence[JobView], bounds: Mapping[str, Bounds], given: dict[str, int], pools: Pools) -> None:
    """Raises the lowest level by one node (a pipeline's by one replica) until no job may or can have more."""

    def level(place: int, job: JobView) -> tuple[int, bool, int]:
        nodes = given[job.job_id]
        return nodes * max(job.gpus_per_node, 1), nodes >= len(job.nodes), place

    heap = [(level(place, job), job) for place, job in enumerate(jobs) if job.elastic and given[job.job_id]]
    heapq.heapify(heap)
    while heap:
        (_, _, place), job = heap[0]
        bound = bounds[job.job_id]
        if given[job.job_id] + bound.step <= bound.high and pools.left_for(job) >= bound.step:
            given[job.job_id] += pools.take(job, bound.step)
            heapq.heapreplace(heap, (level(place, job), job))
        else:
            heapq.heappop(heap)


def _target(job: JobView, bounds: Bounds, nodes: int, sharing: int) -> Target:
    held = len(job.nodes)
    if job.wish is not None and held and nodes < job.wish.node_bounds(job.asked_nodes, job.gpus_per_node).low:
        nodes = held  # between what it has and what it wished for lies nothing allowed
    batch, lr_scale = batch_at(job, nodes)
    if not nodes:
        reason = "waits: the smallest size that it allows does not fit beside the jobs before it"
    elif nodes == bounds.high:
        reason = "gets the largest size that it allows"
    elif nodes == bounds.low:
        reason = "gets the smallest size that it allows, for others need nodes too"
    else:
        reason = "gets an even share of the nodes"
    return Target(
        job_id=job.job_id,
        nodes=nodes,
        batch=batch,
        lr_scale=lr_scale,
        reason=reason,
        numbers=told(nodes=nodes, low=bounds.low, high=bounds.high, held=held, sharing_jobs=sharing),
    )
