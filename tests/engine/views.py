"""Small views for the engine's tests."""

from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView
from ones_slurm.model.plan import Plan, Target
from ones_slurm.model.wish import Bounds, Wish


def view(*jobs, nodes=8, broken=(), now_s=1000.0, **more):
    """A cluster of nodes c1… of one partition."""
    names = [f"c{number}" for number in range(1, nodes + 1)]
    there = tuple(NodeView(name, 2, name not in broken, partitions=("gpu",)) for name in names)
    return ClusterView(now_s, there, jobs, **more)


def job(job_id, nodes="", **more):
    """An elastic job that holds these nodes ("c1 c2"), or waits."""
    held = tuple(nodes.split())
    shape = {
        "user": "u",
        "state": JobState.RUNNING if held else JobState.PENDING,
        "asked_nodes": len(held) or 1,
        "gpus_per_node": 2,
        "partition": "gpu",
        "nodes": held,
        "batch_host": held[0] if held else "",
        "wish": Wish(nodes=Bounds(1, 8), batch=Bounds(64, 4096)),
        "elastic": True,
        "batch": 64 if held else 0,
        "generation": 1 if held else 0,
    }
    return JobView(job_id=job_id, **(shape | more))


def rigid(job_id, nodes="", **more):
    return job(job_id, nodes, wish=None, elastic=False, **more)


def plan(**nodes):
    """A plan by job id: a node count, or (nodes, batch)."""
    pairs = {job_id: one if isinstance(one, tuple) else (one, 0) for job_id, one in nodes.items()}
    return Plan(
        tuple(Target(job_id=job_id, nodes=size, batch=batch, reason="so") for job_id, (size, batch) in pairs.items())
    )
