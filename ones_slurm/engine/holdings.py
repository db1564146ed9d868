"""The guard's checks where any job can be put on any GPUs, some of a node's included."""

from collections.abc import Iterable, Sequence

from ones_slurm.engine.invariants import InvariantError, check_batch
from ones_slurm.model.cluster import Allocation, ClusterView, JobView
from ones_slurm.model.plan import Action, Plan, Target


def check_holdings(view: ClusterView) -> None:
    """No node gives more GPUs than it has."""
    room = {node.name: node.gpus for node in view.nodes}
    for name, gpus in _held(job.allocation for job in view.jobs).items():
        if gpus > room.get(name, 0):
            raise InvariantError("view", f"{gpus} GPUs of node {name} are held, and it has {room.get(name, 0)}")


def check_shares(view: ClusterView, plan: Plan) -> None:
    """Jobs of the view, within their bounds, on usable nodes, and no GPU twice."""
    if not plan.targets:
        return
    jobs = {job.job_id: job for job in view.jobs}
    for target in plan.targets:
        if target.job_id not in jobs:
            raise InvariantError("plan", f"job {target.job_id} is not in the view")
        _check_target(jobs[target.job_id], target)
    given = {target.job_id: target.allocation for target in plan.targets if target.allocation is not None}
    room = {node.name: node.gpus if node.usable else 0 for node in view.nodes}
    held = _held(given.get(job.job_id, job.allocation) for job in view.jobs)
    touched = {name for allocation in given.values() for name, _ in allocation}
    for name in sorted(touched):
        if held[name] > room.get(name, 0):
            raise InvariantError("plan", f"{held[name]} GPUs of node {name} are given, and it has {room.get(name, 0)}")


def check_rearranging(view: ClusterView, actions: Sequence[Action]) -> None:
    """Jobs that are there and may be moved, and a new generation for each."""
    jobs = {job.job_id: job for job in view.jobs}
    for action in actions:
        job = jobs.get(action.job_id)
        if job is None or not job.elastic:
            raise InvariantError("action", f"job {action.job_id} is not there or not elastic")
        if action.generation <= job.generation:
            raise InvariantError("action", f"job {job.job_id} is at generation {job.generation} already")


def _held(allocations: Iterable[Allocation]) -> dict[str, int]:
    held: dict[str, int] = {}
    for allocation in allocations:
        for name, gpus in allocation:
            held[name] = held.get(name, 0) + gpus
    return held


def _check_target(job: JobView, target: Target) -> None:
    if not job.elastic or job.wish is None or job.wish.gpus is None:
        raise InvariantError("plan", f"job {job.job_id} is rigid")
    check_batch(job, target)
    if target.allocation is None or target.allocation == job.allocation:
        return
    gpus = sum(count for _, count in target.allocation)
    low, high = job.wish.gpus.low, job.wish.gpus.high
    if gpus and not low <= gpus <= high:
        raise InvariantError("plan", f"job {job.job_id} allows {low}-{high} GPUs, not {gpus}")
    if job.allocation and not job.requeueable:
        raise InvariantError("plan", f"job {job.job_id} would lose its work: it runs and cannot be moved")
    if target.nodes != len(target.allocation) or any(count < 1 for _, count in target.allocation):
        raise InvariantError("plan", f"job {job.job_id} is given {target.nodes} nodes as {target.allocation}")
