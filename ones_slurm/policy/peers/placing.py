"""Free GPUs, and the ways in which the peers choose among them."""

from collections.abc import Iterable, Mapping, Sequence

from ones_slurm.model.cluster import Allocation, ClusterView, JobView
from ones_slurm.model.plan import Target


def free_gpus(view: ClusterView, staying: Iterable[JobView] | None = None) -> dict[str, int]:
    """GPUs of usable nodes that none of the jobs in `staying` (all of the view, unless given) holds."""
    free = {node.name: node.gpus for node in view.nodes if node.usable}
    for job in view.jobs if staying is None else staying:
        for name, gpus in job.allocation:
            if name in free:
                free[name] -= gpus
    return free


def take_emptiest(free: dict[str, int], gpus: int) -> Allocation:
    """Takes from the node with the most free GPUs, then from the next: few nodes, large gaps first.

    There must be enough of them. The result keeps the order of taking, which is the order of the ranks.
    """
    taken: dict[str, int] = {}
    while gpus:
        name = max(free, key=free.__getitem__)
        count = min(free[name], gpus)
        assert count, "more GPUs were asked for than are free"
        taken[name] = count
        free[name] -= count
        gpus -= count
    return tuple(taken.items())


def take_consolidated(free: dict[str, int], gpus: int) -> Allocation:
    """The fullest single node that still has room, else whole nodes first: leaves as few fragments as it can."""
    if not gpus:
        return ()
    roomy = [name for name in free if free[name] >= gpus]
    if not roomy:
        return take_emptiest(free, gpus)
    name = min(roomy, key=free.__getitem__)
    free[name] -= gpus
    return ((name, gpus),)


def put(job: JobView, allocation: Allocation, reason: str, **numbers: float) -> Target:
    """The target for a job on these GPUs (none: it waits, or is stopped), with the batch that it asked for."""
    return Target(job_id=job.job_id, nodes=len(allocation), allocation=allocation, reason=reason, numbers=numbers)


def movable(view: ClusterView) -> list[JobView]:
    """Jobs that may be given other GPUs now, in the order of submission: they wait, or would not lose their work."""
    return [job for job in view.jobs if job.elastic and not job.held and (job.requeueable or not job.allocation)]


def unmoved(view: ClusterView, jobs: Sequence[JobView]) -> list[JobView]:
    """All other jobs than these."""
    asked = {job.job_id for job in jobs}
    return [job for job in view.jobs if job.job_id not in asked]


def waiting(view: ClusterView) -> list[JobView]:
    """Jobs that hold nothing and may start, in the order of submission."""
    return [job for job in view.jobs if not job.allocation and job.elastic and not job.held]


def resized(view: ClusterView, jobs: Sequence[JobView], sizes: Mapping[str, int]) -> dict[str, Allocation]:
    """An allocation of each job's new size: who keeps it stays, the others are placed anew, large ones first.

    Jobs that are not in `jobs` keep what they hold. The sizes must fit together.
    """
    asked = {job.job_id for job in jobs}
    same = {job.job_id: job.allocation for job in jobs if sizes.get(job.job_id, 0) == job.gpus}
    free = free_gpus(view, (job for job in view.jobs if job.job_id in same or job.job_id not in asked))
    moved = sorted((job for job in jobs if job.job_id not in same), key=lambda job: -sizes.get(job.job_id, 0))
    return same | {job.job_id: take_consolidated(free, sizes.get(job.job_id, 0)) for job in moved}
