"""Figures of merit of one run: what users and the site got from a policy."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ones_slurm.model.cluster import JobState
from ones_slurm.sim.cluster import ImaginedCluster
from ones_slurm.sim.job import Job


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Completion time is from submission to the end, waiting from submission to the first start.

    `rho` is finish-time fairness (Mahajan et al., Themis, NSDI 2020): completion time over what the job would have
    taken alone on its fair share of the cluster, the GPUs over the average number of jobs that were there with it.
    """

    job_id: str
    kind: str
    submit_s: float
    completion_s: float
    waiting_s: float
    gpu_s: float
    moves: int
    restarts: int
    failed: bool
    rho: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `utilisation` is the share of all GPU-seconds until the end that jobs held; `goodput` the share that was
    worth as much as one GPU alone, so that bad scaling, pauses and lost work all lower it. Seconds unless said.
    """

    policy: str
    jobs: int
    failed: int
    mean_s: float
    median_s: float
    p90_s: float
    p99_s: float
    makespan_s: float
    waiting_s: float
    moves: float
    utilisation: float
    goodput: float
    rho_mean: float
    rho_worst: float
    decisions: int


def job_figures(cluster: ImaginedCluster) -> tuple[JobFigures, ...]:
    """Every job that is over, in the order of submission."""
    gpus = sum(node.gpus for node in cluster.nodes.values())
    jobs = sorted(cluster.ended, key=lambda job: (job.what.submit_s, job.job_id))
    return tuple(_of_job(job, share) for job, share in zip(jobs, _fair_shares(jobs, gpus), strict=True))


def figures(policy: str, cluster: ImaginedCluster, jobs: Sequence[JobFigures], *, decisions: int = 0) -> Figures:
    """The summary of a run; there must be a job. Sums are exact, for Pythons add up floats differently since 3.12."""
    completion = np.array([job.completion_s for job in jobs])
    begin_s = min(job.submit_s for job in jobs)
    makespan_s = max(job.submit_s + job.completion_s for job in jobs) - begin_s
    offered = sum(node.gpus for node in cluster.nodes.values()) * makespan_s
    alone = math.fsum(job.truth.alone_s(1) for job in cluster.ended if job.state is JobState.DONE)
    rho = [job.rho for job in jobs if not job.failed]
    median, p90, p99 = np.percentile(completion, [50, 90, 99])
    return Figures(
        policy=policy,
        jobs=len(jobs),
        failed=sum(job.failed for job in jobs),
        mean_s=float(completion.mean()),
        median_s=float(median),
        p90_s=float(p90),
        p99_s=float(p99),
        makespan_s=makespan_s,
        waiting_s=math.fsum(job.waiting_s for job in jobs) / len(jobs),
        moves=sum(job.moves for job in jobs) / len(jobs),
        utilisation=math.fsum(job.gpu_s for job in jobs) / offered if offered else 0.0,
        goodput=alone / offered if offered else 0.0,
        rho_mean=math.fsum(rho) / len(rho) if rho else math.nan,
        rho_worst=max(rho, default=math.nan),
        decisions=decisions,
    )


def _of_job(job: Job, share: int) -> JobFigures:
    assert job.end_s is not None
    submit_s, end_s = job.what.submit_s, job.end_s
    # A job that may not be smaller than some size cannot run on less, even if its share is less.
    sizes = job.what.wish.gpus if job.what.wish is not None else None
    fair = sizes.clamp(share) if sizes is not None else job.asked_gpus
    return JobFigures(
        job_id=job.job_id,
        kind=job.what.kind,
        submit_s=submit_s,
        completion_s=end_s - submit_s,
        waiting_s=(job.first_start_s if job.first_start_s is not None else end_s) - submit_s,
        gpu_s=job.served_gpu_s,
        moves=job.moves,
        restarts=job.restarts,
        failed=job.state is not JobState.DONE,
        rho=(end_s - submit_s) / max(job.truth.alone_s(fair), 1.0),
    )


def _fair_shares(jobs: Sequence[Job], gpus: int) -> list[int]:
    """GPUs over the average number of unfinished jobs during each job's life, at least one."""
    changes = sorted([(job.what.submit_s, 1) for job in jobs] + [(job.end_s or 0.0, -1) for job in jobs])
    times = np.array([at_s for at_s, _ in changes])
    there = np.cumsum([step for _, step in changes])
    area = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(times))])
    shares = []
    for job in jobs:
        submit_s, end_s = job.what.submit_s, job.end_s or 0.0
        if end_s <= submit_s:
            shares.append(gpus)
            continue
        crowd = (np.interp(end_s, times, area) - np.interp(submit_s, times, area)) / (end_s - submit_s)
        shares.append(max(int(gpus / max(crowd, 1.0)), 1))
    return shares
