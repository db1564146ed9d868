"""Views for stories about ONES: nodes with four GPUs, and jobs whose speed is known in full."""

import numpy as np

from ones_slurm.model.cluster import ClusterView, JobState, JobView, NodeView, Speed
from ones_slurm.model.wire import Progress
from ones_slurm.model.wish import Bounds, Wish
from ones_slurm.policy.ones.score import Options

ANYTHING = np.random.default_rng(0)


def nodes(count, **more):
    return tuple(NodeView(f"n{number:04d}", 4, True, **more) for number in range(count))


def speed(gpus, local=32, compute_s=0.1, sync_s=0.02):
    """A job that scales well: the exchange costs the same at any size."""
    return Speed(max(gpus // 4, 1), gpus, local, compute_s + (sync_s if gpus > 1 else 0.0), sync_s if gpus > 1 else 0.0)


def job(job_id, *held, left=100_000, measured=(1, 4, 8), high=64, **more):
    """An elastic job with `left` samples to go, on the GPUs `held` as (node number, GPUs)."""
    allocation = tuple((f"n{number:04d}", gpus) for number, gpus in held)
    told = {
        "min_local_batch": 8.0,
        "max_local_batch": 128.0,
        "max_batch": 4096.0,
        "grad_sqr": 1.0,
        "grad_var": 100.0,
    }
    whole = {
        "user": "ada",
        "state": JobState.RUNNING if held else JobState.PENDING,
        "asked_nodes": 1,
        "gpus_per_node": 1,
        "asked_gpus": 1,
        "nodes": tuple(name for name, _ in allocation),
        "allocation": allocation,
        "wish": Wish(gpus=Bounds(1, high), batch=Bounds(32, 4096)),
        "elastic": True,
        "start_s": 0.0 if held else None,
        "batch": 32,
        "progress": Progress(samples=1000, total_samples=1000 + left, base_batch=32, metrics=told)
        if measured
        else None,
        "speeds": tuple(speed(gpus) for gpus in measured),
        **more,
    }
    return JobView(job_id=job_id, **whole)


def view(node_count, *jobs, **more):
    return ClusterView(10_000.0, nodes(node_count), jobs, can_reallocate=True, **more)


def sizes(plan):
    return {target.job_id: sum(gpus for _, gpus in target.allocation) for target in plan.targets}


def knapsack(rng, jobs, capacity, pools=1):
    """Costs that fall with the size, each job in its own way; separable but for the pools."""
    units = [1, 2, 4, *range(8, capacity + 1, 4)]
    work = rng.lognormal(0.0, 1.5, (jobs, 1))
    power = rng.uniform(0.3, 0.95, (jobs, 1))
    price = rng.uniform(0.0, 0.3, (jobs, 1))
    curve = work * np.array(units) ** -power * (1.0 + price * np.array(units))
    waiting = work * rng.uniform(1.0, 3.0, (jobs, 1))
    factors = rng.uniform(0.7, 1.4, (pools, jobs, 1))
    return Options(
        cost=np.concatenate([waiting, *(curve * factor for factor in factors)], axis=1),
        units=np.array([0, *(units * pools)]),
        pool=np.array([-1, *np.repeat(np.arange(pools), len(units))]),
        pools=np.array([capacity // pools] * pools),
        held=np.zeros(jobs, int),
        order=np.argsort(work[:, 0], kind="stable"),
    )
